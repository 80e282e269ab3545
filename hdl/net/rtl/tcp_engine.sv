// Holds the TCP state of every session, and makes all decisions about it (RFC 9293). One event at a
// time: a received segment, an application that has written, read or closed, or a tick of the
// timers. An event reads the session's record, updates it, writes it back,
// and sends at most one segment.
//
// Peers open connections with SYN cookies (RFC 4987 section 3.6): a SYN is replied to without
// storing state, so that SYN floods exhaust no memory.
// A session exists from the first valid ACK on.
// The board opens connections one at a time: initial sequence numbers by RFC 6528, ports by
// algorithm 3 of RFC 6056; simultaneous open is supported. `connect_valid` and its operands are
// held until `connect_done`.
//
// Loss: fast retransmit after three duplicate ACKs with NewReno's partial ACKs (RFC 6582), once for
// the data sent before it or before a timeout; go-back-N after a timeout (RFC 6298, minimum 200 ms
// as in Linux). Congestion window: RFC 5681, initial window RFC 6928. Resets and SYNs into a
// session are checked by RFC 5961.
//
// Time is the input `tick`, once per millisecond of the peers' time: from a clock divider on a real
// board, from the wall clock in the live model. Each tick scans the sessions with running timers,
// and every 64th tick all sessions, to count time without progress. Progress is: data that begins a
// request; 4 KB of data within a request (`mid_request`); an acknowledgment of all data that the
// application has written, or of 4 KB of it. Single bytes are not progress. The idle timeout is
// IDLE_MS, and REQUEST_MS within a request.
//
// A connection that finds no free session evicts a session whose request takes REQUEST_WANTED_MS or
// longer, or the session with the longest time without progress, if that is at least
// IDLE_WANTED_MS. The session is closed if data of a reply is in flight, otherwise reset; then the
// engine waits up to 128 cycles for the application to release the session, and opens it for the
// new connection. Otherwise the peer retransmits, and meanwhile the oldest session yields: it closes
// after its present reply, and has REQUEST_WANTED_MS to take that (tcp_evict).
//
// The engine and the application notify each other of changes of a session's positions, and each
// stores the values that it needs, so that all state is in memories,
// each of which is written in one place.
//
// An event takes eight pipeline steps of a cycle each, so that no step is longer than two
// additions: values compared in a step are registered before the next step uses the result.
//
// Windows are scaled (RFC 7323) if the peer supports it: the own shift follows from the ring's
// size; for the peer's shift, the cookie stores 0, 4 or 7, rounded down, which makes the peer's
// windows appear smaller than they are.
//
// Sequence comparisons use ring-width arithmetic, except on wire fields.
//
// Parameters: SESSIONS, a power of two of at least 16; RX_RING_BITS and TX_RING_BITS, log2 of a
// ring's bytes; WINDOW, the most bytes that a session offers to receive; MSS; SCALE, the own shift;
// ACTIVE_OPEN, whether the board opens connections (otherwise `connect_valid` is ignored); the
// limits in ms.
// Latency: 8 cycles from a descriptor to the segment; 8 cycles per event, 20 with a cookie,
// 26 to open a session.
module tcp_engine
  import net_pkg::*;
  import tcp_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int WINDOW = 1 << RX_RING_BITS,
    parameter  int TX_RING_BITS = 21,
    parameter  int MSS = 1460,
    parameter  int SCALE = RX_RING_BITS > 15 ? RX_RING_BITS - 15 : 0,
    parameter  bit ACTIVE_OPEN = 1,
    parameter  int IDLE_MS = 60000,         // idle timeout of a session; 0: never
    parameter  int REQUEST_MS = 10000,      // the same within a request
    parameter  int IDLE_WANTED_MS = 1000,   // after which a session may be evicted
    parameter  int REQUEST_WANTED_MS = 5000,  // the same for a request, whatever its progress
    parameter  int LINGER_MS = 5000,        // after the own FIN; then the session is reset
    parameter  int LINGER_WANTED_MS = 1500, // the same for eviction: long enough for a
                                            // retransmission (RTO_FIRST_MS)
    parameter  int TIME_WAIT_MS = 500,
    parameter  int DELAYED_ACK_MS = 5,
    localparam int S = $clog2(SESSIONS),
