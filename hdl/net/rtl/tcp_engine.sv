// The TCP state of every session, and all decisions about it (RFC 9293). One event at a time: a
// segment that came, an application that has written, read or closed, or a timer's tick. An event
// reads the session's record, changes it, writes it back, and sends at most one segment.
//
// Connections are opened by the peer, with SYN cookies (RFC 4987 section 3.6): a SYN is answered and
// forgotten, so that no number of them fills anything. A session exists from the first good ACK on.
// Loss: fast retransmit after three duplicate ACKs with NewReno's partial ACKs (RFC 6582), go-back-N
// after a timeout (RFC 6298, least timeout 200 ms as in Linux). Congestion window: RFC 5681, first
// window RFC 6928. Resets and SYNs into a session are checked as RFC 5961 says.
//
// Time is the input `tick`, once a millisecond of the peers' time: a divider of the clock on a real
// board, the wall clock in the live model.
//
// Parameters: SESSIONS; RING_BITS, log2 of a ring's bytes; MSS; the limits in ms.
// Latency: 5 cycles from a descriptor to the segment; 4 cycles an event, 20 with a cookie.
module tcp_engine
  import net_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int MSS = 1460,
    parameter  int IDLE_MS = 60000,         // then a session is closed
    parameter  int IDLE_WANTED_MS = 1000,   // the same while others wait for a session
    parameter  int LINGER_MS = 5000,        // after our FIN; then the session is reset
    parameter  int LINGER_WANTED_MS = 500,
    parameter  int TIME_WAIT_MS = 500,
    parameter  int DELAYED_ACK_MS = 5,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                tick,
    input  logic         [63:0] secret,     // of the cookies
    input  logic         [15:0] listen_port,
    // descriptors from tcp_rx
    input  logic                desc_valid,
    output logic                desc_ready,
    input  head_t               desc_head,
    input  logic                desc_hit,
    input  logic         [S-1:0] desc_index,
    input  logic                desc_kept,
    input  logic                desc_gap,
    input  logic                desc_fin,
    input  logic                desc_exact,
    input  logic                desc_inside,
    input  logic                desc_near,
    // sessions, towards tcp_rx
    output logic                open,
    output logic                close,
    output logic         [S-1:0] at,
    output logic         [63:0] open_key,
    output logic         [31:0] open_next,  // the peer's first byte
    output logic         [31:0] open_una,   // our first byte
    output logic         [31:0] snd_max  [SESSIONS],
    input  logic         [31:0] rcv_next [SESSIONS],
    input  logic [SESSIONS-1:0] rcv_ended,
    // the application
    output logic         [31:0] snd_una  [SESSIONS],
    output logic [SESSIONS-1:0] dead,       // the session is over: release it
    output logic [SESSIONS-1:0] shut,       // the stream out has been closed
    output logic                woken,      // something that the application may wait for
    output logic        [S-1:0] woken_at,
    input  logic         [31:0] read_to  [SESSIONS],
    input  logic         [31:0] written_to[SESSIONS],
    input  logic [SESSIONS-1:0] finish,     // nothing more will be written
    input  logic                notify,     // one of the three has changed
    input  logic        [S-1:0] notify_at,
    input  logic                release_valid,
    input  logic        [S-1:0] release_at,
    // segments to tcp_tx
    output logic                seg_valid,
    input  logic                seg_ready,  // room for two
    input  logic                seg_free,   // and so much that others than segments may fill some of it
    output segment_t            seg,
    output logic        [S-1:0] seg_session,
    output logic                busy,       // with an event, or opening a session
    // counters
    output logic         [31:0] count_opened,
    output logic         [31:0] count_retransmitted,
    output logic         [31:0] count_reset,
    output logic        [S:0]   count_open
);

  localparam int RTO_FIRST_MS = 1000;  // RFC 6298 section 2
  localparam int RTO_LEAST_MS = 200;
  localparam int RTO_MOST_MS = 60000;
  localparam int RETRIES = 8;

  typedef enum logic {
    OPEN,
    TIME_WAIT
  } state_t;

  typedef struct packed {
    state_t      state;
    logic [47:0] mac;
    logic [31:0] ip;
    logic [15:0] port;
    logic [31:0] una, nxt, max;    // oldest not acknowledged; next to send; after the last ever sent
    logic [31:0] wl1;              // the segment that last set the window
    logic [15:0] window;
    logic [31:0] offered;          // the right edge of the window that the peer was told
    logic [13:0] mss;
    logic [16:0] cwnd, ssthresh, grown;
    logic [1:0]  dups;
    logic        recovering;
    logic [31:0] recover;
    logic        closing, active;  // our stream ends at fin_at; we were the first to close
    logic [31:0] fin_at;
    logic        timing;           // a segment is being timed
    logic [31:0] timed;
    logic [15:0] timed_from;
    logic        measured;
    logic [18:0] srtt;             // in 1/8 ms
    logic [17:0] rttvar;           // in 1/4 ms
    logic [15:0] rto, timer;
    logic [3:0]  retries;
    logic [1:0]  unacked;          // segments that came since our last ACK
    logic [7:0]  ack_wait;
    logic [16:0] idle;
  } tcb_t;

  tcb_t tcbs[SESSIONS];

  typedef enum logic [2:0] {
    IDLE,
    LOAD,
    STEP,
    SEND,
    COOKIE,
    CHECK
  } phase_t;
  typedef enum logic [1:0] {
    EVENT_SEGMENT,
    EVENT_APP,
    EVENT_TICK
  } event_t;

  phase_t phase;
  event_t kind;
  logic [S-1:0] index;
  head_t d;
  logic hit, kept, gap, fin_in, exact, in_window, nearby;
  tcb_t t, n, n_q, o;  // as it was, after the event (and a cycle later), after sending
  logic [15:0] now;
  logic late_tick;  // a millisecond's ticks were not done before the next one
  logic turn;     // segments and the rest take turns
  logic [SESSIONS-1:0] kicked, tick_due, free;
  logic wanted;   // a connection found no free session

  function automatic logic [S-1:0] first_of(input logic [SESSIONS-1:0] set);
    first_of = '0;
    for (int i = SESSIONS - 1; i >= 0; i--) if (set[i]) first_of = S'(i);
  endfunction

  // The first of a set at or after a place, so that nobody waits for ever.
  logic [S-1:0] app_from, app_next;
  logic [SESSIONS-1:0] app_after;
  assign app_after = kicked & ({SESSIONS{1'b1}} << app_from);
  assign app_next = |app_after ? first_of(app_after) : first_of(kicked);

  // ---- cookies: 5 bits of time, 3 of MSS, 24 of hash ----
  logic cookie_start, cookie_done;
  logic [31:0] cookie_hash, irs;
  logic [4:0] epoch, cookie_epoch;
  logic [2:0] cookie_mss;

  function automatic logic [13:0] mss_of(input logic [2:0] i);
    case (i)
      3'd0: return 14'd256;
      3'd1: return 14'd536;
      3'd2: return 14'd1024;
      3'd3: return 14'd1220;
      3'd4: return 14'd1360;
      3'd5: return 14'd1440;
      3'd6: return 14'd1460;
      default: return 14'(MSS);
    endcase
  endfunction

  function automatic logic [2:0] mss_index(input logic [15:0] offered);
    mss_index = 3'd0;
    for (int i = 1; i < 8; i++)
    if (offered >= 16'(mss_of(3'(i))) && mss_of(3'(i)) <= 14'(MSS)) mss_index = 3'(i);
    // A peer that names none takes 536 (RFC 9293 section 3.7.1).
    if (offered == 16'd0) mss_index = 3'd1;
  endfunction

  tcp_cookie u_cookie (
      .clk,
      .rst,
      .start  (cookie_start),
      .secret,
      .message({24'd0, cookie_epoch, cookie_mss, irs, d.port, d.own_port, d.ip}),
      .done   (cookie_done),
      .hash   (cookie_hash)
  );

  // ---- STEP: what the event does to the record ----
  logic ack_now, again, probe, die, reset_out, wake;
  logic [31:0] acked, flight;
  logic [16:0] half;
  logic own_end_acked;
  logic ack_now_q, again_q, probe_q, die_q, reset_q;

  function automatic tcb_t timed_sample(input tcb_t from, input logic [15:0] m);
    tcb_t r;
    logic signed [18:0] delta;
    logic [17:0] size;
    logic [18:0] rto;
    r = from;
    if (!from.measured) begin
      r.srtt   = {m, 3'b000};
      r.rttvar = {1'b0, m, 1'b0};
    end else begin
      delta = $signed({3'b000, m}) - $signed({3'b000, from.srtt[18:3]});
      size = delta < 0 ? 18'(-delta) : 18'(delta);
      r.srtt = 19'($signed({1'b0, from.srtt}) + 20'(delta));
      r.rttvar = from.rttvar - (from.rttvar >> 2) + size;
    end
    r.measured = 1'b1;
    rto = 19'(r.srtt[18:3]) + 19'(r.rttvar);
    r.rto = rto < 19'(RTO_LEAST_MS) ? 16'(RTO_LEAST_MS) :
            rto > 19'(RTO_MOST_MS) ? 16'(RTO_MOST_MS) : rto[15:0];
    return r;
  endfunction

  function automatic logic [16:0] capped(input logic [17:0] v);
    return v > 18'h0ffff ? 17'h0ffff : v[16:0];
  endfunction

  always_comb begin
    n = t;
    ack_now = 1'b0;
    again = 1'b0;      // send the oldest segment again
    probe = 1'b0;      // send one byte into a closed window
    die = 1'b0;
    reset_out = 1'b0;
    wake = 1'b0;
    acked = d.ack - t.una;
    flight = t.max - t.una;
    half = flight[16:1] > 16'({t.mss, 1'b0}) ? 17'(flight[16:1]) : 17'({t.mss, 1'b0});

    if (finish[index] && !t.closing && t.state == OPEN) begin
      n.closing = 1'b1;
      n.fin_at  = written_to[index];
      n.active  = !rcv_ended[index];
      n.idle    = '0;
    end

    case (kind)
      EVENT_SEGMENT: begin
        if (d.flags[RST]) begin
          // RFC 5961 section 3: only the exact place resets; another one in the window is asked back.
          if (exact) die = 1'b1;
          else if (in_window) ack_now = 1'b1;
        end else if (d.flags[SYN]) begin
          // In TIME_WAIT the peer begins anew; its next SYN finds the session gone.
          if (t.state == TIME_WAIT) die = 1'b1;
          else ack_now = 1'b1;
        end else if (!nearby) ack_now = 1'b1;
        else if (d.flags[ACK]) begin
          if (acked != '0 && acked <= flight) begin
            n.una = d.ack;
            if (precedes(t.nxt, d.ack)) n.nxt = d.ack;
            n.dups = '0;
            n.retries = '0;
            n.idle = '0;
            wake = 1'b1;
            if (t.timing && !precedes(d.ack, t.timed)) begin
              n = timed_sample(n, now - t.timed_from);
              n.timing = 1'b0;
            end
            n.timer = acked == flight ? 16'd0 : n.rto;
            if (t.recovering) begin
              if (precedes(d.ack, t.recover)) again = 1'b1;
              else n.recovering = 1'b0;
            end else if (t.cwnd < t.ssthresh)
              n.cwnd = capped(18'(t.cwnd) + (acked > 32'(t.mss) ? 18'({t.mss, 1'b0}) : 18'(acked)));
            else if (18'(t.grown) + 18'(acked[16:0]) >= 18'(t.cwnd)) begin
              n.grown = '0;
              n.cwnd  = capped(18'(t.cwnd) + 18'(t.mss));
            end else n.grown = t.grown + acked[16:0];
          end else if (acked == '0) begin
            if (flight != '0 && d.length == '0 && !d.flags[FIN] && d.window == t.window &&
                !t.recovering) begin
              n.dups = t.dups + 2'd1;
              if (t.dups == 2'd2) begin
                again = 1'b1;
                n.recovering = 1'b1;
                n.recover = t.max;
                n.ssthresh = half;
                n.cwnd = half;
                n.timing = 1'b0;
                n.dups = '0;
              end
            end
          end else if (!precedes(d.ack, t.max)) ack_now = 1'b1;  // acknowledges what was never sent
          if (!precedes(d.ack, t.una) && !precedes(d.seq, t.wl1) && acked <= flight) begin
            n.window = d.window;
            n.wl1 = d.seq;
            // Whoever answers a probe is there. What was sent into the closed window is sent again.
            if (t.window == '0) n.retries = '0;
            if (t.window == '0 && d.window != '0) n.nxt = n.una;
          end
          if (kept) begin
            if (!t.closing) n.idle = '0;
            n.unacked = t.unacked + 2'd1;
            if (t.unacked == '0) n.ack_wait = 8'(DELAYED_ACK_MS);
            // Every second segment at least, and whatever fills a gap (RFC 5681 section 4.2).
            if (t.unacked != '0 || gap) ack_now = 1'b1;
          end
          if (fin_in) ack_now = 1'b1;
          // A gap, a repetition, a probe: say what is expected (RFC 9293 section 3.10.7.4).
          if (!kept && !fin_in && (d.length != '0 || d.flags[FIN] || !exact)) ack_now = 1'b1;
        end
      end
      EVENT_TICK: begin
        n.idle = (&t.idle) ? t.idle : t.idle + 17'd1;
        if (t.unacked != '0) begin
          n.ack_wait = t.ack_wait - 8'd1;
          if (t.ack_wait == 8'd0) ack_now = 1'b1;
        end
        if (t.state == TIME_WAIT) die = t.idle >= 17'(wanted ? TIME_WAIT_MS / 8 : TIME_WAIT_MS);
        else begin
          if (t.closing && t.idle >= 17'(wanted ? LINGER_WANTED_MS : LINGER_MS)) begin
            die = 1'b1;
            reset_out = 1'b1;
          end
          if (!t.closing && t.idle >= 17'(wanted ? IDLE_WANTED_MS : IDLE_MS)) begin
            n.closing = 1'b1;
            n.fin_at  = written_to[index];
            n.active  = !rcv_ended[index];
            n.idle    = '0;
            wake = 1'b1;
          end
          if (t.timer != '0) begin
            n.timer = t.timer - 16'd1;
            if (t.timer == 16'd1) begin
              n.timer = t.rto;
              n.rto = t.rto > 16'(RTO_MOST_MS / 2) ? 16'(RTO_MOST_MS) : {t.rto[14:0], 1'b0};
              n.retries = t.retries + 4'd1;
              n.timing = 1'b0;  // Karn: what is sent again is not timed
              if (t.window == '0) probe = 1'b1;
              else begin
                n.nxt = t.una;
                n.ssthresh = half;
                n.cwnd = 17'(t.mss);
                n.recovering = 1'b0;
                n.dups = '0;
              end
              if (t.retries == 4'(RETRIES)) begin
                die = 1'b1;
                reset_out = 1'b1;
              end
            end
          end
        end
      end
      default: ;
    endcase

    // Both streams have ended and both ends are known to have arrived.
    own_end_acked = n.closing && n.una == n.fin_at + 32'd1;
    if (own_end_acked && rcv_ended[index] && t.state == OPEN && !die) begin
      if (n.active) begin
        n.state = TIME_WAIT;
        n.idle  = '0;
        wake = 1'b1;
      end else begin
        die = 1'b1;
        // The last ACK goes out with the session gone: nothing is owed.
      end
    end
  end

  // ---- SEND: what is to be sent now ----
  segment_t own, plain;  // a session's segment; an answer without a session
  logic plain_valid;
  logic [31:0] tx_end, avail, used, room_in, right;
  logic [31:0] inflight, limit, length, from, after;
  logic [15:0] window_out;
  logic send_data, send_fin, send_ack, resend, go_on, resend_fin;

  always_comb begin
    o = n_q;
    tx_end = n_q.closing ? n_q.fin_at : written_to[index];
    // Once the FIN is out there is nothing left.
    avail = precedes(n_q.nxt, tx_end) ? tx_end - n_q.nxt : 32'd0;
    inflight = n_q.nxt - n_q.una;
    limit = 32'(n_q.window) < 32'(n_q.cwnd) ? 32'(n_q.window) : 32'(n_q.cwnd);
    limit = limit > inflight ? limit - inflight : 32'd0;
    length = avail;
    if (length > 32'(n_q.mss)) length = 32'(n_q.mss);
    if (length > limit) length = limit;
    // No small segments while more is to come (RFC 9293 section 3.8.6.2.1), unless nothing is out.
    if (length < 32'(n_q.mss) && inflight != '0 && length < avail) length = '0;
    from = n_q.nxt;
    resend = 1'b0;
    resend_fin = 1'b0;
    if (again_q) begin
      resend = 1'b1;
      from = n_q.una;
      length = precedes(n_q.una, tx_end) ? tx_end - n_q.una : 32'd0;
      if (length > n_q.max - n_q.una) length = n_q.max - n_q.una;
      if (length > 32'(n_q.mss)) length = 32'(n_q.mss);
      resend_fin = n_q.closing && length == '0;
    end else if (probe_q) begin
      length = avail != '0 ? 32'd1 : (precedes(n_q.una, tx_end) ? 32'd1 : 32'd0);
      from = n_q.una;
      resend = 1'b1;
      resend_fin = n_q.closing && length == '0;
    end
    send_data = length != '0 && n_q.state == OPEN && !die_q;
    send_fin = n_q.state == OPEN && !die_q && n_q.closing &&
        (resend ? resend_fin : (n_q.nxt + length == n_q.fin_at));

    used = rcv_next[index] - read_to[index];
    room_in = 32'(1 << RX_RING_BITS) - used;
    window_out = used > 32'(1 << RX_RING_BITS) ? 16'd0 :
        room_in > 32'h0000_ffff ? 16'hffff : room_in[15:0];
    right = rcv_next[index] + 32'(window_out);
    // Tell a peer that ran low that there is room again.
    send_ack = ack_now_q || (n_q.state == OPEN && !die_q && !rcv_ended[index] &&
        n_q.offered - rcv_next[index] < 32'(1 << (RX_RING_BITS > 15 ? 14 : RX_RING_BITS - 1)) &&
        right - n_q.offered >= 32'({n_q.mss, 1'b0}));

    own = '0;
    own.mac = n_q.mac;
    own.ip = n_q.ip;
    own.port = n_q.port;
    own.own_port = listen_port;
    own.seq = send_data || send_fin ? from : n_q.max;
    own.ack = rcv_next[index];
    own.window = window_out;
    own.flags[ACK] = 1'b1;
    own.flags[PSH] = send_data && from + length == tx_end;
    own.flags[FIN] = send_fin;
    own.length = send_data ? length[15:0] : 16'd0;
    if (reset_q) begin
      own.flags = 8'd0;
      own.flags[RST] = 1'b1;
      own.flags[ACK] = 1'b1;
      own.seq = n_q.nxt;
      own.length = '0;
    end

    go_on = 1'b0;
    after = from + (send_data ? length : 32'd0) + 32'(send_fin);
    if (send_data || send_fin) begin
      if (!precedes(after, n_q.nxt)) o.nxt = after;
      if (precedes(n_q.max, after)) begin
        o.max = after;
        if (!n_q.timing && from == n_q.max) begin
          o.timing = 1'b1;
          o.timed = after;
          o.timed_from = now;
        end
      end
      if (n_q.timer == '0) o.timer = n_q.rto;
      // There may be more: come again after the others.
      go_on = !resend && avail > length && send_data;
      if (again_q) go_on = 1'b1;
    end else if (avail != '0 && n_q.window == '0 && n_q.timer == '0) o.timer = n_q.rto;
    if (send_data || send_fin || send_ack) begin
      o.unacked = '0;
      o.offered = right;
    end
  end

  logic emit;
  assign emit = send_data || send_fin || send_ack || reset_q;

  // ---- the machine ----
  logic may_segment, may_app, may_tick;
  assign may_segment = desc_valid;
  // If what application and timers send filled the way out, segments would wait behind it, and be dropped.
  assign may_app = |kicked && seg_free;
  assign may_tick = |tick_due && seg_free;
  logic choose_segment, ours;
  logic [SESSIONS-1:0] over;
  assign over = free | dead;
  // A session may have ended, and its place been taken, since the segment came in.
  assign ours = hit && !over[index] && tcbs[index].ip == d.ip && tcbs[index].port == d.port;
  assign choose_segment = may_segment && (turn || !(may_app || may_tick));
  assign desc_ready = phase == IDLE && seg_ready && choose_segment;


  always_ff @(posedge clk) begin
    open <= 1'b0;
    close <= 1'b0;
    woken <= 1'b0;
    cookie_start <= 1'b0;
    plain_valid <= 1'b0;
    if (notify) kicked[notify_at] <= 1'b1;
    if (release_valid) begin
      free[release_at] <= 1'b1;
      dead[release_at] <= 1'b0;
      shut[release_at] <= 1'b0;
      count_open <= count_open - 1'b1;
    end

    case (phase)
      IDLE:
      if (seg_ready) begin
        if (choose_segment) begin
          turn <= 1'b0;
          kind <= EVENT_SEGMENT;
          index <= desc_index;
          d <= desc_head;
          hit <= desc_hit;
          kept <= desc_kept;
          gap <= desc_gap;
          fin_in <= desc_fin;
          exact <= desc_exact;
          in_window <= desc_inside;
          nearby <= desc_near;
          phase <= LOAD;
        end else if (may_app || may_tick) begin
          turn <= 1'b1;
          hit <= 1'b1;
          // Timers can wait for a while, but not for ever.
          if (may_tick && (!may_app || late_tick)) begin
            kind <= EVENT_TICK;
            index <= first_of(tick_due);
            late_tick <= late_tick && tick_due != (tick_due & -tick_due);
            tick_due[first_of(tick_due)] <= 1'b0;
          end else begin
            kind <= EVENT_APP;
            index <= app_next;
            app_from <= app_next + 1'b1;
            kicked[app_next] <= notify && notify_at == app_next;
          end
          phase <= LOAD;
        end
      end
      LOAD: begin
        t <= tcbs[index];
        phase <= STEP;
        if (kind == EVENT_SEGMENT && !ours) begin
          // Nobody's: a new connection, or an answer to something that is over.
          phase <= IDLE;
          plain <= '0;
          plain.mac <= d.mac;
          plain.ip <= d.ip;
          plain.port <= d.port;
          plain.own_port <= d.own_port;
          cookie_epoch <= epoch;
          cookie_mss <= mss_index(d.mss);
          irs <= d.seq;
          if (d.flags[RST]) begin
          end else if (d.own_port == listen_port && d.flags[SYN] && !d.flags[ACK]) begin
            cookie_start <= 1'b1;
            phase <= COOKIE;
          end else if (d.own_port == listen_port && d.flags[ACK] && !d.flags[SYN]) begin
            cookie_start <= 1'b1;
            cookie_epoch <= 5'((d.ack - 32'd1) >> 27);
            cookie_mss <= 3'((d.ack - 32'd1) >> 24);
            irs <= d.seq - 32'd1;
            phase <= CHECK;
          end else begin
            plain_valid <= 1'b1;
            plain.flags[RST] <= 1'b1;
            plain.flags[ACK] <= !d.flags[ACK];
            plain.seq <= d.flags[ACK] ? d.ack : 32'd0;
            plain.ack <= d.flags[ACK] ? 32'd0 :
                d.seq + 32'(d.length) + 32'(d.flags[SYN]) + 32'(d.flags[FIN]);
          end
        end else if (over[index]) phase <= IDLE;
      end
      STEP: begin
        n_q <= n;
        ack_now_q <= ack_now && !die;
        again_q <= again;
        probe_q <= probe;
        die_q <= die;
        reset_q <= reset_out;
        woken <= wake || die;
        woken_at <= index;
        phase <= SEND;
        if (die) begin
          close <= 1'b1;
          at <= index;
          if (reset_out) count_reset <= count_reset + 32'd1;
        end
        // The peer of a session that ends because both ends arrived still needs its last ACK.
        if (die && kind == EVENT_SEGMENT && fin_in) ack_now_q <= 1'b1;
      end
      SEND: begin
        tcbs[index] <= o;
        snd_una[index] <= o.una;
        snd_max[index] <= o.max;
        shut[index] <= o.closing;
        if (die_q) dead[index] <= 1'b1;
        if (go_on && !die_q) kicked[index] <= 1'b1;
        if (emit && precedes(own.seq, n_q.max) && own.length != '0)
          count_retransmitted <= count_retransmitted + 32'd1;
        phase <= IDLE;
      end
      COOKIE:
      if (cookie_done) begin
        phase <= IDLE;
        plain_valid <= 1'b1;
        plain.flags[SYN] <= 1'b1;
        plain.flags[ACK] <= 1'b1;
        plain.seq <= {cookie_epoch, cookie_mss, cookie_hash[23:0]};
        plain.ack <= d.seq + 32'd1;
        plain.window <= RX_RING_BITS > 15 ? 16'hffff : 16'(1 << RX_RING_BITS);
        plain.with_mss <= 1'b1;
      end
      default:
      if (cookie_done) begin
        phase <= IDLE;
        if (5'(epoch - cookie_epoch) > 5'd4) begin
          plain_valid <= 1'b1;
          plain.flags[RST] <= 1'b1;
          plain.seq <= d.ack;
        end else if (cookie_hash[23:0] != 24'(d.ack - 32'd1)) begin
          // Perhaps a later segment of a connection whose first one was lost: the peer begins again.
        end else if (free == '0) wanted <= 1'b1;  // the peer will ask again
        else begin
          logic [S-1:0] slot;
          tcb_t fresh;
          slot = first_of(free);
          wanted <= 1'b0;
          free[slot] <= 1'b0;
          open <= 1'b1;
          at <= slot;
          open_key <= {d.ip, d.port, d.own_port};
          open_next <= d.seq;
          open_una <= d.ack;
          snd_una[slot] <= d.ack;
          snd_max[slot] <= d.ack;
          fresh = '0;
          fresh.state = OPEN;
          fresh.mac = d.mac;
          fresh.ip = d.ip;
          fresh.port = d.port;
          fresh.una = d.ack;
          fresh.nxt = d.ack;
          fresh.max = d.ack;
          fresh.wl1 = d.seq;
          fresh.window = d.window;
          fresh.offered = d.seq + (RX_RING_BITS > 15 ? 32'hffff : 32'(1 << RX_RING_BITS));
          fresh.mss = mss_of(cookie_mss);
          fresh.cwnd = 17'(mss_of(cookie_mss)) * 17'd10;
          fresh.ssthresh = 17'h0ffff;
          fresh.rto = 16'(RTO_FIRST_MS);
          tcbs[slot] <= fresh;
          count_opened <= count_opened + 32'd1;
          count_open <= count_open + 1'b1 - (S + 1)'(release_valid);
          kicked[slot] <= 1'b1;
        end
      end
    endcase

    if (tick) begin
      now <= now + 16'd1;
      if (now[12:0] == '1) epoch <= epoch + 5'd1;  // 8.2 s
      late_tick <= |tick_due;
      tick_due <= ~over;
    end
    if (rst) begin
      phase <= IDLE;
      kicked <= '0;
      tick_due <= '0;
      free <= '1;
      dead <= '0;
      shut <= '0;
      wanted <= 1'b0;
      late_tick <= 1'b0;
      turn <= 1'b0;
      now <= '0;
      epoch <= '0;
      app_from <= '0;
      count_opened <= '0;
      count_open <= '0;
      count_retransmitted <= '0;
      count_reset <= '0;
    end
  end

  // ---- out: a session's segment from SEND, or an answer without a session ----
  assign busy = phase != IDLE || open;
  assign seg = plain_valid ? plain : own;
  assign seg_session = index;
  assign seg_valid = (phase == SEND && emit) || plain_valid;

endmodule
