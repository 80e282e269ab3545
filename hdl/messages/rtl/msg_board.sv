// msg_fabric as the live model has it: 16 kernels, streams as plain ports.
module msg_board
  import msg_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic [47:0] own,
    input  logic        put,
    input  logic [7:0]  put_rank,
    input  logic [4:0]  put_port,
    input  logic [47:0] put_address,
    input  logic [31:0] states,
    input  logic [15:0] k_valid,
    output logic [15:0] k_ready,
    input  logic [15:0] k_last,
    input  logic [63:0] k_data[16],
    output logic [15:0] m_valid,
    input  logic [15:0] m_ready,
    output logic [15:0] m_last,
    output logic [63:0] m_data[16],
    input  logic        rx_valid,
    output logic        rx_ready,
    input  logic        rx_last,
    input  logic [63:0] rx_data,
    output logic        tx_valid,
    input  logic        tx_ready,
    output logic        tx_last,
    output logic [63:0] tx_data,
    output logic [15:0] lost,
    output logic [15:0] repeated,
    output logic [15:0] strange,
    output logic [15:0] dropped
);

  beat_t k_beat[16], m_beat[16], rx_beat, tx_beat;

  for (genvar i = 0; i < 16; i++) begin : g_port
    assign k_beat[i] = '{last: k_last[i], data: k_data[i]};
    assign m_last[i] = m_beat[i].last;
    assign m_data[i] = m_beat[i].data;
  end
  assign rx_beat = '{last: rx_last, data: rx_data};
  assign tx_last = tx_beat.last;
  assign tx_data = tx_beat.data;

  msg_fabric u_fabric (.*);

endmodule
