// The board for place and route: the shell with two regions, and a kernel in
// each. Its rings are in block RAM; board memory, configuration port, host and MAC are outside.
//
// Parameters: as in board_shell; PORT, bits of the Ethernet port: 64, the shell's own, or 32, at
// `port_clk` (board_port32).
module board_top #(
    parameter  int PORT = 64,
    parameter  int SESSIONS = 16,
    parameter  int RING_BITS = 12,
    parameter  bit STORE = 1,
    parameter  bit UDP = 1,
    parameter  int ISLANDS = 4,
    parameter  int QUEUE = 16,
    parameter  bit HOST_CALLS = 1,
    parameter  bit SHORTEST = 1,
    localparam int REGIONS = 2,
    localparam int R = 1
) (
    input  logic        port_clk,  // of a PORT of 32 bits
    input  logic        clk,
    input  logic        rst,
    input  logic        tick,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic [15:0] listen_port,
    input  logic [63:0] secret,
    input  logic [8*http_pkg::KEY_BYTES-1:0] api_key,  // required in requests, its first character
                                                       // in bits 7:0; zeros: none
    input  logic        rx_valid,
    input  logic [PORT-1:0] rx_data,
    input  logic [PORT/8-1:0] rx_keep,
    input  logic        rx_last,
    output logic        tx_valid,
    input  logic        tx_ready,
    output logic [PORT-1:0] tx_data,
    output logic [PORT/8-1:0] tx_keep,
    output logic        tx_last,
    output logic        busy,     // a request is being processed
    input  logic [31:0] store_ip,
    input  logic [15:0] store_port,
    input  logic [511:0] store_path,
    input  logic [31:0] store_base,
    input  logic [31:0] netmask,
    input  logic [31:0] gateway,
    input  logic [15:0] udp_echo,
    input  logic        host_write,
    input  logic [ 5:0] host_address,
    input  logic [31:0] host_data,
    output logic [31:0] host_read_data,
    output logic        host_ended,
    output logic        dma_read_valid,
    input  logic        dma_read_ready,
    output logic [63:0] dma_read_address,
    output logic [ 5:0] dma_read_beats,
    input  logic        dma_data_valid,
    input  logic [63:0] dma_data,
    input  logic        dma_data_error,
    output logic        dma_write_valid,
    input  logic        dma_write_ready,
    output logic [63:0] dma_write_address,
    output logic [63:0] dma_write_data,
    output logic [ 7:0] dma_write_keep,
    output logic        arvalid,
    input  logic        arready,
    output logic [31:0] araddr,
    output logic [ 7:0] arlen,
    output logic [ 2:0] arsize,
    output logic [ 1:0] arburst,
    input  logic        rvalid,
    output logic        rready,
    input  logic [63:0] rdata,
    input  logic [ 1:0] rresp,
    input  logic        rlast,
    output logic        awvalid,
    input  logic        awready,
    output logic [31:0] awaddr,
    output logic [ 7:0] awlen,
    output logic [ 2:0] awsize,
    output logic [ 1:0] awburst,
    output logic        wvalid,
    input  logic        wready,
    output logic [63:0] wdata,
    output logic [ 7:0] wstrb,
    output logic        wlast,
    input  logic        bvalid,
    output logic        bready,
    input  logic [ 1:0] bresp,
    output logic         icap_valid,
    input  logic         icap_ready,
    output logic [31:0]  icap_data,
    output logic [R-1:0] icap_region,
    output logic         swap,
    output logic [R-1:0] swap_region,
    output logic [31:0]  swap_kernel,
    output logic [REGIONS-1:0] decouple,
    output logic         call_requested,
    output logic         call_granted,
    output logic         call_ended
);

  logic [REGIONS-1:0] k_rst, k_start, k_done, k_s_valid, k_s_ready, k_s_last, k_m_valid, k_m_ready, k_m_last;
  logic [127:0] k_params[REGIONS];
  logic [63:0] k_s_data[REGIONS], k_m_data[REGIONS];
  logic [7:0] k_s_keep[REGIONS], k_m_keep[REGIONS];

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
      .SHORTEST    (SHORTEST)
  ) u_shell (
      .rx_valid(shell_rx_valid),
      .rx_data (shell_rx.data),
      .rx_keep (shell_rx.keep),
      .rx_last (shell_rx.last),
      .tx_valid(shell_tx_valid),
      .tx_ready(shell_tx_ready),
      .tx_data (shell_tx.data),
      .tx_keep (shell_tx.keep),
      .tx_last (shell_tx.last),
      .*
  );

  kernel_echo u_echo (
      .clk,
      .rst    (k_rst[0]),
      .start  (k_start[0]),
      .params (k_params[0]),
      .done   (k_done[0]),
      .s_valid(k_s_valid[0]),
      .s_ready(k_s_ready[0]),
      .s_data (k_s_data[0]),
      .s_keep (k_s_keep[0]),
      .s_last (k_s_last[0]),
      .m_valid(k_m_valid[0]),
      .m_ready(k_m_ready[0]),
      .m_data (k_m_data[0]),
      .m_keep (k_m_keep[0]),
      .m_last (k_m_last[0])
  );

  kernel_sobel u_sobel (
      .clk,
      .rst    (k_rst[1]),
      .start  (k_start[1]),
      .params (k_params[1]),
      .done   (k_done[1]),
      .s_valid(k_s_valid[1]),
      .s_ready(k_s_ready[1]),
      .s_data (k_s_data[1]),
      .s_keep (k_s_keep[1]),
      .s_last (k_s_last[1]),
      .m_valid(k_m_valid[1]),
      .m_ready(k_m_ready[1]),
      .m_data (k_m_data[1]),
      .m_keep (k_m_keep[1]),
      .m_last (k_m_last[1])
  );

endmodule
