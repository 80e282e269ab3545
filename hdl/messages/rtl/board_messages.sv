// The message door of a board: its router, the bridge to raw Ethernet, and the message ports of its
// regions. Frames of messages share the Ethernet port with those of the network stack.
//
// A region's kernel is a rank while the table has one for its port (`place`), and its run has begun
// (docs/kernels.md). The state of a run, for those who ask about it (msg_eth_rx): running, ended, or
// failed, which includes one that was killed.
//
// Parameters: REGIONS, a power of two; FRAMES, beats of received frames that are stored.
module board_messages
  import fn_pkg::*;
  import host_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter int FRAMES = 1024
) (
    input  logic           clk,
    input  logic           rst,
    input  logic [47:0]    own_mac,
    input  place_t         place,
    // The Ethernet port, and the frames of the network stack.
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
    output logic           pause        // there is no space for another received frame
);

  localparam int Ports = 16;  // of a table's line: the network

  logic [REGIONS-1:0] k_valid, k_ready, m_valid, m_ready;
  msg_pkg::beat_t     k_beat[REGIONS], m_beat[REGIONS];
  logic [1:0]         states[16];
  logic [31:0]        all_states;
  logic               frame_valid, frame_ready, out_valid, out_ready;
  msg_pkg::beat_t     frame, out;
  logic [15:0]        unused_counts[5];

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
          .put         (place.valid && place.port == 5'(i)),
          .put_rank    (place.rank),
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

  msg_frames #(
      .DEPTH(FRAMES)
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

  // A port that the board lacks is that of no rank.
  msg_fabric #(
      .PORTS(REGIONS)
  ) u_fabric (
      .clk,
      .rst,
      .own        (own_mac),
      .own_ip     ('0),
      .put        (place.valid),
      .put_rank   (place.rank),
      .put_port   (place.port < 5'(REGIONS) || place.port == 5'(Ports) ? place.port : '1),
      .put_address(place.address),
      .put_ip     ('0),
      .states     (all_states),
      .k_valid,
      .k_ready,
      .k_beat,
      .m_valid,
      .m_ready,
      .m_beat,
      .rx_valid   (frame_valid),
      .rx_ready   (frame_ready),
      .rx_beat    (frame),
      .tx_valid   (out_valid),
      .tx_ready   (out_ready),
      .tx_beat    (out),
      .lost       (unused_counts[1]),
      .repeated   (unused_counts[2]),
      .strange    (unused_counts[3]),
      .dropped    (unused_counts[4])
  );

  net_pkg::beat_t senders[2];
  assign senders[0] = stack;
  assign senders[1] = '{data: out.data, keep: '1, last: out.last};

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

  assign busy = frame_valid || out_valid || k_valid != '0 || m_valid != '0;

endmodule
