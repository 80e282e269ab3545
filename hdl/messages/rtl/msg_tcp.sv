// TCP network bridge: packets ↔ TCP sessions, one for each pair of stations, and the frames that they go by.
//
// A station is a board, or a process that has a rank. Of two one opens the session and says hello: its number and the
// job's key. What a session loses TCP repeats; one that is reset, or given up, is said (`failed`).
//
// `tick` comes once a millisecond. `station_put` says what is to be known of a station: 1, it is to be called, at `station_ip`;
// 2, it will call; not within 256 cycles of the reset.
//
// Parameters: SESSIONS; RING_BITS, log2 of the bytes of each session's ring, either way.
module msg_tcp
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter  int SESSIONS = 32,
    parameter  int RING_BITS = 14,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             tick,
    input  logic [47:0]      own,           // this board's addresses and number
    input  logic [31:0]      own_ip,
    input  logic [7:0]       own_station,
    input  logic [15:0]      tcp_port,      // of all stations
    input  logic [63:0]      secret,        // of the SYN cookies
    input  logic [1:0][63:0] job_key,
    input  logic             put,           // a rank: its port (16: elsewhere), and its station
    input  logic [7:0]       put_rank,
    input  logic [4:0]       put_port,
    input  logic [7:0]       put_station,
    input  logic             station_put,
    input  logic [7:0]       station,
    input  logic [1:0]       station_role,
    input  logic [31:0]      station_ip,
    input  logic [31:0]      states,        // of the kernels: see msg_tcp_rx
    // The router.
    input  logic             s_valid,
    output logic             s_ready,
    input  beat_t            s_beat,
    output logic             m_valid,
    input  logic             m_ready,
    output beat_t            m_beat,
    // Frames: the stream side of a MAC, without check sequence and filling.
    input  logic             rx_valid,
    input  net_pkg::beat_t   rx,
    output logic             tx_valid,
    input  logic             tx_ready,
    output net_pkg::beat_t   tx,
    output logic             owed,          // something has not been acknowledged, or a station does not answer yet
    output logic             failed,        // this station's session, without an end
    output logic [7:0]       failed_station,
    output logic [31:0]      repeated,      // segments
    output logic [15:0]      strange,       // packets that were left
    output logic [15:0]      dropped
);

  localparam int WAIT_MS = 20;  // between two attempts

  typedef enum logic [1:0] { Unknown, Call, Await, Met } role_t;

  // ---- sessions ----

  logic open, open_active, told, told_ended, tell, tell_dead, release_session, finishing, connect_done, app;
  logic [S-1:0] open_at, told_at, tell_at, tx_at, rx_at, dead_at, said_at;
  logic [31:0] open_next, open_una, told_next, tell_una, tx_said_to, rx_said_to;
  logic tx_busy, tx_chosen, tx_said, tx_said_ready, rx_busy, rx_said, rx_said_ready, rx_finish;
  logic [31:0] reads[SESSIONS], writtens[SESSIONS], read_said, written_said;
  logic [SESSIONS-1:0] finished, ended, unacked, live;
  logic [7:0] station_of[SESSIONS];
  logic link, link_open;
  logic [7:0] link_station;
  logic [S-1:0] link_session;
  net_pkg::connect_result_t connect_result;

  // How far each has been read and written, here and as TCP is told.
  assign tx_said_ready = !open;
  assign rx_said_ready = !open && !tx_said;
  assign app           = !open && (tx_said || rx_said);
  assign said_at       = tx_said ? tx_at : rx_at;
  assign read_said     = tx_said ? reads[said_at] : rx_said_to;
  assign written_said  = tx_said ? tx_said_to : writtens[said_at];
  assign finishing     = finished[said_at] || (!tx_said && rx_finish);

  always_ff @(posedge clk) begin
    if (open || (tx_said && tx_said_ready)) writtens[open ? open_at : tx_at] <= open ? open_una : tx_said_to;
    if (open || (rx_said && rx_said_ready)) reads[open ? open_at : rx_at] <= open ? open_next : rx_said_to;
    if (tell) unacked[tell_at] <= tell_una != writtens[tell_at];
    if (tx_said && tx_said_ready) unacked[tx_at] <= 1'b1;
    if (app) finished[said_at] <= finishing;
    if (told) ended[told_at] <= told_ended;
    if (open) begin
      finished[open_at] <= 1'b0;
      unacked[open_at]  <= 1'b0;
    end
  end

  // ---- sessions that are over: given back when nobody is busy with them ----

  logic dead_valid, calm;
  fifo #(
      .T(logic [S-1:0]),
      .DEPTH(SESSIONS)
  ) u_dead (
      .clk,
      .rst,
      .s_valid  (tell && tell_dead),
      .s_ready  (),  // each session is in it once
      .s_payload(tell_at),
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
    // One station after another is called, until it answers. Its role is there a cycle later.
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
  logic write, net_write, net_read;
  logic [S+RING_BITS-4:0] write_address, net_write_address, net_read_address, read_address;
  logic [63:0] write_data, net_write_data, net_read_data, read_data;
  logic [7:0] write_keep, net_write_keep;

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
      .acked     (tell),
      .acked_at  (tell_at),
      .acked_to  (tell_una),
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
      .said_valid(tx_said),
      .said_ready(tx_said_ready),
      .said_to   (tx_said_to),
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
      .told,
      .told_at,
      .told_next,
      .told_ended,
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
      .said_valid  (rx_said),
      .said_ready  (rx_said_ready),
      .said_to     (rx_said_to),
      .said_finish (rx_finish),
      .strange
  );

  // ---- rings ----

  logic [63:0] tx_ring[SESSIONS << (RING_BITS - 3)], rx_ring[SESSIONS << (RING_BITS - 3)], net_word;

  always_ff @(posedge clk) begin
    for (int i = 0; i < 8; i++) if (write && write_keep[i]) tx_ring[write_address][8*i+:8] <= write_data[8*i+:8];
    net_word      <= tx_ring[net_read_address];
    net_read_data <= net_word;
  end

  always_ff @(posedge clk) begin
    for (int i = 0; i < 8; i++) if (net_write && net_write_keep[i]) rx_ring[net_write_address][8*i+:8] <= net_write_data[8*i+:8];
    read_data <= rx_ring[read_address];
  end

  // ---- TCP ----

  net_stack #(
      .SESSIONS      (SESSIONS),
      .RX_RING_BITS  (RING_BITS),
      .TX_RING_BITS  (RING_BITS),
      .MEMORY_LATENCY(2),
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
      .open,
      .open_active,
      .open_at,
      .open_next,
      .open_una,
      .rcv_told        (told),
      .rcv_at          (told_at),
      .rcv_next        (told_next),
      .rcv_ended       (told_ended),
      .arrived         (),
      .tell,
      .tell_at,
      .tell_una,
      .tell_dead,
      .tell_shut       (),
      .tell_wake       (),
      .app_valid       (app),
      .app_at          (said_at),
      .app_read_to     (read_said),
      .app_written_to  (written_said),
      .app_finish      (finishing),
      .release_valid   (release_session),
      .release_at      (dead_at),
      .working         ('0),
      .mid_request     ('0),
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
      .rx_write_address(net_write_address),
      .rx_write_data   (net_write_data),
      .rx_write_keep   (net_write_keep),
      .tx_read         (net_read),
      .tx_read_address (net_read_address),
      .tx_read_data    (net_read_data),
      .count_opened    (),
      .count_retransmitted(repeated),
      .count_reset     (),
      .count_open      ()
  );

  logic unused_net;
  assign unused_net = &{1'b0, net_read};

endmodule