`include "tcp_widths.svh"
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                tick,
    input  logic         [63:0] secret,     // of the cookies
    input  logic         [15:0] listen_port,
    input  logic                reserve,    // one session is kept free for connections that the
                                            // board opens
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
    // to tcp_rx: the position at which a stream begins, or that there is none;
    // the sent and read positions
    output logic                begun,
    output logic                begun_ended,
    output logic         [S-1:0] begun_at,
    output logic         [31:0] begun_next, // the peer's first byte
    output logic                sent_write,
    output logic         [S-1:0] sent_at,
    output logic         [31:0] sent_to,
    output logic                read_write,
    output logic         [S-1:0] read_at,
    output logic         [31:0] read_to,
    input  received_t           received,   // notifications of tcp_rx about a stream
    // the lookup
    output logic                change_valid,
    output logic                change_remove,
    output logic         [63:0] change_key,
    output logic         [S-1:0] change_index,
    input  logic                changed,
    input  logic                refused,
    // the application
    output opened_t             opened,
`include "net_application_ports.svh"
    // connections that the board opens
    input  logic                connect_valid,
    input  logic         [47:0] connect_mac,
    input  logic         [31:0] connect_ip,
    input  logic         [15:0] connect_port,
    output logic                connect_done,
    output connect_result_t     connect_result,
    // segments to tcp_tx
    output logic                seg_valid,
    input  logic                seg_ready,  // space for two
    input  logic                seg_free,   // and enough that replies without a session may fill
                                            // some of it
    output segment_t            seg,
    output logic        [S-1:0] seg_session,
    output logic                busy,       // processing an event, or opening a session
    output net_counts_t         counts
);

  logic own_clk;  // gated while no state changes
  logic open, open_active;
  logic [S-1:0] open_at;
  logic [31:0] open_next, open_una, count_opened, count_retransmitted, count_reset;
  logic [S:0] count_open;

