// The message door of a board: its router, the bridge to the network, and the message ports of its
// regions. Frames of messages share the Ethernet port with those of the HTTP door.
//
// A region's kernel is a rank while the table has one for its port (`tables.put`), and its run has
// begun (docs/kernels.md). The state of a run, for those who ask about it (msg_eth_rx): running,
// ended, or failed, which includes one that was killed.
//
// Parameters: REGIONS, a power of two; NETWORK: 1, raw Ethernet; 2, UDP; 3, TCP, with a network stack
// of its own, whose address is not that of HTTP; FRAMES, beats of received frames that are stored
// without TCP.
module board_messages
  import fn_pkg::*;
  import host_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter int NETWORK = 1,
    parameter int FRAMES = 1024
) (
    input  logic           clk,
    input  logic           rst,
    input  logic           tick,
    input  logic [47:0]    own_mac,
    input  message_tables_t tables,
    // The Ethernet port, and the frames of the HTTP door.
    input  logic           rx_valid,
    input  net_pkg::beat_t rx,
    input  logic           stack_valid,
    output logic           stack_ready,
    input  net_pkg::beat_t stack,
    output logic           tx_valid,
    input  logic           tx_ready,
    output net_pkg::beat_t tx,
    // The regions.
    input  logic [REGIONS-1:0]      region_start,
    input  logic [REGIONS-1:0]      region_off,
    input  logic [REGIONS-1:0]      region_done,
    input  logic [REGIONS-1:0]      region_failed,
    input  logic [REGIONS-1:0][1:0] region_code,
    input  packets_t       kernel      [REGIONS],
    output packets_t       kernel_reply[REGIONS],
    output logic           busy,        // frames or packets are on their way
    output logic           pause,       // there is no space for another received frame
    output logic           owed,        // see msg_tcp
    output logic           failed,
    output logic [7:0]     failed_station
);

  localparam int Ports = 16;  // of a table's line: the network

  logic [REGIONS-1:0] k_valid, k_ready, m_valid, m_ready;
  msg_pkg::beat_t     k_beat[REGIONS], m_beat[REGIONS];
  logic [1:0]         states[16];
  logic [31:0]        all_states;
  logic               out_valid, out_ready, frames_wait;
  net_pkg::beat_t     out;
  logic [4:0]         port;

  for (genvar i = 0; i < 16; i++) begin : g_state
    assign all_states[2*i+:2] = states[i];
    if (i < REGIONS) begin : g_region
      always_ff @(posedge clk) begin
        if (region_done[i]) states[i] <= region_failed[i] || region_code[i] != '0 ? 2'd2 : 2'd1;
        if (region_start[i] || rst) states[i] <= 2'd0;
      end
      region_packets u_packets (
          .clk,
          .rst,
          .start       (region_start[i]),
          .off         (region_off[i]),
          .put         (tables.put && tables.port == 5'(i)),
          .put_rank    (tables.rank),
          .kernel      (kernel[i]),
          .kernel_reply(kernel_reply[i]),
          .k_valid     (k_valid[i]),
          .k_ready     (k_ready[i]),
          .k_beat      (k_beat[i]),
          .m_valid     (m_valid[i]),
          .m_ready     (m_ready[i]),
          .m_beat      (m_beat[i])
      );
    end else begin : g_none
      assign states[i] = 2'd0;
    end
  end

  // ---- the fabric's clock, gated while nothing moves in it ----
  // After a reset it clears its tables. The gates of TCP's modules cannot follow another gate.
  logic own_clk;
  if (NETWORK == 3) begin : g_no_gate
    assign own_clk = clk;
  end else begin : g_gate
    localparam logic [12:0] Linger = 13'd64;
    logic [12:0] rest;
    logic        moves;

    assign moves = rst || tables.put || k_valid != '0 || m_valid != '0 || out_valid || frames_wait;

    always_ff @(posedge clk) begin
      if (rst) rest <= '0;
      else if (moves && rest > '1 - Linger) rest <= '1 - Linger;
      else if (rest != '1) rest <= rest + 1'b1;
    end

    clock_gate u_gate (
        .clk,
        .wake (moves || rest != '1),
        .gated(own_clk)
    );
  end

  // A port that the board lacks is that of no rank.
  assign port = tables.port < 5'(REGIONS) || tables.port == 5'(Ports) ? tables.port : '1;

  if (NETWORK == 3) begin : g_tcp
    logic [15:0] unused_counts[3];
    logic [31:0] unused_repeated;
    logic        unused_address;
    assign unused_address = &{1'b0, tables.address};
    assign {pause, frames_wait} = '0;
    msg_fabric_tcp #(
        .PORTS(REGIONS)
    ) u_fabric (
        .clk        (own_clk),
        .rst,
        .tick,
        .own        (own_mac),
        .own_ip     (tables.own_ip),
        .own_station(tables.own_station),
        .tcp_port   (tables.tcp_port),
        .secret     (tables.secret),
        .job_key    (tables.job_key),
        .put        (tables.put),
        .put_rank   (tables.rank),
        .put_port   (port),
        .put_station(tables.at),
        .station_put(tables.station_put),
        .station    (tables.station),
        .station_role(tables.role),
        .station_ip (tables.ip),
        .states     (all_states),
        .rx_valid,
        .rx,
        .tx_valid   (out_valid),
        .tx_ready   (out_ready),
        .tx         (out),
        .repeated   (unused_repeated),
        .strange    (unused_counts[0]),
        .dropped    (unused_counts[1]),
        .unsent     (unused_counts[2]),
        .*
    );
  end else begin : g_frames
    logic           frame_valid, frame_ready, unused_tables;
    msg_pkg::beat_t frame, tx_beat;
    logic [15:0]    unused_counts[5];
    assign unused_tables = &{1'b0, tables, tick};
    assign {owed, failed, failed_station} = '0;
    assign frames_wait = frame_valid;
    assign out = '{data: tx_beat.data, keep: '1, last: tx_beat.last};

    msg_frames #(
        .DEPTH(FRAMES),
        .TYPE (NETWORK == 2 ? 16'h0800 : hum_envelope_pkg::LimitEthertype)
    ) u_frames (
        .clk,
        .rst,
        .rx_valid,
        .rx,
        .m_valid(frame_valid),
        .m_ready(frame_ready),
        .m_beat (frame),
        .dropped(unused_counts[0]),
        .pause
    );

    msg_fabric #(
        .PORTS(REGIONS),
        .UDP  (NETWORK == 2 ? 1 : 0)
    ) u_fabric (
        .clk        (own_clk),
        .rst,
        .own        (own_mac),
        .own_ip     (tables.own_ip),
        .put        (tables.put),
        .put_rank   (tables.rank),
        .put_port   (port),
        .put_address(tables.address),
        .put_ip     (tables.ip),
        .states     (all_states),
        .rx_valid   (frame_valid),
        .rx_ready   (frame_ready),
        .rx_beat    (frame),
        .tx_valid   (out_valid),
        .tx_ready   (out_ready),
        .tx_beat,
        .lost       (unused_counts[1]),
        .repeated   (unused_counts[2]),
        .strange    (unused_counts[3]),
        .dropped    (unused_counts[4]),
        .*
    );
  end

  net_pkg::beat_t senders[2];
  assign senders[0] = stack;
  assign senders[1] = out;

  net_mux #(
      .N(2)
  ) u_mux (
      .clk,
      .rst,
      .s_valid({out_valid, stack_valid}),
      .s_ready({out_ready, stack_ready}),
      .s      (senders),
      .m_valid(tx_valid),
      .m_ready(tx_ready),
      .m      (tx)
  );

  assign busy = out_valid || frames_wait || k_valid != '0 || m_valid != '0;

`ifndef SYNTHESIS
  frames_stay : assert property (@(posedge clk) disable iff (rst)
      tx_valid && !tx_ready |=> tx_valid && $stable(tx));
  packets_wait : assert property (@(posedge clk) disable iff (rst) k_valid != '0 |-> busy);
`endif

endmodule
