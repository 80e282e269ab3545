// TCP network bridge: packets ↔ TCP sessions, one for each pair of stations, and their frames.
//
// A station is a board, or a process that has a rank. One of two stations opens the session and
// sends a hello: its number and the job's key. TCP retransmits losses; a session that is reset or
// times out is reported (`failed`).
//
// `tick` pulses once per millisecond. `station_put` configures a station: 1, open a connection to
// it, at `station_ip`; 2, it opens the connection; not within 256 cycles of the reset.
//
// Parameters: SESSIONS; RING_BITS, log2 of the bytes of each session's ring, in each direction.
module msg_tcp
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter  int SESSIONS = 32,
    parameter  int RING_BITS = 14,
    localparam int S = $clog2(SESSIONS)
) (
`include "msg_station_ports.svh"
    // The router.
`include "msg_packet_ports.svh"
`include "msg_frame_ports.svh"
    output logic [15:0]      dropped
);

  localparam int WAIT_MS = 20;  // between two attempts

  typedef enum logic [1:0] { Unknown, Call, Await, Met } role_t;

  // ---- sessions ----

  logic open, open_active, rcv_notify, rcv_notify_ended, notify, notify_dead, release_session, finishing, connect_done, app;
  logic [S-1:0] open_at, rcv_notify_at, notify_at, tx_at, rx_at, dead_at, report_at;
  logic [31:0] open_next, open_una, rcv_notify_next, notify_una, tx_report_to, rx_report_to;
  logic tx_busy, tx_chosen, tx_report, tx_report_ready, rx_busy, rx_report, rx_report_ready, rx_finish;
  logic [31:0] reads[SESSIONS], writtens[SESSIONS], read_reported, written_reported;
  logic [SESSIONS-1:0] finished, ended, unacked, live;
  logic [7:0] station_of[SESSIONS];
  logic link, link_open;
  logic [7:0] link_station;
  logic [S-1:0] link_session;
  net_pkg::connect_result_t connect_result;

  // The read and written positions of each session, here and as reported to TCP.
  assign tx_report_ready = !open;
  assign rx_report_ready = !open && !tx_report;
  assign app           = !open && (tx_report || rx_report);
  assign report_at       = tx_report ? tx_at : rx_at;
  assign read_reported     = tx_report ? reads[report_at] : rx_report_to;
  assign written_reported  = tx_report ? tx_report_to : writtens[report_at];
  assign finishing     = finished[report_at] || (!tx_report && rx_finish);

  always_ff @(posedge clk) begin
    if (open || (tx_report && tx_report_ready)) writtens[open ? open_at : tx_at] <= open ? open_una : tx_report_to;
    if (open || (rx_report && rx_report_ready)) reads[open ? open_at : rx_at] <= open ? open_next : rx_report_to;
    if (notify) unacked[notify_at] <= notify_una != writtens[notify_at];
    if (tx_report && tx_report_ready) unacked[tx_at] <= 1'b1;
    if (app) finished[report_at] <= finishing;
    if (rcv_notify) ended[rcv_notify_at] <= rcv_notify_ended;
    if (open) begin
      finished[open_at] <= 1'b0;
      unacked[open_at]  <= 1'b0;
    end
  end

  // ---- ended sessions: released when no unit uses them ----

  logic dead_valid, calm;
  fifo #(
      .T(logic [S-1:0]),
      .DEPTH(SESSIONS)
  ) u_dead (
      .clk,
      .rst,
      .s_valid  (notify && notify_dead),
      .s_ready  (),  // holds each session at most once
      .s_payload(notify_at),
      .m_valid  (dead_valid),
      .m_ready  (release_session),
      .m_payload(dead_at)
  );
  assign calm = (!tx_busy || (tx_chosen && tx_at != dead_at)) && (!rx_busy || rx_at != dead_at);

  // ---- stations ----

  role_t       roles[256], friend_role, call_role;
  logic [31:0] ips[256];
  logic        sweeping, calling, met, friend_valid, friend_ready, friend_good, hello_valid, hello_ready, late, pausing;
  logic [7:0]  sweep, call, friend_station, uncalled;
  logic [S-1:0] hello_at;
  logic [7:0]  hello_station;
  logic [11:0] clock;
  logic [4:0]  pause;

  assign met             = open && open_active;
  assign friend_role     = roles[friend_station];
  assign friend_good     = friend_role == Await;
  assign friend_ready    = friend_valid && !met && !hello_ready && !station_put && !sweeping;
  assign release_session = dead_valid && calm && !hello_ready && !friend_valid && !open;
  // Packets follow the hello.
  assign link            = hello_ready || (friend_ready && friend_good) || (release_session && live[dead_at]);
  assign link_open       = !release_session;
  assign link_station    = hello_ready ? hello_station : friend_valid ? friend_station : station_of[dead_at];
  assign link_session    = hello_ready ? hello_at : rx_at;
  assign late            = tick && clock == '1;

  always_ff @(posedge clk) begin
    if (sweeping || station_put || met || (friend_ready && friend_good))
      roles[sweeping ? sweep : station_put ? station : met ? call : friend_station] <= sweeping ? Unknown : station_put ? role_t'(station_role) : Met;
    if (station_put) ips[station] <= station_ip;
    call_role <= roles[call];
  end

  always_ff @(posedge clk) begin
    owed   <= (unacked & live) != '0 || uncalled != '0 || dead_valid;
    failed <= 1'b0;
    if (release_session) begin
      failed         <= live[dead_at] && !ended[dead_at];
      failed_station <= station_of[dead_at];
    end
    if (tick) begin
      clock <= clock + 1'b1;
      if (pause != '0) pause <= pause - 1'b1;
    end
    if (hello_ready) hello_valid <= 1'b0;
    // Connects to one station after another, until it replies. Its role is read a cycle later.
    pausing <= 1'b0;
    if (calling) begin
      if (connect_done) begin
        calling <= 1'b0;
        pause   <= connect_result == net_pkg::CONNECT_OK ? '0 : 5'(WAIT_MS);
        call    <= call + 1'b1;
        pausing <= 1'b1;
      end
    end else if (!pausing && !sweeping && !station_put && pause == '0 && !hello_valid) begin
      if (call_role == Call) calling <= 1'b1;
      else begin
        call    <= call + 1'b1;
        pausing <= 1'b1;
      end
    end
    uncalled <= uncalled + 8'(station_put && station_role == Call) - 8'(met);
    if (met) begin
      hello_valid <= 1'b1;
      hello_at    <= open_at;
      hello_station <= call;
    end
    if (sweeping) begin
      sweep    <= sweep + 1'b1;
      sweeping <= sweep != '1;
    end
    if (rst) begin
      sweeping    <= 1'b1;
      sweep       <= '0;
      calling     <= 1'b0;
      call        <= '0;
      pausing     <= 1'b1;
      pause       <= '0;
      clock       <= '0;
      uncalled    <= '0;
      hello_valid <= 1'b0;
      failed      <= 1'b0;
    end
  end

  // ---- packets ----

  logic a_valid, a_ready;
  logic [7:0] a_own, a_rank;
  logic [1:0] a_state;
  localparam int WordBits = S + RING_BITS - 3;
  logic write;
  logic [WordBits-1:0] write_address, read_address;
  logic [63:0] write_data, read_data;
  logic [7:0] write_keep;
  net_pkg::ring_write_t net_write;
  net_pkg::ring_read_t net_read;
  net_pkg::ring_word_t net_word;
  logic net_reads;
  net_pkg::opened_t opened;
  net_pkg::received_t received;
  net_pkg::session_change_t change;
  net_pkg::net_counts_t counts;

  msg_tcp_tx #(
      .SESSIONS (SESSIONS),
      .RING_BITS(RING_BITS)
  ) u_tx (
      .clk,
      .rst,
      .put,
      .put_rank,
      .put_station,
      .link,
      .link_station,
      .link_open,
      .link_session,
      .open,
      .open_at,
      .open_una,
      .acked     (notify),
      .acked_at  (notify_at),
      .acked_to  (notify_una),
      .hello_valid,
      .hello_ready,
      .hello_at,
      .hello     ({job_key, {own_station, Greeting}}),
      .s_valid,
      .s_ready,
      .s_beat,
      .a_valid,
      .a_ready,
      .a_own,
      .a_rank,
      .a_state,
      .write,
      .write_address,
      .write_data,
      .write_keep,
      .busy      (tx_busy),
      .chosen    (tx_chosen),
      .at        (tx_at),
      .at_written(writtens[tx_at]),
      .report_valid(tx_report),
      .report_ready(tx_report_ready),
      .report_to   (tx_report_to),
      .dropped
  );

  msg_tcp_rx #(
      .SESSIONS (SESSIONS),
      .RING_BITS(RING_BITS)
  ) u_rx (
      .clk,
      .rst,
      .put,
      .put_rank,
      .put_station,
      .put_port,
      .states,
      .job_key,
      .open,
      .open_active,
      .open_at,
      .open_station(call),
      .rcv_notify,
      .rcv_notify_at,
      .rcv_notify_next,
      .rcv_notify_ended,
      .close       (release_session),
      .close_at    (dead_at),
      .late,
      .friend_valid,
      .friend_ready,
      .friend_good,
      .friend_station,
      .live,
      .station_of,
      .read_address,
      .read_data,
      .m_valid,
      .m_ready,
      .m_beat,
      .a_valid,
      .a_ready,
      .a_own,
      .a_rank,
      .a_state,
      .busy        (rx_busy),
      .at          (rx_at),
      .at_read     (reads[rx_at]),
      .report_valid  (rx_report),
      .report_ready  (rx_report_ready),
      .report_to     (rx_report_to),
      .report_finish (rx_finish),
      .strange
  );

  // ---- rings ----

  logic [63:0] tx_ring[SESSIONS << (RING_BITS - 3)], rx_ring[SESSIONS << (RING_BITS - 3)];
  logic [63:0] net_fetched;

  always_ff @(posedge clk) begin
    for (int i = 0; i < 8; i++) if (write && write_keep[i]) tx_ring[write_address][8*i+:8] <= write_data[8*i+:8];
    net_fetched   <= tx_ring[net_read.address[WordBits-1:0]];
    net_reads     <= net_read.valid && !rst;
    net_word      <= '{valid: net_reads && !rst, note: '0, data: net_fetched};
  end

  always_ff @(posedge clk) begin
    for (int i = 0; i < 8; i++) if (net_write.valid && net_write.keep[i]) rx_ring[net_write.address[WordBits-1:0]][8*i+:8] <= net_write.data[8*i+:8];
    read_data <= rx_ring[read_address];
  end

  // ---- TCP ----

  net_stack #(
      .SESSIONS      (SESSIONS),
      .RX_RING_BITS  (RING_BITS),
      .TX_RING_BITS  (RING_BITS),
      .IDLE_MS       (0)
  ) u_net (
      .clk,
      .rst,
      .tick,
      .own_mac         (own),
      .own_ip,
      .listen_port     (tcp_port),
      .secret,
      .rx_valid,
      .rx,
      .tx_valid,
      .tx_ready,
      .tx,
      .netmask         ('0),
      .gateway         ('0),
      .reserve         (1'b0),
      .opened,
      .received,
      .change,
      .progress        ('{
        valid:      app,
        session:    net_pkg::session_t'(report_at),
        read_to:    read_reported,
        written_to: written_reported,
        finish:     finishing
      }),
      .released        ('{valid: release_session, session: net_pkg::session_t'(dead_at)}),
      .working         ('0),
      .mid_request     ('0),
      .yields          (),
      .connect_valid   (calling),
      .connect_ip      (ips[call]),
      .connect_port    (tcp_port),
      .connect_done,
      .connect_result,
      .udp_port        ('0),
      .udp_from        (),
      .udp_rx_valid    (),
      .udp_rx_ready    (1'b1),
      .udp_rx          (),
      .udp_to          ('0),
      .udp_tx_valid    (1'b0),
      .udp_tx_ready    (),
      .udp_tx          ('0),
      .rx_write        (net_write),
      .rx_write_ready  (1'b1),
      .tx_read         (net_read),
      .tx_read_ready   (1'b1),
      .tx_word         (net_word),
      .counts
  );

  assign {open, open_active, open_at} = {opened.valid, opened.active, opened.session[S-1:0]};
  assign {open_next, open_una} = {opened.next, opened.una};
  assign {rcv_notify, rcv_notify_at} = {received.valid, received.session[S-1:0]};
  assign {rcv_notify_next, rcv_notify_ended} = {received.next, received.ended};
  assign {notify, notify_at, notify_una} = {change.valid, change.session[S-1:0], change.una};
  assign notify_dead = change.dead;
  assign repeated = counts.retransmitted;

`ifndef SYNTHESIS
  hello_stays : assert property (@(posedge clk) disable iff (rst)
      hello_valid && !hello_ready |=> hello_valid && $stable({hello_at, hello_station}));
  one_link : assert property (@(posedge clk) disable iff (rst)
      $onehot0({hello_ready, friend_ready && friend_good, release_session}));
  met_stations_were_called : assert property (@(posedge clk) disable iff (rst)
      met |-> uncalled != '0);
  released_sessions_are_unused : assert property (@(posedge clk) disable iff (rst)
      release_session && rx_busy |-> rx_at != dead_at);
`endif

endmodule