`include "tcp_types.svh"

  if (SESSIONS != 1 << S || SESSIONS < 16 || SESSIONS > 1024) $error("SESSIONS must be a power of two from 16 to 1024");

  phase_t phase;
  event_t kind;
  logic [S-1:0] index;
  head_t head;
  logic hit, kept, gap, fin_in, exact, in_window, nearby;
  logic [15:0] now, epoch;  // in ms, and in 8.2 s
  logic [S:0] born;  // sessions that were ever used
  logic turn;     // segments and other events alternate
  logic wanted;   // a connection found no free session
  logic evicting; // the event is the eviction of a session
  logic [6:0] slot_wait;
  logic [S-1:0] laggard;  // the session to evict, if `laggard_over`
  logic laggard_over;
  // Few sessions are free. Sessions in TIME_WAIT then end at the next tick: a peer that has not
  // received the last ACK gets a reset for its FIN, which ends a connection that it has closed.
  logic crowded;

  // The record when read, after STEP, and after sending.
  tcb_t record, stepped, sent;

  // Records are written in one place, so that they fit a memory with one write port: block RAM,
  // because records are wide, and distributed memory would take more logic than the processing.
  // Block RAM has a read latency: a record is read in the cycle in which its event is chosen, in
  // which no record is written.
  (* ram_style = "block", no_rw_check = 1 *) tcb_t tcbs[SESSIONS];
  logic tcb_write, births;  // births: in this cycle, of a session
  logic [S-1:0] tcb_at, chosen;
  tcb_t tcb_in, tcb_read;
  (* ram_style = "block", no_rw_check = 1 *) peer_t peers[SESSIONS];
  peer_t peer, peer_read;
  always_ff @(posedge own_clk) begin
    if (tcb_write) tcbs[tcb_at] <= tcb_in;
    if (births) peers[tcb_at] <= '{mac: head.mac, ip: head.ip, port: head.port, own_port: head.own_port};
    tcb_read <= tcbs[chosen];
    peer_read <= peers[chosen];
    if (phase == LOAD) begin
      record <= tcb_read;
      peer <= peer_read;
    end
  end

  // The state reported by the application; for a session that begins, the engine writes it.
  report_t reports[SESSIONS], report, report_in;
  logic begins;  // in this cycle, the peer's stream of a session that the board opens
  logic report_write;
  logic [S-1:0] report_at;
  logic [31:0] report_read_to;

  // The state reported by tcp_rx.
  stream_t streams[SESSIONS], stream_read;

  always_ff @(posedge own_clk) begin
    if (report_write) reports[report_at] <= report_in;
    if (received.valid) streams[received.session[S-1:0]] <= '{ended: received.ended, next: received.next};
    if (phase == LOAD) begin
      report <= reports[index];
      stream_read <= streams[index];
    end
  end

  assign read_write = report_write;
  assign read_at = report_at;
  assign read_to = report_read_to;

  // ---- the events of a session: the application's, and ticks ----
  logic app_chosen, app_taken, app_busy, kick, tick_chosen, tick_taken, late_tick, due_slow, tick_slow, timers_busy;
  logic [S-1:0] app_next, kick_at, tick_first;
  logic alert;

  tcp_pending #(
      .SESSIONS(SESSIONS)
  ) u_pending (
      .clk(own_clk),
      .rst,
      .report_valid(progress.valid),
      .report_at   (progress.session[S-1:0]),
      .kick,
      .kick_at,
      .chosen      (app_chosen),
      .next        (app_next),
      .taken       (app_taken),
      .busy        (app_busy)
  );

  tcp_timers #(
      .SESSIONS(SESSIONS)
  ) u_timers (
      .clk(own_clk),
      .rst,
      .tick,
      .born,
      .alert_write(phase == SEND),
      .alert_at   (index),
      .alert,
      .chosen     (tick_chosen),
      .first      (tick_first),
      .due_slow,
      .late       (late_tick),
      .taken      (tick_taken),
      .now,
      .epoch,
      .busy       (timers_busy)
  );

  // ---- free sessions ----
  logic reclaim, slot_free, slot_taken;
  logic [S-1:0] slot, reclaim_at;

  tcp_slots #(
      .SESSIONS(SESSIONS)
  ) u_slots (
      .clk(own_clk),
      .rst,
      .release_valid(released.valid || reclaim),
      .release_at   (released.valid ? released.session[S-1:0] : reclaim_at),
      .hold         (phase inside {ADD, BIRTH}),
      .taken        (slot_taken),
      .slot_free,
      .slot,
      .born
  );

  // ---- segments without a session ----
  logic cookie_done, checked, cookie_late, cookie_right, cookie_syn, cookie_ack, cookie_busy, plain_valid, connect_start, connect_again;
  logic [31:0] cookie_hash;
  logic [1:0] cookie_scaling;
  logic [2:0] cookie_mss;
  segment_t plain, own;  // a reply without a session, and a segment of a session

  tcp_handshake #(
      .RX_RING_BITS(RX_RING_BITS),
      .WINDOW      (WINDOW),
      .TX_RING_BITS(TX_RING_BITS),
      .MSS         (MSS),
      .ACTIVE_OPEN (ACTIVE_OPEN)
  ) u_handshake (
      .clk(own_clk),
      .rst,
      .phase,
      .head,
      .secret,
      .listen_port,
      .epoch,
      .connect_start,
      .connect_again,
      .syn    (cookie_syn),
      .ack    (cookie_ack),
      .done   (cookie_done),
      .hash   (cookie_hash),
      .checked,
      .late   (cookie_late),
      .right  (cookie_right),
      .scaling(cookie_scaling),
      .mss    (cookie_mss),
      .plain_valid,
      .plain,
      .busy   (cookie_busy)
  );

  // ---- the event's effect on the record, and what is sent ----
  logic [31:0] stream, una, recover;
  tx_t out_end, flight;
  rx_t offered_left, window_span;
  logic stream_ended, in_work, overlong, gone, ours, dies, wakes, wakes_q, opening, emit, go_on, repeats, repeated;
  logic [15:0] window_out;
  effect_t effect, effect_q;

  // A session may have ended, and its slot been reused, since the segment arrived.
  assign gone = record.state == DEAD;
  assign ours = hit && !gone && peer.ip == head.ip && peer.port == head.port && peer.own_port == head.own_port &&
      !(ACTIVE_OPEN && record.state == SYN_SENT && head.flags[ACK] && head.ack != record.nxt);

  tcp_step #(
      .RX_RING_BITS    (RX_RING_BITS),
      .WINDOW          (WINDOW),
      .TX_RING_BITS    (TX_RING_BITS),
      .MSS             (MSS),
      .SCALE           (SCALE),
      .ACTIVE_OPEN     (ACTIVE_OPEN),
      .IDLE_MS         (IDLE_MS),
      .REQUEST_MS      (REQUEST_MS),
      .IDLE_WANTED_MS  (IDLE_WANTED_MS),
      .REQUEST_WANTED_MS(REQUEST_WANTED_MS),
      .LINGER_MS       (LINGER_MS),
      .LINGER_WANTED_MS(LINGER_WANTED_MS),
      .TIME_WAIT_MS    (TIME_WAIT_MS),
      .DELAYED_ACK_MS  (DELAYED_ACK_MS)
  ) u_step (
      .clk(own_clk),
      .phase,
      .kind,
      .head,
      .kept,
      .gap,
      .fin_in,
      .exact,
      .in_window,
      .nearby,
      .record_bits (record),
      .report_bits (report),
      .stream_in   (stream_read),
      .mid_request (mid_request[index]),
      .working     (working[index]),
      .yields      (yields[index]),
      .now,
      .tick_slow,
      .evicting,
      .wanted,
      .crowded,
      .stream,
      .stream_ended,
      .out_end,
      .offered_left,
      .flight,
      .in_work,
      .overlong,
      .stepped_bits(stepped),
      .effect,
      .window_out,
      .window_span
  );

  tcp_transmit #(
      .RX_RING_BITS(RX_RING_BITS),
      .WINDOW      (WINDOW),
      .TX_RING_BITS(TX_RING_BITS),
      .MSS         (MSS),
      .ACTIVE_OPEN (ACTIVE_OPEN)
  ) u_transmit (
      .clk(own_clk),
      .phase,
      .kind,
      .fin_in,
      .now,
      .peer,
      .stepped_bits(stepped),
      .effect,
      .stream,
      .stream_ended,
      .out_end,
      .offered_left,
      .window_out,
      .window_span,
      .dies,
      .wakes,
      .effect_q,
      .opening,
      .una,
      .recover,
      .emit,
      .own,
      .sent_bits(sent),
      .go_on,
      .alert,
      .repeats
  );

  // ---- room for connections that find no free session ----
  logic full, kept_free;  // in this cycle, such a connection; a free session is kept for another
  logic connects;         // the event belongs to a connection that the board opens

  // A closed session also ends once its FIN is acknowledged, because its peer may never close, or if
  // its peer does not read its reply in time.
  tcp_evict #(
      .SESSIONS (SESSIONS),
      .WANTED_MS(IDLE_WANTED_MS)
  ) u_evict (
      .clk(own_clk),
      .rst,
      .tick_64       (tick && &now[5:0]),
      .scan          (phase == STEP && kind == EVENT_TICK && tick_slow),
      .scan_at       (index),
      .scan_evictable(record.state == OPEN && (!record.closing || flight == '0 || overlong) && !in_work),
      .scan_lag      (overlong ? {2'b11, record.busy} : record.idle),
      .scan_closable (IDLE_MS != 0 && record.state == OPEN && !record.closing),
      .scan_age      (record.age),
      .laggard,
      .laggard_over,
      .evicts        (phase == EVICT),
      .look          (phase == STRANGER),
      .address       ({head.ip, head.port}),
      .refused       (full && !laggard_over),
      .kept          (kept_free),
      .birth         (births),
      .birth_at      (slot),
      .birth_active  (connects),
      .yields
  );

  // ---- the machine ----
  logic choose_segment, choose_other, choose_connect, takes_tick, settled_down, connecting, spare;
  logic [1:0] connect_tries;
  logic [13:0] port_from;
  tcb_t fresh;
  // If segments of application and timers filled the output,
  // received segments would wait for it and be dropped.
  assign choose_other = (app_chosen || tick_chosen) && seg_free;
  assign choose_connect = ACTIVE_OPEN && connect_valid && !connecting && !connect_done && !desc_valid;
  assign choose_segment = desc_valid && (turn || !choose_other);
  // A change of the lookup, or an unfinished part of an event,
  // completes before the next event begins.
  assign settled_down = !change_valid && !kick;
  assign desc_ready = phase == IDLE && seg_ready && choose_segment && settled_down;
  assign app_taken = phase == IDLE && seg_ready && settled_down && !choose_segment && choose_other && !takes_tick;
  assign tick_taken = phase == IDLE && seg_ready && settled_down && !choose_segment && choose_other && takes_tick;
  // Timers can wait for a while, but not indefinitely.
  assign takes_tick = tick_chosen && (!app_chosen || late_tick);
  assign chosen = choose_segment && !evicting ? desc_index : evicting ? laggard : takes_tick ? tick_first : app_next;
  assign connect_start = phase == IDLE && seg_ready && settled_down && !choose_segment && !choose_other && choose_connect;
  assign connect_again = phase == ADD && changed && refused && connects && connect_tries != '0;
  // One write at a time to the state reported by the application.
  assign births = phase == BIRTH && !progress.valid;
  assign begins = phase == BEGIN && !progress.valid;
  assign slot_taken = births;
  assign spare = slot_free && (S + 1)'(reserve) + (S + 1)'(kept_free && phase == CHECK) + count_open < (S + 1)'(SESSIONS);
  assign full = phase == CHECK && checked && !cookie_late && cookie_right && !spare;

  always_comb begin
    fresh = 'x;
    if (phase == BIRTH) fresh = '0;
    fresh.state = connects ? SYN_SENT : OPEN;
    fresh.una = connects ? head.ack - 32'd1 : head.ack;
    fresh.nxt = head.ack;
    fresh.max = head.ack;
    fresh.wl1 = head.seq;
    fresh.window = head.window;
    fresh.scaling = cookie_scaling;
    fresh.offered = rx_t'(head.seq + 32'(first_offer(WINDOW)));
    fresh.mss = mss_of(cookie_mss);
    fresh.cwnd = first_window(cookie_mss);
    fresh.ssthresh = CwndMost;
    fresh.rto = 16'(RTO_FIRST_MS);
    fresh.timing = connects;
    fresh.timed = tx_t'(head.ack);
    fresh.timed_from = now;
    tcb_write = phase == SEND || births;
    tcb_at = phase == SEND ? index : slot;
    tcb_in = phase == SEND ? sent : fresh;
    report_write = progress.valid || births || begins;
    report_at = progress.valid ? progress.session[S-1:0] : births ? slot : index;
    report_read_to = progress.valid ? progress.read_to : births ? head.seq : recover;
    report_in = '{finish: progress.valid && progress.finish, read_to: rx_t'(report_read_to),
                written_to: tx_t'(progress.valid ? progress.written_to : births ? head.ack : una)};
  end

  assign sent_write = tcb_write;
  assign sent_at = tcb_at;
  assign sent_to = tcb_in.max;
  assign change = '{
    valid:   phase == SEND && !opening,
    session: session_t'(index),
    una:     sent.una,
    dead:    effect_q.die,
    shut:    sent.closing,
    wake:    wakes_q
  };
  assign opened = '{valid: open, active: open_active, session: session_t'(open_at), next: open_next, una: open_una};
  assign counts = '{
    opened:        count_opened,
    retransmitted: count_retransmitted,
    reset:         count_reset,
    open:          11'(count_open)
  };

  always_ff @(posedge own_clk) begin
    open <= 1'b0;
    begun <= 1'b0;
    connect_done <= 1'b0;
    repeated <= 1'b0;
    crowded <= count_open > (S + 1)'(SESSIONS - SESSIONS / 4);
    if (!progress.valid) kick <= 1'b0;
    if (!released.valid) reclaim <= 1'b0;
    if (changed) change_valid <= 1'b0;
    count_open <= count_open + (S + 1)'(births) - (S + 1)'(released.valid || reclaim);
    if (repeated) count_retransmitted <= count_retransmitted + 32'd1;

    case (phase)
      IDLE:
      if (seg_ready && settled_down) begin
        if (choose_segment || choose_other) index <= chosen;
        if (choose_segment) begin
          turn <= 1'b0;
          kind <= EVENT_SEGMENT;
          head <= desc_head;
          hit <= desc_hit;
          kept <= desc_kept;
          gap <= desc_gap;
          fin_in <= desc_fin;
          exact <= desc_exact;
          in_window <= desc_inside;
          nearby <= desc_near;
          phase <= LOAD;
        end else if (choose_other) begin
          turn <= 1'b1;
          hit <= 1'b1;
          phase <= LOAD;
          if (takes_tick) begin
            kind <= EVENT_TICK;
            tick_slow <= due_slow;
          end else kind <= EVENT_APP;
        end else if (choose_connect) begin
          head.mac <= connect_mac;
          head.ip <= connect_ip;
          head.port <= connect_port;
          head.own_port <= '0;
          head.seq <= '0;
          head.window <= 16'd1;  // not closed
          connect_tries <= 2'(CONNECT_TRIES);
          phase <= PORT;
        end
      end
      LOAD: phase <= COMPARE;
      COMPARE:
      if (kind == EVENT_SEGMENT && !ours) phase <= STRANGER;
      else if (gone) begin
        phase <= IDLE;
        evicting <= 1'b0;
      end
      else phase <= STEP;
      STEP: phase <= ENDS;
      ENDS: begin
        phase <= LENGTH;
        wakes_q <= wakes;
        // Notified before the change is computed; it may be empty.
        change_valid <= dies;
        change_remove <= 1'b1;
        change_key <= {peer.ip, peer.port, peer.own_port};
      end
      LENGTH: begin
        phase <= FLAGS;
        if (effect_q.die && effect_q.reset) count_reset <= count_reset + 32'd1;
      end
      FLAGS: phase <= SEND;
      SEND: begin
        if (go_on && !effect_q.die) begin
          kick <= 1'b1;
          kick_at <= index;
        end
        repeated <= repeats;
        phase <= effect_q.begins || effect_q.establishes ? BEGIN : evicting && effect_q.die && !connects ? WAIT_SLOT : IDLE;
        evicting <= 1'b0;
        slot_wait <= '1;
        if (opening && effect_q.die) begin
          reclaim <= 1'b1;
          reclaim_at <= index;
          connecting <= 1'b0;
          connect_done <= 1'b1;
          connect_result <= kind == EVENT_TICK ? CONNECT_TIMED_OUT : CONNECT_REFUSED;
        end
      end
      BEGIN:
      if (ACTIVE_OPEN && begins) begin
        phase <= IDLE;
        begun <= 1'b1;
        begun_ended <= !effect_q.establishes;
        begun_at <= index;
        begun_next <= recover;
        open <= effect_q.establishes;
        open_active <= 1'b1;
        open_at <= index;
        open_next <= recover;
        open_una <= una;
        if (effect_q.establishes) begin
          connecting <= 1'b0;
          connect_done <= 1'b1;
          connect_result <= CONNECT_OK;
          count_opened <= count_opened + 32'd1;
        end
      end
      STRANGER: begin
        // Without a session: a new connection, or a segment of an ended one.
        connects <= 1'b0;
        phase <= cookie_syn ? COOKIE : cookie_ack ? CHECK : IDLE;
      end
      COOKIE:
      if (cookie_done) phase <= IDLE;
      CHECK:
      if (checked) begin
        phase <= IDLE;
        if (!cookie_late && cookie_right && spare) phase <= ADD;
        else if (full) begin
          wanted <= 1'b1;  // no free session: the peer will retransmit
          if (laggard_over) begin
            phase <= EVICT;
            evicting <= 1'b1;
          end
        end
        // Possibly a later segment of a connection whose first one was lost: the peer starts again.
      end
      EVICT: begin
        index <= laggard;
        kind <= EVENT_TICK;
        tick_slow <= 1'b0;
        phase <= LOAD;
      end
      WAIT_SLOT: begin
        slot_wait <= slot_wait - 7'd1;
        if (spare && !change_valid) phase <= ADD;
        else if (slot_wait == '0) phase <= IDLE;
      end
      PORT:
      if (ACTIVE_OPEN && cookie_done) begin
        // From the upper half of IANA's dynamic ports.
        head.own_port <= {2'b11, cookie_hash[13:0] + port_from};
        port_from <= port_from + 14'd1;
        phase <= NUMBER;
      end
      NUMBER:
      if (ACTIVE_OPEN && cookie_done) begin
        // Increments about once per 4 µs.
        head.ack <= cookie_hash + {epoch[10:0], now[12:0], 8'd0} + 32'd1;
        connects <= 1'b1;
        connect_tries <= connect_tries - 2'd1;
        if (slot_free) phase <= ADD;
        else begin
          phase <= IDLE;
          wanted <= 1'b1;
          if (laggard_over) begin
            phase <= EVICT;
            evicting <= 1'b1;
          end
          connect_done <= 1'b1;
          connect_result <= CONNECT_FULL;
        end
      end
      ADD: begin
        change_valid <= !changed;
        change_remove <= 1'b0;
        change_key <= {head.ip, head.port, head.own_port};
        change_index <= slot;
        if (changed) begin
          phase <= BIRTH;
          if (refused) begin
            phase <= IDLE;
            if (!connects) wanted <= 1'b1;
            else if (connect_tries != '0) begin
              head.own_port <= '0;
              phase <= PORT;
            end else begin
              connect_done <= 1'b1;
              connect_result <= CONNECT_FULL;
            end
          end
        end
      end
      default:  // BIRTH
      if (births) begin
        phase <= IDLE;
        begun <= 1'b1;
        begun_ended <= connects;
        begun_at <= slot;
        begun_next <= head.seq;
        open <= !connects;
        open_active <= 1'b0;
        open_at <= slot;
        open_next <= head.seq;
        open_una <= head.ack;
        connecting <= connecting || connects;
        kick <= 1'b1;
        kick_at <= slot;
        if (!connects) begin
          wanted <= 1'b0;
          count_opened <= count_opened + 32'd1;
        end
      end
    endcase

    if (rst) begin
      phase <= IDLE;
      change_valid <= 1'b0;
      connecting <= 1'b0;
      kick <= 1'b0;
      reclaim <= 1'b0;
      wanted <= 1'b0;
      evicting <= 1'b0;
      turn <= 1'b0;
      port_from <= '0;
      count_opened <= '0;
      count_open <= '0;
      count_retransmitted <= '0;
      count_reset <= '0;
    end
  end

  // ---- output: a session's segment from SEND, or a reply without a session ----
  assign busy = phase != IDLE || begun || change_valid;
  assign seg = plain_valid ? plain : own;
  assign seg_session = index;
  assign seg_valid = (phase == SEND && emit) || plain_valid;

  clock_gate u_gate (
      .clk,
      .wake (rst || tick || received.valid || desc_valid || progress.valid || app_busy || released.valid || reclaim || kick ||
             (ACTIVE_OPEN && connect_valid) || phase != IDLE || change_valid || cookie_busy || repeated || begun || open ||
             connect_done || timers_busy),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  changes_stay : assert property (@(posedge clk) disable iff (rst)
      change_valid && !changed |=> change_valid && $stable({change_remove, change_key}));
  sessions_are_bounded : assert property (@(posedge clk) disable iff (rst)
      count_open <= (S + 1)'(SESSIONS));
  born_sessions_were_free : assert property (@(posedge clk) disable iff (rst) births |-> slot_free);
  released_sessions_were_open : assert property (@(posedge clk) disable iff (rst)
      released.valid || reclaim |-> count_open != '0);
  one_segment : assert property (@(posedge clk) disable iff (rst)
      !(phase == SEND && emit && plain_valid));
  segments_have_place : assert property (@(posedge clk) disable iff (rst) desc_ready |-> seg_ready);
  connects_are_pending : assert property (@(posedge clk) disable iff (rst)
      connect_done |-> connect_valid);
  one_event : assert property (@(posedge clk) disable iff (rst)
      $onehot0({desc_ready && desc_valid, app_taken, tick_taken, connect_start}));
`endif

endmodule
