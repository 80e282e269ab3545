// The board for place and route: the shell with two regions, and a kernel in
// each. Its rings are in block RAM; board memory, configuration port, host and MAC are outside.
//
// Parameters: as in board_shell; PORT, bits of the Ethernet port: 64, the shell's own, or 32, at
// `port_clk` (board_port32).
module board_top
  import axi_pkg::*;
  import board_pkg::*;
  import fn_pkg::*;
  import host_pkg::*;
#(
    localparam int REGIONS = 2,
    parameter  int PORT = 64,
    parameter  int SESSIONS = 16,
    parameter  int RING_BITS = 12,
    parameter  bit STORE = 1,
    parameter  bit UDP = 1,
    parameter  int ISLANDS = 4,
    parameter  int QUEUE = 16,
    parameter  int HOST_CALLS = REGIONS,
    parameter  bit SHORTEST = 1,
    parameter  bit KERNEL_MEMORY = 0
) (
    input  logic        port_clk,  // of a PORT of 32 bits
    input  logic        clk,
    input  logic        rst,
    input  logic        tick,
    input  settings_t   settings,
    input  logic        rx_valid,
    input  logic [PORT-1:0] rx_data,
    input  logic [PORT/8-1:0] rx_keep,
    input  logic        rx_last,
    output logic        tx_valid,
    input  logic        tx_ready,
    output logic [PORT-1:0] tx_data,
    output logic [PORT/8-1:0] tx_keep,
    output logic        tx_last,
`include "board_bus_ports.svh"
    // The configuration port.
    input  logic             configuration_ready,
    output configuration_t   configuration,
    output logic [REGIONS-1:0] decouple,
    output events_t          events
);

  kernel_in_t kernel_in[REGIONS];
  kernel_out_t kernel_out[REGIONS];

  net_pkg::beat_t shell_rx, shell_tx;
  logic shell_rx_valid, shell_tx_valid, shell_tx_ready;

  if (PORT == 32) begin : g_port32
    logic unused_port_rst;
    logic [15:0] unused_dropped;
    board_port32 u_port (
        .port_clk,
        .port_rst     (unused_port_rst),
        .port_rx_valid(rx_valid),
        .port_rx_data (rx_data),
        .port_rx_keep (rx_keep),
        .port_rx_last (rx_last),
        .port_tx_valid(tx_valid),
        .port_tx_ready(tx_ready),
        .port_tx_data (tx_data),
        .port_tx_keep (tx_keep),
        .port_tx_last (tx_last),
        .clk,
        .rst,
        .rx_valid     (shell_rx_valid),
        .rx_data      (shell_rx.data),
        .rx_keep      (shell_rx.keep),
        .rx_last      (shell_rx.last),
        .rx_dropped   (unused_dropped),
        .tx_valid     (shell_tx_valid),
        .tx_ready     (shell_tx_ready),
        .tx_data      (shell_tx.data),
        .tx_keep      (shell_tx.keep),
        .tx_last      (shell_tx.last)
    );
  end else begin : g_port64
    assign shell_rx_valid = rx_valid;
    assign shell_rx = '{data: rx_data, keep: rx_keep, last: rx_last};
    assign tx_valid = shell_tx_valid;
    assign shell_tx_ready = tx_ready;
    assign tx_data = shell_tx.data;
    assign tx_keep = shell_tx.keep;
    assign tx_last = shell_tx.last;
  end

  board_shell #(
      .SESSIONS    (SESSIONS),
      .REGIONS     (REGIONS),
      .RX_RING_BITS(RING_BITS),
      .TX_RING_BITS(RING_BITS),
      .STORE       (STORE),
      .UDP         (UDP),
      .ISLANDS     (ISLANDS),
      .QUEUE       (QUEUE),
      .HOST_CALLS  (HOST_CALLS),
      .SHORTEST    (SHORTEST),
      .KERNEL_MEMORY(KERNEL_MEMORY)
  ) u_shell (
      .rx_valid(shell_rx_valid),
      .rx      (shell_rx),
      .tx_valid(shell_tx_valid),
      .tx_ready(shell_tx_ready),
      .tx      (shell_tx),
      .*
  );

  // Both stream: without ports to board memory.
  assign {kernel_out[0].code, kernel_out[1].code} = '0;
  assign kernel_out[0].memory = '0;
  assign kernel_out[1].memory = '0;
  assign kernel_out[0].packets = '0;
  assign kernel_out[1].packets = '0;

  kernel_echo u_echo (
      .clk,
      .rst    (kernel_in[0].rst),
      .start  (kernel_in[0].start),
      .params (kernel_in[0].params),
      .done   (kernel_out[0].done),
      .s_valid(kernel_in[0].streams.s_valid),
      .s_ready(kernel_out[0].streams.s_ready),
      .s_data (kernel_in[0].streams.s_data),
      .s_keep (kernel_in[0].streams.s_keep),
      .s_last (kernel_in[0].streams.s_last),
      .m_valid(kernel_out[0].streams.m_valid),
      .m_ready(kernel_in[0].streams.m_ready),
      .m_data (kernel_out[0].streams.m_data),
      .m_keep (kernel_out[0].streams.m_keep),
      .m_last (kernel_out[0].streams.m_last)
  );

  kernel_sobel u_sobel (
      .clk,
      .rst    (kernel_in[1].rst),
      .start  (kernel_in[1].start),
      .params (kernel_in[1].params),
      .done   (kernel_out[1].done),
      .s_valid(kernel_in[1].streams.s_valid),
      .s_ready(kernel_out[1].streams.s_ready),
      .s_data (kernel_in[1].streams.s_data),
      .s_keep (kernel_in[1].streams.s_keep),
      .s_last (kernel_in[1].streams.s_last),
      .m_valid(kernel_out[1].streams.m_valid),
      .m_ready(kernel_in[1].streams.m_ready),
      .m_data (kernel_out[1].streams.m_data),
      .m_keep (kernel_out[1].streams.m_keep),
      .m_last (kernel_out[1].streams.m_last)
  );

endmodule
