// One of six boards with sixteen kernels that only send and receive;
// board B has ranks 16 B to 16 B + 15.
module msg_boards_top
  import hum_envelope_pkg::*;
  import msg_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        put,
    input  logic [7:0]  put_rank,
    input  logic        go,
    input  logic [2:0]  board,
    input  logic        away,       // to the same kernel of the next board, otherwise to the next
                                    // kernel of this one
    input  logic        eager,
    input  logic [15:0] messages,
    input  logic [23:0] size,
    input  logic        rx_valid,
    output logic        rx_ready,
    input  logic        rx_last,
    input  logic [63:0] rx_data,
    output logic        tx_valid,
    input  logic        tx_ready,
    output logic        tx_last,
    output logic [63:0] tx_data,
    output logic [15:0] received[16],
    output logic        wrong,
    output logic [15:0] lost,
    output logic [15:0] dropped
);

  logic [15:0] k_valid, k_ready, m_valid, m_ready, wrongs;
  beat_t k_beat[16], m_beat[16], tx_beat;
  logic [2:0] next, previous;

  assign tx_last  = tx_beat.last;
  assign tx_data  = tx_beat.data;
  assign wrong    = wrongs != '0;
  assign next     = board == 3'd5 ? 3'd0 : board + 1'b1;
  assign previous = board == 3'd0 ? 3'd5 : board - 1'b1;

  msg_fabric u_fabric (
      .own        (48'h020000000000 + 48'(board)),
      .own_ip     ('0),
      .put_port   (put_rank >= 8'd96 ? 5'd31 : put_rank[6:4] == board ? {1'b0, put_rank[3:0]} : 5'd16),
      .put_address(48'h020000000000 + 48'(put_rank[7:4])),
      .put_ip     ('0),
      .states     ('0),
      .rx_beat    ('{last: rx_last, data: rx_data}),
      .repeated   (),
      .strange    (),
      .*
  );

  for (genvar k = 0; k < 16; k++) begin : g_kernel
    msg_traffic u_kernel (
        .own     ({1'b0, board, 4'(k)}),
        .dest    (away ? {1'b0, next, 4'(k)} : {1'b0, board, 4'(k + 1)}),
        .source  (away ? {1'b0, previous, 4'(k)} : {1'b0, board, 4'(k + 15)}),
        .received(received[k]),
        .wrong   (wrongs[k]),
`include "kernel_packets.svh"
        .*
    );
  end

endmodule
