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
// A connection that finds no free session evicts the session with the longest time without
// progress, if that is at least IDLE_WANTED_MS. The session is closed if data of a reply is in
// flight, otherwise reset; then the engine waits up to 128 cycles for the application to release
// the session, and opens it for the new connection. Otherwise the peer retransmits.
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
// ring's bytes; MSS; SCALE, the own shift; ACTIVE_OPEN, whether the board opens connections
// (otherwise `connect_valid` is ignored); the limits in ms.
// Latency: 8 cycles from a descriptor to the segment; 8 cycles per event, 20 with a cookie,
// 26 to open a session.
module tcp_engine
  import net_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MSS = 1460,
    parameter  int SCALE = RX_RING_BITS > 15 ? RX_RING_BITS - 15 : 0,
    parameter  bit ACTIVE_OPEN = 1,
    parameter  int IDLE_MS = 60000,         // idle timeout of a session; 0: never
    parameter  int REQUEST_MS = 10000,      // the same within a request
    parameter  int IDLE_WANTED_MS = 1000,   // after which a session may be evicted
    parameter  int LINGER_MS = 5000,        // after the own FIN; then the session is reset
    parameter  int LINGER_WANTED_MS = 1500, // the same for eviction: long enough for a
                                            // retransmission (RTO_FIRST_MS)
    parameter  int TIME_WAIT_MS = 500,
    parameter  int DELAYED_ACK_MS = 5,
    localparam int S = $clog2(SESSIONS)
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
    output session_change_t     change,
    input  progress_t           progress,
    input  release_t            released,
    input  logic [SESSIONS-1:0] working,      // the application works on these: they are not idle
    input  logic [SESSIONS-1:0] mid_request,  // a request of these has begun, without a complete
                                              // reply
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

  localparam int RTO_FIRST_MS = 1000;  // RFC 6298 section 2
  localparam int RTO_LEAST_MS = 200;
  localparam int RTO_LOST_SYN_MS = 3000;  // section 5.7
  localparam int RTO_MOST_MS = 60000;
  localparam int RETRIES = 7;
  localparam int CONNECT_RETRIES = 3;  // 15 s
  localparam int CONNECT_TRIES = 3;    // ports
  localparam int PROGRESS_BITS = 12;   // log2 of the bytes that count as progress
  localparam int GROUPS = SESSIONS / 16;
  localparam int G = GROUPS > 1 ? $clog2(GROUPS) : 1;

  if (SESSIONS != 1 << S || SESSIONS < 16 || SESSIONS > 1024) $error("SESSIONS must be a power of two from 16 to 1024");

  typedef enum logic [2:0] {
    DEAD,
    OPEN,
    TIME_WAIT,
    SYN_SENT,
    SYN_RECEIVED
  } state_t;

  // Idle time is counted in units of 64 ms.
  function automatic logic [9:0] slow(input int ms);
    return 10'((ms + 63) / 64);
  endfunction

  // Differences of positions in the received and in the sent stream, whose FIN counts as a byte;
  // they may be negative.
  localparam int RxBits = RX_RING_BITS + 2;
  localparam int TxBits = TX_RING_BITS + 2;
  typedef logic [RxBits-1:0] rx_t;
  typedef logic [TxBits-1:0] tx_t;
  // A congestion window: the data in flight never exceeds the ring, or 2 MB.
  localparam int CwndBits = TX_RING_BITS < 21 ? TX_RING_BITS + 1 : 22;
  typedef logic [CwndBits-1:0] cwnd_t;
  localparam cwnd_t CwndMost = '1 >> 1;
  localparam int RecoverBits = ACTIVE_OPEN ? 32 : TxBits;

  typedef struct packed {
    state_t      state;
    logic [31:0] una, nxt, max;    // oldest not acknowledged; next to send; after the last ever
                                   // sent
    logic [31:0] wl1;              // the segment that last updated the window
    logic [15:0] window;           // unscaled, as received
    logic [1:0]  scaling;          // 0: no scaling, otherwise index of `shift_of`
    rx_t         offered;          // the right edge of the last advertised window
    logic [13:0] mss;
    cwnd_t       cwnd, ssthresh, grown;
    logic [1:0]  dups;
    logic        recovering;       // by fast retransmit
    logic        repeating;        // until more than `recover` is acknowledged: duplicate ACKs may
                                   // result from retransmitted data
    logic [RecoverBits-1:0] recover;  // the end of the data sent before a loss; until the session
                                      // is open, the peer's first byte
    logic        closing, active;  // the own stream ends at fin_at; this side closed first
    tx_t         fin_at;
    logic        timing;           // a segment is being timed
    tx_t         timed;
    logic [15:0] timed_from;
    logic        measured;
    logic [18:0] srtt;             // in 1/8 ms
    logic [17:0] rttvar;           // in 1/4 ms
    logic [15:0] rto, timer;
    logic [3:0]  retries;
    logic [1:0]  unacked;          // segments received since the last own ACK
    logic [7:0]  ack_wait;
    logic [3:0]  progress;         // position in the peer's stream at the last progress, in 4 KB
    logic [9:0]  idle;             // time without progress, in 64 ms
  } tcb_t;

  // The peer's addresses, constant for the lifetime of a session.
  typedef struct packed {
    logic [47:0] mac;
    logic [31:0] ip;
    logic [15:0] port, own_port;
  } peer_t;

  typedef enum logic [4:0] {
    IDLE,
    LOAD,      // the record and the other modules' state of the session
    COMPARE,   // differences between these and the segment
    STEP,      // the record after the event
    ENDS,      // timers, and the end of the session
    LENGTH,    // the amount of data to send
    FLAGS,
    SEND,      // sends the segment, writes the record back
    BEGIN,     // the peer's stream begins
    STRANGER,  // a segment without a session
    COOKIE,
    CHECK,
    PORT,      // chooses the port of a connection that the board opens
    NUMBER,    // its initial sequence number
    EVICT,     // evicts a session,
    WAIT_SLOT, // waits until the application releases it
    ADD,       // adds a session's key to the lookup
    BIRTH
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
  logic [15:0] now;
  logic turn;     // segments and other events alternate
  logic wanted;   // a connection found no free session
  logic evicting; // the event is the eviction of a session
  logic [6:0] slot_wait;
  // The session with the longest time without progress in the last scan, and that time.
  logic [S-1:0] laggard;
  logic [9:0] laggard_idle;
  logic laggard_over;
  // Few sessions are free. Sessions in TIME_WAIT then end at the next tick: a peer that has not
  // received the last ACK gets a reset for its FIN, which ends a connection that it has closed.
  logic crowded;

  // The record when read, after STEP, after ENDS, and after sending.
  tcb_t t, n, settled, m, o;

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
    if (births) peers[tcb_at] <= '{mac: d.mac, ip: d.ip, port: d.port, own_port: d.own_port};
    tcb_read <= tcbs[chosen];
    peer_read <= peers[chosen];
    if (phase == LOAD) begin
      t <= tcb_read;
      peer <= peer_read;
    end
  end

  // The state reported by the application; for a session that begins, the engine writes it.
  typedef struct packed {
    logic finish;
    rx_t  read_to;
    tx_t  written_to;
  } report_t;
  report_t reports[SESSIONS], report, report_in;
  logic begins;  // in this cycle, the peer's stream of a session that the board opens
  logic report_write;
  logic [S-1:0] report_at;
  logic [31:0] report_read_to;

  // The state reported by tcp_rx.
  typedef struct packed {
    logic        ended;
    logic [31:0] next;
  } stream_t;
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

  // ---- sessions with a pending event of the application ----
  // A queue with each session at most once.
  // A session is in the queue if its two bits differ: one is toggled on entry, the other on exit.
  logic [S-1:0] queue[SESSIONS];
  logic came[SESSIONS], went[SESSIONS];
  logic [S:0] queue_head, queue_tail;
  logic app_chosen, app_taken, kick, enqueue, queued, push_again, wiping;
  logic [S-1:0] app_next, kick_at, push_at, wipe_at;

  assign push_at = progress.valid ? progress.session[S-1:0] : kick_at;
  assign queued = came[push_at] ^ went[push_at];
  assign push_again = app_taken && app_next == push_at;
  assign enqueue = (progress.valid || kick) && (!queued || push_again);

  always_ff @(posedge own_clk) begin
    // Both start equal.
    if (wiping || enqueue) came[wiping ? wipe_at : push_at] <= !wiping && !came[push_at];
    if (wiping || app_taken) went[wiping ? wipe_at : app_next] <= !wiping && !went[app_next];
    wipe_at <= wipe_at + 1'b1;
    if (wipe_at == '1) wiping <= 1'b0;
    if (enqueue) queue[queue_tail[S-1:0]] <= push_at;
    // The next entry is read a cycle ahead.
    if (app_taken) app_chosen <= 1'b0;
    else if (!app_chosen && queue_head != queue_tail) begin
      app_chosen <= 1'b1;
      app_next <= queue[queue_head[S-1:0]];
      queue_head <= queue_head + 1'b1;
    end
    if (enqueue) queue_tail <= queue_tail + 1'b1;
    if (rst) begin
      wiping <= 1'b1;
      wipe_at <= '0;
      app_chosen <= 1'b0;
      queue_head <= '0;
      queue_tail <= '0;
    end
  end

  // ---- free sessions: those that were released, and those that were never used ----
  logic [S-1:0] free_slots[SESSIONS];
  logic [S:0] free_head, free_tail, born;
  logic reclaim, slot_free, slot_taken, slot_born;  // born: never used before
  logic [S-1:0] slot, reclaim_at;

  always_ff @(posedge own_clk) begin
    slot_free <= (free_head != free_tail || born != (S + 1)'(SESSIONS)) && !slot_taken;
    // The session in which a connection is being opened is kept, because the lookup has its number.
    if (!(phase inside {ADD, BIRTH})) begin
      slot <= free_head != free_tail ? free_slots[free_head[S-1:0]] : born[S-1:0];
      slot_born <= free_head == free_tail;
    end
    if (released.valid || reclaim) begin
      free_slots[free_tail[S-1:0]] <= released.valid ? released.session[S-1:0] : reclaim_at;
      free_tail <= free_tail + 1'b1;
    end
    if (slot_taken) begin
      if (slot_born) born <= born + 1'b1;
      else free_head <= free_head + 1'b1;
    end
    if (rst) begin
      free_head <= '0;
      free_tail <= '0;
      born <= '0;
    end
  end

  // ---- the ticks: sessions are scanned, 16 at a time ----
  logic [15:0] alerts[1<<G];  // sessions with running timers
  logic [15:0] due, due_now, alert_now;
  logic [G-1:0] group, due_group;
  logic [5:0] slow_turn;
  logic scanning, tick_owed, late_tick, tick_chosen, tick_taken, slow_now, due_slow, tick_slow;
  logic [3:0] due_first;
  logic [S-1:0] tick_first;

  always_comb begin
    due_first = '0;
    for (int i = 15; i >= 0; i--) if (due[i]) due_first = 4'(i);
    slow_now = slow_turn == 6'(group);
    due_now = slow_now ? '1 : alerts[group];
    // Sessions that were used before.
    if (born[S:4] == (S - 3)'(group)) due_now &= ~(16'hffff << born[3:0]);
    else if (born[S:4] < (S - 3)'(group)) due_now = '0;
  end

  // ---- cookies: 3 bits of time, 3 of MSS, 2 of window scaling, 24 of hash ----
  // The hash covers the complete time, of which these are the last bits.
  logic cookie_start, cookie_done;
  logic [31:0] cookie_hash, irs;
  logic [15:0] epoch, cookie_epoch;
  logic [2:0] cookie_mss, cookie_age;
  logic [1:0] cookie_scaling, cookie_use;  // 0: a cookie, 2: a port, 3: a sequence number

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

  function automatic cwnd_t capped(input logic [22:0] v);
    return v > 23'(CwndMost) ? CwndMost : cwnd_t'(v);
  endfunction

  // Ten segments (RFC 6928).
  function automatic cwnd_t first_window(input logic [2:0] i);
    return capped(23'({mss_of(i), 3'b000}) + 23'({mss_of(i), 1'b0}));
  endfunction

  function automatic logic [22:0] unscaled(input logic [15:0] window, input logic [1:0] scaling);
    case (scaling)
      2'd3: return {window, 7'd0};
      2'd2: return {3'd0, window, 4'd0};
      default: return {7'd0, window};
    endcase
  endfunction

  function automatic logic [1:0] scaling_of(input logic scaled, input logic [3:0] shift);
    if (!scaled) return 2'd0;
    return shift >= 4'd7 ? 2'd3 : shift >= 4'd4 ? 2'd2 : 2'd1;
  endfunction

  // The initial window, unscaled.
  localparam logic [15:0] FirstWindow = RX_RING_BITS > 15 ? 16'hffff : 16'(1 << RX_RING_BITS);
  localparam logic [31:0] FirstOffer = 32'(FirstWindow);

  function automatic logic [2:0] mss_index(input logic [15:0] offered);
    mss_index = 3'd0;
    for (int i = 1; i < 8; i++)
    if (offered >= 16'(mss_of(3'(i))) && mss_of(3'(i)) <= 14'(MSS)) mss_index = 3'(i);
    // The default for a peer without the option is 536 (RFC 9293 section 3.7.1).
    if (offered == 16'd0) mss_index = 3'd1;
  endfunction

  tcp_cookie u_cookie (
      .clk(own_clk),
      .rst,
      .start  (cookie_start),
      .secret,
      .message({cookie_use, 9'd0, cookie_epoch, cookie_mss, cookie_scaling, irs, d.port, d.own_port, d.ip}),
      .done   (cookie_done),
      .hash   (cookie_hash)
  );

  // ---- LOAD and COMPARE ----
  logic [31:0] stream;   // received
  tx_t out_end;          // written by the application
  logic stream_ended, finished, gone;
  tx_t acked;
  logic acked_any, acked_far;  // any data; more than the size of the ring
  logic some_acked, whole;     // part of the data in flight, or all of it
  logic [TxBits:0] left;       // in flight and not acknowledged, negative if never sent
  tx_t flight, out;            // in flight
  logic out_long;              // half of the data in flight exceeds two segments
  rx_t used, offered_left;
  logic ack_beyond_next, ack_of_unsent, newer, same_window, sampled, slow_start, before_recover, at_recover;
  logic acked_all, acked_quantum, received_quantum, in_request;  // progress
  logic idle_over, wanted_over, linger_over, wait_over, in_work, timing_out, timer_runs, ack_due, shut, opens;  // shut: the peer's window; opens: it does
  logic [15:0] took, took_q;
  logic signed [18:0] took_more;  // difference from the mean round trip
  logic signed [CwndBits:0] to_grow;    // data to be acknowledged until the window grows by a
                                        // segment
  logic ours;

  // A session may have ended, and its slot been reused, since the segment arrived.
  assign gone = t.state == DEAD;
  assign ours = hit && !gone && peer.ip == d.ip && peer.port == d.port && peer.own_port == d.own_port &&
      !(ACTIVE_OPEN && t.state == SYN_SENT && d.flags[ACK] && d.ack != t.nxt);
  assign took = now - t.timed_from;
  assign out = tx_t'(t.max) - tx_t'(t.una);
  assign left = (TxBits + 1)'(t.max) - (TxBits + 1)'(d.ack);

  // Difference of positions that are at most a ring apart.
  function automatic logic earlier(input tx_t a, input tx_t b);
    tx_t difference;
    difference = a - b;
    return difference[TxBits-1];
  endfunction

  always_ff @(posedge own_clk) begin
    if (phase == COMPARE) begin
      acked <= tx_t'(d.ack) - tx_t'(t.una);
      acked_any <= d.ack != t.una;
      acked_far <= |((d.ack - t.una) >> TxBits);
      // The same as `acked` compared with `flight`, computed in parallel.
      some_acked <= !(|((d.ack - t.una) >> TxBits)) && !left[TxBits];
      whole <= tx_t'(left) == '0;
      flight <= out;
      out_long <= 23'(out) >> 1 > 23'({t.mss, 1'b0});
      ack_beyond_next <= precedes(t.nxt, d.ack);
      ack_of_unsent <= !precedes(d.ack, t.max);
      newer <= !precedes(d.seq, t.wl1);
      same_window <= d.window == t.window;
      sampled <= t.timing && !earlier(tx_t'(d.ack), t.timed);
      took_more <= $signed({3'b000, took}) - $signed({3'b000, t.srtt[18:3]});
      slow_start <= t.cwnd < t.ssthresh;
      to_grow <= $signed({1'b0, t.cwnd}) - $signed({1'b0, t.grown});
      before_recover <= earlier(tx_t'(d.ack), tx_t'(t.recover));
      at_recover <= tx_t'(d.ack) == tx_t'(t.recover);
      acked_all <= tx_t'(d.ack) == report.written_to;
      acked_quantum <= |((tx_t'(d.ack) ^ tx_t'(t.una)) >> PROGRESS_BITS);
      received_quantum <= 4'(stream_read.next >> PROGRESS_BITS) != t.progress;
      in_request <= mid_request[index];
      idle_over <= IDLE_MS != 0 && t.idle >= (mid_request[index] ? slow(REQUEST_MS) : slow(IDLE_MS)) && !working[index];
      wanted_over <= IDLE_MS != 0 && t.idle >= slow(IDLE_WANTED_MS) && !working[index];
      linger_over <= t.idle >= (wanted ? slow(LINGER_WANTED_MS) : slow(LINGER_MS));
      wait_over <= crowded || t.idle >= slow(TIME_WAIT_MS);
      in_work <= working[index];
      timing_out <= t.timer == 16'd1;
      timer_runs <= t.timer != '0;
      ack_due <= t.ack_wait == '0;
      shut <= t.window == '0;
      opens <= t.window == '0 && d.window != '0;
      used <= rx_t'(stream_read.next) - report.read_to;
      offered_left <= t.offered - rx_t'(stream_read.next);
      stream <= stream_read.next;
      stream_ended <= stream_read.ended;
      out_end <= report.written_to;
      finished <= report.finish;
      // The peer's SYN gives the start of its stream.
      // No data is accepted before the session is open.
      if (ACTIVE_OPEN && t.state == SYN_SENT) stream <= d.seq + 32'd1;
      if (ACTIVE_OPEN && t.state inside {SYN_SENT, SYN_RECEIVED}) begin
        stream_ended <= 1'b0;
        used <= '0;
      end
    end
  end

  // ---- STEP: the effect of the event on the record ----
  logic ack_step, again_step, probe_step, die_step, reset_step, wake_step, progress_step, whole_step, sample_step;
  logic syn_step, begin_step, establish_step;


  // The window for which there is space.
  rx_t room_in, window_span;
  logic [15:0] window_out, window_now;
  assign room_in = rx_t'(1 << RX_RING_BITS) - used;
  assign window_now = used > rx_t'(1 << RX_RING_BITS) ? 16'd0 : t.scaling != '0 ? 16'(32'(room_in) >> SCALE) :
      32'(room_in) > 32'h0000_ffff ? 16'hffff : 16'(room_in);

  always_ff @(posedge own_clk) begin
    if (phase == COMPARE) took_q <= took;
    if (phase == STEP) begin
      tcb_t stepped;
      logic ack_now, again, probe, die, reset_out, wake, advanced, syn, begin_now, establish;
      logic [15:0] backed_off;
      cwnd_t half;
      logic [17:0] took_apart;
      stepped = t;
      ack_now = 1'b0;
      again = 1'b0;      // retransmit the oldest segment
      probe = 1'b0;      // send one byte into a closed window
      die = 1'b0;
      reset_out = 1'b0;
      wake = 1'b0;
      advanced = 1'b0;   // new data was acknowledged
      syn = 1'b0;
      begin_now = 1'b0;  // the peer's stream has begun
      establish = 1'b0;  // a connection that the board opens is open
      backed_off = t.rto > 16'(RTO_MOST_MS / 2) ? 16'(RTO_MOST_MS) : {t.rto[14:0], 1'b0};
      half = out_long ? cwnd_t'(23'(flight) >> 1) : capped(23'({t.mss, 1'b0}));
      took_apart = took_more < 0 ? 18'(-took_more) : 18'(took_more);

      if (finished && !t.closing && t.state == OPEN) begin
        stepped.closing = 1'b1;
        stepped.fin_at  = out_end;
        stepped.active  = !stream_ended;
        stepped.idle    = '0;
      end

      case (kind)
        EVENT_SEGMENT: begin
          if (ACTIVE_OPEN && t.state == SYN_SENT) begin
            // RFC 9293 section 3.10.7.3. An acknowledgment of anything except the own SYN is
            // invalid.
            if (d.flags[RST]) die = d.flags[ACK];
            else if (d.flags[SYN]) begin
              begin_now = 1'b1;
              establish = d.flags[ACK];
              syn = !establish;
              stepped.state = SYN_RECEIVED;
              stepped.recover = RecoverBits'(stream);
              stepped.wl1 = d.seq;
              stepped.window = d.window;
              stepped.scaling = scaling_of(d.scaled, d.scale);
              stepped.offered = rx_t'(stream + FirstOffer);
              stepped.mss = mss_of(mss_index(d.mss));
              // After a lost SYN the initial window is one segment (RFC 5681 section 3.1).
              stepped.cwnd = t.retries != '0 ? capped(23'(stepped.mss)) : first_window(mss_index(d.mss));
            end
          end else if (ACTIVE_OPEN && t.state == SYN_RECEIVED) begin
            if (d.flags[RST]) die = exact;
            else if (d.flags[ACK]) establish = acked_any && !acked_far && acked == tx_t'(1);
            else syn = d.flags[SYN];
          end else if (d.flags[RST]) begin
            // RFC 5961 section 3: only the exact position resets;
            // another position in the window gets a challenge ACK.
            if (exact) die = 1'b1;
            else if (in_window) ack_now = 1'b1;
          end else if (d.flags[SYN]) begin
            // In TIME_WAIT the peer opens a new connection; its next SYN finds the session gone.
            if (t.state == TIME_WAIT) die = 1'b1;
            else ack_now = 1'b1;
          end else if (!nearby) ack_now = 1'b1;
          else if (d.flags[ACK]) begin
            if (acked_any && some_acked) begin
              advanced = 1'b1;
              stepped.una = d.ack;
              if (ack_beyond_next) stepped.nxt = d.ack;
              stepped.dups = '0;
              stepped.retries = '0;
              if (acked_all || acked_quantum) stepped.idle = '0;
              wake = 1'b1;
              stepped.repeating = t.repeating && (before_recover || at_recover);
              if (t.recovering) begin
                if (before_recover) again = 1'b1;
                else stepped.recovering = 1'b0;
              end else if (slow_start)
                stepped.cwnd = 23'(acked) > 23'(t.mss) ? capped(23'(t.cwnd) + 23'({t.mss, 1'b0})) : capped(23'(t.cwnd) + 23'(14'(acked)));
              else if ($signed({1'b0, cwnd_t'(acked)}) >= to_grow) begin
                stepped.grown = '0;
                stepped.cwnd  = capped(23'(t.cwnd) + 23'(t.mss));
              end else stepped.grown = t.grown + cwnd_t'(acked);
            end else if (!acked_any) begin
              if (flight != '0 && d.length == '0 && !d.flags[FIN] && same_window && !t.recovering) begin
                stepped.dups = t.dups + 2'd1;
                if (t.dups == 2'd2 && !t.repeating) begin
                  again = 1'b1;
                  stepped.recovering = 1'b1;
                  stepped.repeating = 1'b1;
                  stepped.recover = RecoverBits'(t.max);
                  stepped.ssthresh = half;
                  stepped.cwnd = half;
                  stepped.timing = 1'b0;
                  stepped.dups = '0;
                end
              end
            end else if (ack_of_unsent) ack_now = 1'b1;
            if (newer && some_acked) begin
              stepped.window = d.window;
              stepped.wl1 = d.seq;
              // A peer that acknowledges a probe is alive.
              // Data sent into the closed window is retransmitted.
              if (shut) stepped.retries = '0;
              if (opens) stepped.nxt = stepped.una;
            end
            if (kept) begin
              if (!t.closing && (!in_request || received_quantum)) begin
                stepped.idle = '0;
                stepped.progress = 4'(stream >> PROGRESS_BITS);
              end
              stepped.unacked = t.unacked + 2'd1;
              if (t.unacked == '0) stepped.ack_wait = 8'(DELAYED_ACK_MS);
              // An ACK at least for every second segment,
              // and for segments that fill a gap (RFC 5681 section 4.2).
              if (t.unacked != '0 || gap) ack_now = 1'b1;
            end
            if (fin_in) ack_now = 1'b1;
            // After a gap, a repetition or a probe: acknowledge the expected position (RFC 9293
            // section 3.10.7.4).
            if (!kept && !fin_in && (d.length != '0 || d.flags[FIN] || !exact)) ack_now = 1'b1;
          end
        end
        EVENT_TICK: begin
          // The time limit for reading a reply starts when the reply is complete.
          if (in_work) stepped.idle = '0;
          else if (tick_slow) stepped.idle = (&t.idle) ? t.idle : t.idle + 10'd1;
          if (t.unacked != '0) begin
            stepped.ack_wait = t.ack_wait - 8'd1;
            if (ack_due) ack_now = 1'b1;
          end
          if (t.state == TIME_WAIT) die = wait_over;
          else begin
            if (t.closing && linger_over) begin
              die = 1'b1;
              reset_out = 1'b1;
            end
            if (evicting && wanted_over && t.state == OPEN && (in_request || flight == '0)) begin
              die = 1'b1;
              reset_out = 1'b1;
            end else if (!t.closing && (idle_over || (evicting && wanted_over)) && t.state == OPEN) begin
              stepped.closing = 1'b1;
              stepped.fin_at  = out_end;
              stepped.active  = !stream_ended;
              stepped.idle    = '0;
              wake = 1'b1;
            end
            if (timer_runs) begin
              stepped.timer = t.timer - 16'd1;
              if (timing_out) begin
                stepped.timer = backed_off;
                stepped.rto = backed_off;
                stepped.retries = t.retries + 4'd1;
                stepped.timing = 1'b0;  // Karn: retransmissions are not timed
                if (ACTIVE_OPEN && t.state != OPEN) begin
                  syn = 1'b1;
                  die = t.retries == 4'(CONNECT_RETRIES);
                end else if (shut) probe = 1'b1;
                else begin
                  stepped.nxt = t.una;
                  stepped.ssthresh = half;
                  stepped.cwnd = capped(23'(t.mss));
                  stepped.recovering = 1'b0;
                  stepped.repeating = 1'b1;
                  stepped.recover = RecoverBits'(t.max);
                  stepped.dups = '0;
                end
                if (t.state == OPEN && t.retries == 4'(RETRIES)) begin
                  die = 1'b1;
                  reset_out = 1'b1;
                end
              end
            end
          end
        end
        default: syn = ACTIVE_OPEN && t.state == SYN_SENT && !timer_runs;
      endcase

      if (establish) begin
        advanced = 1'b1;
        ack_now = 1'b1;
        stepped.state = OPEN;
        stepped.una = d.ack;
        stepped.retries = '0;
        if (t.retries != '0) stepped.rto = 16'(RTO_LOST_SYN_MS);
      end
      if (advanced && sampled) begin
        stepped.timing = 1'b0;
        stepped.measured = 1'b1;
        if (!t.measured) begin
          stepped.srtt   = {took_q, 3'b000};
          stepped.rttvar = {1'b0, took_q, 1'b0};
        end else begin
          stepped.srtt   = 19'($signed({1'b0, t.srtt}) + 20'(took_more));
          stepped.rttvar = t.rttvar - (t.rttvar >> 2) + took_apart;
        end
      end

      n <= stepped;
      ack_step <= ack_now && !die;
      again_step <= again;
      probe_step <= probe;
      die_step <= die;
      reset_step <= reset_out;
      wake_step <= wake;
      progress_step <= advanced;
      sample_step <= advanced && sampled;
      whole_step <= whole;
      syn_step <= syn && !die;
      begin_step <= begin_now;
      establish_step <= establish;
      window_out <= window_now;
      window_span <= t.scaling != '0 ? rx_t'(window_now) << SCALE : rx_t'(window_now);
    end
  end

  // ---- ENDS ----
  logic dies, wakes, wakes_q;
  logic [18:0] rto;
  tx_t tx_end, unsent, owed;  // the differences negative once the FIN is out
  // inflight_more: with a segment.
  tx_t avail, inflight, inflight_more, unacknowledged, sent_out, may_fly;
  rx_t right;
  logic past_end, ack_q, again_q, probe_q, die_q, reset_q, syn_q, begin_q, establish_q, opening_q;

  always_comb begin
    // Read only in this phase; in the model, the other phases skip it.
    {settled, dies, wakes, rto, tx_end, unsent, owed} = 'x;
    if (phase == ENDS) begin
      settled = n;
      dies = die_step;
      wakes = wake_step || die_step;
      rto = 19'(n.srtt[18:3]) + 19'(n.rttvar);
      if (sample_step)
        settled.rto = rto < 19'(RTO_LEAST_MS) ? 16'(RTO_LEAST_MS) :
                      rto > 19'(RTO_MOST_MS) ? 16'(RTO_MOST_MS) : rto[15:0];
      if (progress_step) settled.timer = whole_step ? 16'd0 : settled.rto;
      // Both streams have ended and both ends have been acknowledged.
      if (n.closing && tx_t'(n.una) == n.fin_at + tx_t'(1) && stream_ended && n.state == OPEN && !die_step) begin
        wakes = 1'b1;
        if (n.active) begin
          settled.state = TIME_WAIT;
          settled.idle  = '0;
        end else dies = 1'b1;  // the last ACK is sent and the session ends
      end
      tx_end = n.closing ? n.fin_at : out_end;
      unsent = tx_end - tx_t'(n.nxt);
      owed = tx_end - tx_t'(n.una);
    end
  end

  always_ff @(posedge own_clk) begin
    if (phase == ENDS) begin
      m <= settled;
      // The peer of a session that ends because both streams have ended still needs its last ACK.
      ack_q <= (ack_step && !dies) || (dies && kind == EVENT_SEGMENT && fin_in);
      again_q <= again_step;
      probe_q <= probe_step;
      die_q <= dies;
      reset_q <= reset_step;
      syn_q <= syn_step;
      begin_q <= begin_step;
      establish_q <= establish_step;
      opening_q <= ACTIVE_OPEN && n.state inside {SYN_SENT, SYN_RECEIVED};
      past_end <= unsent[TxBits-1];
      // After the FIN there is no more data.
      avail <= unsent[TxBits-1] ? '0 : unsent;
      inflight <= tx_t'(n.nxt) - tx_t'(n.una);
      inflight_more <= tx_t'(n.nxt) - tx_t'(n.una) + tx_t'(n.mss);
      may_fly <= unscaled(n.window, n.scaling) < 23'(n.cwnd) ? tx_t'(unscaled(n.window, n.scaling)) : tx_t'(n.cwnd);
      unacknowledged <= owed[TxBits-1] ? '0 : owed;
      sent_out <= tx_t'(n.max) - tx_t'(n.una);
      right <= rx_t'(stream) + window_span;
    end
  end

  // ---- LENGTH: the amount of data to send now ----
  tx_t limit;
  logic blocked, beyond_limit, segment_fits;
  logic [15:0] length, oldest, length_q;
  tx_t unreached;                        // previously sent data from the start of this transmission
                                         // on
  logic resend, resend_q, send_data, window_opens, widened;
  logic [31:0] from;

  always_comb begin
    // The minimum of the peer's window and the congestion window.
    limit = may_fly - inflight;
    blocked = inflight >= may_fly;
    // The same as `avail` compared with `limit`, computed in parallel.
    beyond_limit = unacknowledged > may_fly;
    segment_fits = may_fly >= inflight_more;
    length = avail > tx_t'(m.mss) && segment_fits ? 16'(m.mss) : beyond_limit ? 16'(limit) : 16'(avail);
    // No small segments while more data follows (RFC 9293 section 3.8.6.2.1),
    // unless no data is in flight.
    if (blocked || (inflight != '0 && beyond_limit && !segment_fits)) length = '0;
    oldest = unacknowledged < sent_out ? 16'(unacknowledged) : 16'(sent_out);
    if (unacknowledged > tx_t'(m.mss) && sent_out > tx_t'(m.mss)) oldest = 16'(m.mss);
    resend = again_q || probe_q;
    if (again_q) length = oldest;
    else if (probe_q) length = 16'(unacknowledged != '0);
    // Notify a peer whose window was small that there is space again.
    window_opens = m.state == OPEN && !die_q && !stream_ended &&
        offered_left < rx_t'(1 << (RX_RING_BITS > 15 ? 14 : RX_RING_BITS - 1));
    widened = right - m.offered >= rx_t'({m.mss, 1'b0});
  end

  logic live, send_ack;
  always_ff @(posedge own_clk) begin
    if (phase == LENGTH) begin
      live <= m.state == OPEN && !die_q;
      length_q <= length;
      unreached <= sent_out - (resend ? '0 : inflight);
      resend_q <= resend;
      from <= resend ? m.una : m.nxt;
      send_ack <= ack_q || (window_opens && widened);
    end
  end

  // ---- FLAGS ----
  logic [31:0] sum, sum_q;
  logic send_fin, push, all_sent, more;  // all available data is sent; there may be more
  logic advances;                        // the transmission ends at `nxt` or later
  logic first_time, first_end;           // the transmission begins after all sent data,
  logic beyond;                          // or ends there; with a FIN if its end is that position
  logic idle_timer, stalled;
  assign sum = from + 32'(length_q);
  assign all_sent = tx_t'(length_q) == avail;

  always_ff @(posedge own_clk) begin
    if (phase == FLAGS) begin
      sum_q <= sum;
      send_data <= live && length_q != '0;
      // The remaining length is compared, not the end position.
      send_fin <= live && m.closing && (resend_q ? length_q == '0 : all_sent && !past_end);
      push <= resend_q ? tx_t'(length_q) == unacknowledged : all_sent;
      more <= !resend_q && !all_sent;
      // Only the FIN of a finished stream is retransmitted.
      advances <= !resend_q || (length_q == '0 ? inflight <= tx_t'(1) : tx_t'(length_q) >= inflight);
      first_time <= unreached == '0;
      beyond <= tx_t'(length_q) > unreached;
      first_end <= tx_t'(length_q) == unreached;
      idle_timer <= m.timer == '0;
      stalled <= avail != '0 && m.window == '0;
    end
  end

  // ---- SEND ----
  segment_t own, plain;  // a segment of a session; a reply without a session
  logic plain_valid;
  logic [31:0] after;
  logic go_on, repeated;

  always_comb begin
    {o, own, go_on, after} = 'x;
    if (phase == SEND) begin
      o = m;
      own = '0;
      own.mac = peer.mac;
      own.ip = peer.ip;
      own.port = peer.port;
      own.own_port = peer.own_port;
      own.seq = send_data || send_fin ? from : m.max;
      own.ack = stream;
      own.window = window_out;
      own.flags[ACK] = 1'b1;
      own.flags[PSH] = send_data && push;
      own.flags[FIN] = send_fin;
      own.length = send_data ? length_q : 16'd0;
      if (reset_q) begin
        own.flags = 8'd0;
        own.flags[RST] = 1'b1;
        own.flags[ACK] = 1'b1;
        own.seq = m.nxt;
        own.length = '0;
      end

      if (syn_q) begin
        own.flags[SYN] = 1'b1;
        own.flags[ACK] = m.state == SYN_RECEIVED;
        own.flags[PSH] = 1'b0;
        own.seq = m.una;
        own.window = FirstWindow;
        own.with_mss = 1'b1;
        own.with_scale = m.state == SYN_SENT || m.scaling != '0;
      end

      go_on = 1'b0;
      after = sum_q + 32'(send_fin);
      if (send_data || send_fin) begin
        if (advances) o.nxt = after;
        if (beyond || (send_fin && first_end)) begin
          o.max = after;
          if (!m.timing && first_time) begin
            o.timing = 1'b1;
            o.timed = tx_t'(after);
            o.timed_from = now;
          end
        end
        if (idle_timer) o.timer = m.rto;
        // There may be more data: requeue the session after the others.
        go_on = more && send_data;
        if (again_q) go_on = 1'b1;
      end else if (stalled && idle_timer) o.timer = m.rto;
      if (syn_q && idle_timer) o.timer = m.rto;
      if (die_q) o.state = DEAD;
      if (send_data || send_fin || send_ack) begin
        o.unacked = '0;
        o.offered = right;
      end
    end
  end

  logic emit;
  assign emit = send_data || send_fin || send_ack || reset_q || syn_q;

  // ---- the machine ----
  logic [31:0] given;  // the cookie in an ACK
  assign given = d.ack - 32'd1;

  logic choose_segment, choose_other, choose_connect, takes_tick, settled_down, checked, cookie_late, cookie_right, connecting, connects, spare;
  logic [1:0] connect_tries;
  logic [13:0] port_from;
  logic [23:0] cookie_given;
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
  // One write at a time to the state reported by the application.
  assign births = phase == BIRTH && !progress.valid;
  assign begins = phase == BEGIN && !progress.valid;
  assign slot_taken = births;
  assign spare = slot_free && (!reserve || count_open < (S + 1)'(SESSIONS - 1));

  always_comb begin
    fresh = 'x;
    if (phase == BIRTH) fresh = '0;
    fresh.state = connects ? SYN_SENT : OPEN;
    fresh.una = connects ? given : d.ack;
    fresh.nxt = d.ack;
    fresh.max = d.ack;
    fresh.wl1 = d.seq;
    fresh.window = d.window;
    fresh.scaling = cookie_scaling;
    fresh.offered = rx_t'(d.seq + FirstOffer);
    fresh.mss = mss_of(cookie_mss);
    fresh.cwnd = first_window(cookie_mss);
    fresh.ssthresh = CwndMost;
    fresh.rto = 16'(RTO_FIRST_MS);
    fresh.timing = connects;
    fresh.timed = tx_t'(d.ack);
    fresh.timed_from = now;
    tcb_write = phase == SEND || births;
    tcb_at = phase == SEND ? index : slot;
    tcb_in = phase == SEND ? o : fresh;
    report_write = progress.valid || births || begins;
    report_at = progress.valid ? progress.session[S-1:0] : births ? slot : index;
    report_read_to = progress.valid ? progress.read_to : births ? d.seq : 32'(m.recover);
    report_in = '{finish: progress.valid && progress.finish, read_to: rx_t'(report_read_to),
                written_to: tx_t'(progress.valid ? progress.written_to : births ? d.ack : m.una)};
    alert_now = alerts[G'(index >> 4)];
    // A running timer is never set to zero.
    alert_now[index[3:0]] = !die_q && (!idle_timer || send_data || send_fin || stalled || syn_q ||
        (m.unacked != '0 && !send_ack) || m.state == TIME_WAIT);
  end

  assign sent_write = tcb_write;
  assign sent_at = tcb_at;
  assign sent_to = tcb_in.max;
  assign change = '{
    valid:   phase == SEND && !opening_q,
    session: session_t'(index),
    una:     o.una,
    dead:    die_q,
    shut:    o.closing,
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
    cookie_start <= 1'b0;
    plain_valid <= 1'b0;
    repeated <= 1'b0;
    crowded <= count_open > (S + 1)'(SESSIONS - SESSIONS / 4);
    if (!progress.valid) kick <= 1'b0;
    if (!released.valid) reclaim <= 1'b0;
    if (changed) change_valid <= 1'b0;
    count_open <= count_open + (S + 1)'(births) - (S + 1)'(released.valid || reclaim);
    if (repeated) count_retransmitted <= count_retransmitted + 32'd1;

    // The next group of sessions, when all of the previous group have been chosen.
    tick_chosen <= |due && !tick_taken;
    tick_first <= S'({due_group, due_first});
    if (due == '0 && scanning) begin
      due <= due_now;
      due_group <= group;
      due_slow <= slow_now;
      group <= group + 1'b1;
      if (group == G'(GROUPS - 1)) scanning <= 1'b0;
    end
    if (due == '0 && !scanning) begin
      late_tick <= 1'b0;
      group <= '0;
      if (tick_owed) begin
        scanning <= 1'b1;
        tick_owed <= 1'b0;
        slow_turn <= slow_turn + 6'd1;
      end
    end
    if (tick) begin
      tick_owed <= 1'b1;
      late_tick <= scanning || due != '0;
    end

    case (phase)
      IDLE:
      if (seg_ready && settled_down) begin
        if (choose_segment || choose_other) index <= chosen;
        if (choose_segment) begin
          turn <= 1'b0;
          kind <= EVENT_SEGMENT;
          d <= desc_head;
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
            due[due_first] <= 1'b0;
          end else kind <= EVENT_APP;
        end else if (choose_connect) begin
          d.mac <= connect_mac;
          d.ip <= connect_ip;
          d.port <= connect_port;
          d.own_port <= '0;
          d.seq <= '0;
          d.window <= 16'd1;  // not closed
          irs <= '0;
          cookie_epoch <= '0;
          cookie_mss <= 3'd1;
          cookie_scaling <= '0;
          cookie_use <= 2'd2;
          cookie_start <= 1'b1;
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
      STEP: begin
        phase <= ENDS;
        if (kind == EVENT_TICK && tick_slow) begin
          // A closed session also ends once its FIN is acknowledged,
          // because its peer may never close.
          if (t.state == OPEN && (!t.closing || flight == '0) && !in_work) begin
            if (t.idle > laggard_idle || index == laggard) begin
              laggard <= index;
              laggard_idle <= t.idle;
            end
          end else if (index == laggard) laggard_idle <= '0;
        end
      end
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
        if (die_q && reset_q) count_reset <= count_reset + 32'd1;
      end
      FLAGS: phase <= SEND;
      SEND: begin
        alerts[G'(index >> 4)] <= alert_now;
        if (go_on && !die_q) begin
          kick <= 1'b1;
          kick_at <= index;
        end
        repeated <= send_data && !reset_q && precedes(from, m.max);
        phase <= begin_q || establish_q ? BEGIN : evicting && die_q && !connects ? WAIT_SLOT : IDLE;
        evicting <= 1'b0;
        slot_wait <= '1;
        if (opening_q && die_q) begin
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
        begun_ended <= !establish_q;
        begun_at <= index;
        begun_next <= 32'(m.recover);
        open <= establish_q;
        open_active <= 1'b1;
        open_at <= index;
        open_next <= 32'(m.recover);
        open_una <= m.una;
        if (establish_q) begin
          connecting <= 1'b0;
          connect_done <= 1'b1;
          connect_result <= CONNECT_OK;
          count_opened <= count_opened + 32'd1;
        end
      end
      STRANGER: begin
        // Without a session: a new connection, or a reply to a segment of an ended one.
        phase <= IDLE;
        plain <= '0;
        plain.mac <= d.mac;
        plain.ip <= d.ip;
        plain.port <= d.port;
        plain.own_port <= d.own_port;
        cookie_use <= '0;
        connects <= 1'b0;
        cookie_epoch <= epoch;
        cookie_mss <= mss_index(d.mss);
        cookie_scaling <= scaling_of(d.scaled, d.scale);
        irs <= d.seq;
        if (d.flags[RST]) begin
        end else if (d.own_port == listen_port && d.flags[SYN] && !d.flags[ACK]) begin
          cookie_start <= 1'b1;
          phase <= COOKIE;
        end else if (d.own_port == listen_port && d.flags[ACK] && !d.flags[SYN]) begin
          cookie_start <= 1'b1;
          cookie_epoch <= epoch - 16'(3'(epoch[2:0] - given[31:29]));
          cookie_age <= epoch[2:0] - given[31:29];
          cookie_mss <= given[28:26];
          cookie_scaling <= given[25:24];
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
      end
      COOKIE:
      if (cookie_done) begin
        phase <= IDLE;
        plain_valid <= 1'b1;
        plain.flags[SYN] <= 1'b1;
        plain.flags[ACK] <= 1'b1;
        plain.seq <= {cookie_epoch[2:0], cookie_mss, cookie_scaling, cookie_hash[23:0]};
        plain.ack <= d.seq + 32'd1;
        plain.window <= FirstWindow;
        plain.with_mss <= 1'b1;
        plain.with_scale <= cookie_scaling != '0;
      end
      CHECK:
      if (checked) begin
        phase <= IDLE;
        if (cookie_late) begin
          plain_valid <= 1'b1;
          plain.flags[RST] <= 1'b1;
          plain.seq <= d.ack;
        end else if (cookie_right && spare) phase <= ADD;
        else if (cookie_right) begin
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
        laggard_idle <= '0;
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
        d.own_port <= {2'b11, cookie_hash[13:0] + port_from};
        port_from <= port_from + 14'd1;
        cookie_use <= 2'd3;
        cookie_start <= 1'b1;
        phase <= NUMBER;
      end
      NUMBER:
      if (ACTIVE_OPEN && cookie_done) begin
        // Increments about once per 4 µs.
        d.ack <= cookie_hash + {epoch[10:0], now[12:0], 8'd0} + 32'd1;
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
        change_key <= {d.ip, d.port, d.own_port};
        change_index <= slot;
        if (changed) begin
          phase <= BIRTH;
          if (refused) begin
            phase <= IDLE;
            if (!connects) wanted <= 1'b1;
            else if (connect_tries != '0) begin
              d.own_port <= '0;
              cookie_use <= 2'd2;
              cookie_start <= 1'b1;
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
        begun_next <= d.seq;
        open <= !connects;
        open_active <= 1'b0;
        open_at <= slot;
        open_next <= d.seq;
        open_una <= d.ack;
        connecting <= connecting || connects;
        kick <= 1'b1;
        kick_at <= slot;
        if (!connects) begin
          wanted <= 1'b0;
          count_opened <= count_opened + 32'd1;
        end
      end
    endcase

    laggard_over <= laggard_idle >= slow(IDLE_WANTED_MS);
    cookie_late  <= cookie_age > 3'd4;
    cookie_given <= given[23:0];
    cookie_right <= cookie_hash[23:0] == cookie_given;
    checked <= cookie_done && phase == CHECK;

    if (tick) begin
      now <= now + 16'd1;
      if (now[12:0] == '1) epoch <= epoch + 16'd1;  // 8.2 s
    end
    if (rst) begin
      phase <= IDLE;
      change_valid <= 1'b0;
      connecting <= 1'b0;
      kick <= 1'b0;
      reclaim <= 1'b0;
      wanted <= 1'b0;
      evicting <= 1'b0;
      laggard_idle <= '0;
      due <= '0;
      scanning <= 1'b0;
      tick_owed <= 1'b0;
      late_tick <= 1'b0;
      tick_chosen <= 1'b0;
      slow_turn <= '0;
      turn <= 1'b0;
      now <= '0;
      epoch <= '0;
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
      .wake (rst || tick || received.valid || desc_valid || progress.valid || app_chosen || released.valid || reclaim || kick ||
             (ACTIVE_OPEN && connect_valid) || phase != IDLE || change_valid || cookie_start || plain_valid || repeated || begun || open ||
             connect_done || wiping || queue_head != queue_tail || due != '0 || tick_owed || scanning || tick_chosen),
      .gated(own_clk)
  );

endmodule
