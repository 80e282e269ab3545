// Two boards of four kernels each, ranks 0 to 3 and 4 to 7;
// frames between them pass through the bench.
//
// Parameter W: 0, raw Ethernet; 1, TCP, with a connection from board 1 to board 0; 2, UDP.
module msg_fabric_top
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int W = 0
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        tick,
    input  logic        put,
    input  logic [7:0]  put_rank,
    input  logic        station_put,
    input  logic [8:0]  ranks,
    input  logic        send_valid[8],
    output logic        send_ready[8],
    input  logic [63:0] send_command[8],
    input  logic        out_valid[8],
    output logic        out_ready[8],
    input  logic [63:0] out_data[8],
    output logic        send_done[8],
    output logic [7:0]  send_fault[8],
    input  logic        receive_valid[8],
    output logic        receive_ready[8],
    input  logic [63:0] receive_command[8],
    output logic        in_valid[8],
    input  logic        in_ready[8],
    output logic [63:0] in_data[8],
    output logic        receive_done[8],
    output logic [63:0] receive_outcome[8],
    input  logic        rx_valid[2],
    output logic        rx_ready[2],
    input  logic        rx_last[2],
    input  logic [63:0] rx_data[2],
    input  logic [7:0]  rx_keep[2],
    output logic        tx_valid[2],
    input  logic        tx_ready[2],
    output logic        tx_last[2],
    output logic [63:0] tx_data[2],
    output logic [7:0]  tx_keep[2],
    output logic [15:0] lost[2],
    output logic [15:0] repeated[2],
    output logic [15:0] strange[2],
    output logic [15:0] dropped[2],
    output logic        owed[2],
    output logic        failed[2],
    output logic [31:0] segments_repeated[2],
    // Signals for measuring the bridges' latency.
    output logic        bridge_in_tx,   // a packet's first beat waits at board 0's output
    output logic        bridge_out_rx   // a packet's first beat leaves board 1's input
);

  for (genvar b = 0; b < 2; b++) begin : g_board
    logic [3:0] k_valid, k_ready, m_valid, m_ready;
    beat_t k_beat[4], m_beat[4];
    logic [4:0] port;
    logic bridge_in, bridge_out;
    assign port = put_rank[7:3] != '0 ? 5'd31 : put_rank[2] == (b == 1) ? 5'(put_rank[1:0]) : 5'd16;

    if (W != 1) begin : g_eth
      beat_t tx_beat;
      assign tx_last[b] = tx_beat.last;
      assign tx_data[b] = tx_beat.data;
      assign tx_keep[b] = '1;
      assign owed[b]    = 1'b0;
      assign failed[b]  = 1'b0;
      assign segments_repeated[b] = '0;
      assign bridge_in  = u_fabric.t_valid;
      assign bridge_out = u_fabric.n_valid;

      msg_fabric #(
          .PORTS(4),
          .UDP  (W == 2 ? 1 : 0)
      ) u_fabric (
          .own        (48'h020000000010 + 48'(b)),
          .own_ip     (32'h0a000010 + 32'(b)),
          .put_port   (port),
          .put_address(48'h020000000010 + 48'(put_rank[2])),
          .put_ip     (32'h0a000010 + 32'(put_rank[2])),
          .states     (32'h8000_0000),
          .rx_valid   (rx_valid[b]),
          .rx_ready   (rx_ready[b]),
          .rx_beat    ('{last: rx_last[b], data: rx_data[b]}),
          .tx_valid   (tx_valid[b]),
          .tx_ready   (tx_ready[b]),
          .lost       (lost[b]),
          .repeated   (repeated[b]),
          .strange    (strange[b]),
          .dropped    (dropped[b]),
          .*
      );
    end else begin : g_tcp
      net_pkg::beat_t tx;
      assign tx_last[b]  = tx.last;
      assign tx_data[b]  = tx.data;
      assign tx_keep[b]  = tx.keep;
      assign rx_ready[b] = 1'b1;
      assign lost[b]     = '0;
      assign repeated[b] = '0;
      assign bridge_in   = u_fabric.t_valid;
      assign bridge_out  = u_fabric.n_valid;

      msg_fabric_tcp #(
          .PORTS    (4),
          .SESSIONS (16),
          .RING_BITS(14)
      ) u_fabric (
          .own           (48'h020000000010 + 48'(b)),
          .own_ip        (32'h0a000010 + 32'(b)),
          .own_station   (8'(b)),
          .tcp_port      (16'd9000),
          .secret        (64'h0123456789abcdef + 64'(b)),
          .job_key       (128'h00112233445566778899aabbccddeeff),
          .put_port      (port),
          .put_station   (8'(put_rank[2])),
          .station       (8'(1 - b)),
          .station_role  (b == 1 ? 2'd1 : 2'd2),
          .station_ip    (32'h0a000010 + 32'(1 - b)),
          .states        (32'h8000_0000),
          .rx_valid      (rx_valid[b]),
          .rx            ('{data: rx_data[b], keep: rx_keep[b], last: rx_last[b]}),
          .tx_valid      (tx_valid[b]),
          .tx_ready      (tx_ready[b]),
          .owed          (owed[b]),
          .failed        (failed[b]),
          .failed_station(),
          .repeated      (segments_repeated[b]),
          .strange       (strange[b]),
          .dropped       (dropped[b]),
          .unsent        (),
          .*
      );
    end

    for (genvar k = 0; k < 4; k++) begin : g_kernel
      localparam int R = 4 * b + k;
      outcome_t outcome;
      assign receive_outcome[R] = 64'(outcome);
      msg_port u_port (
          .own            (8'(R)),
          .send_valid     (send_valid[R]),
          .send_ready     (send_ready[R]),
          .send_command   (send_t'(send_command[R])),
          .out_valid      (out_valid[R]),
          .out_ready      (out_ready[R]),
          .out_data       (out_data[R]),
          .send_done      (send_done[R]),
          .send_fault     (send_fault[R]),
          .receive_valid  (receive_valid[R]),
          .receive_ready  (receive_ready[R]),
          .receive_command(receive_t'(receive_command[R])),
          .in_valid       (in_valid[R]),
          .in_ready       (in_ready[R]),
          .in_data        (in_data[R]),
          .receive_done   (receive_done[R]),
          .receive_outcome(outcome),
`include "kernel_packets.svh"
          .*
      );
    end
  end

  assign bridge_in_tx  = g_board[0].bridge_in;
  assign bridge_out_rx = g_board[1].bridge_out;

endmodule
