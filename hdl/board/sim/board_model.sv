// Top of the live model and the benches: the shell, and board memory behind its AXI4 port. The
// regions are open: the harness connects kernels from separate libraries (kernels.hpp).
//
// Parameters: as in board_shell; PORT, bits of the Ethernet port: 64, the shell's own, or 32, in
// the lower lanes and at `port_clk` (board_port32); MEMORY_BYTES and IMAGE_LATENCY,
// of the memory that holds the images.
module board_model #(
    parameter  int PORT = 64,
    parameter  int SESSIONS = 16,
    parameter  int RING_BITS = 24,
    parameter  int BODY_BYTES = 3 << (RING_BITS - 2),
    parameter  int REGIONS = 4,
    parameter  int MEMORY_LATENCY = 4,
    parameter  int MSS = 1460,
    parameter  int MEMORY_BYTES = 1 << 25,
    parameter  int IMAGE_LATENCY = 40,
    parameter  int STORE_SLOTS = 8,
    parameter  int STORE_SLOT_BITS = 21,
    parameter  bit STORE = 1,
    parameter  bit UDP = 1,
    parameter  bit HOST_CALLS = 1,
    parameter  bit SHORTEST = 1,
    parameter  int ISLANDS = 4,
    parameter  int QUEUE = 16,
    localparam int R = $clog2(REGIONS)
) (
    input  logic        port_clk,
    input  logic        clk,
    input  logic        rst,
    input  logic        tick,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic [15:0] listen_port,
    input  logic [63:0] secret,
    input  logic [8*http_pkg::KEY_BYTES-1:0] api_key,
    input  logic        rx_valid,
    input  logic [63:0] rx_data,
    input  logic [ 7:0] rx_keep,
    input  logic        rx_last,
    output logic        tx_valid,
    input  logic        tx_ready,
    output logic [63:0] tx_data,
    output logic [ 7:0] tx_keep,
    output logic        tx_last,
    output logic [15:0] rx_dropped,  // by a PORT of 32 bits
    output logic        busy,
    input  logic [31:0] store_ip,
    input  logic [15:0] store_port,
    input  logic [511:0] store_path,
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
    output logic         icap_valid,
    output logic         swap,
    output logic [R-1:0] swap_region,
    output logic [31:0]  swap_kernel,
    output logic [REGIONS-1:0] decouple,
    output logic [REGIONS-1:0] k_rst,
    output logic [REGIONS-1:0] k_start,
    output logic [127:0]       k_params  [REGIONS],
    input  logic [REGIONS-1:0] k_done,
    output logic [REGIONS-1:0] k_s_valid,
    input  logic [REGIONS-1:0] k_s_ready,
    output logic [63:0]        k_s_data  [REGIONS],
    output logic [ 7:0]        k_s_keep  [REGIONS],
    output logic [REGIONS-1:0] k_s_last,
    input  logic [REGIONS-1:0] k_m_valid,
    output logic [REGIONS-1:0] k_m_ready,
    input  logic [63:0]        k_m_data  [REGIONS],
    input  logic [ 7:0]        k_m_keep  [REGIONS],
    input  logic [REGIONS-1:0] k_m_last,
    output logic         call_requested,
    output logic         call_granted,
    output logic         call_ended
);

  logic        arvalid, arready, rvalid, rready, rlast;
  logic [31:0] araddr;
  logic [ 7:0] arlen;
  logic [ 2:0] arsize;
  logic [ 1:0] arburst, rresp, bresp;
  logic [63:0] rdata;
  logic        awvalid, awready, wvalid, wready, wlast, bvalid, bready;
  logic [31:0] awaddr;
  logic [ 7:0] awlen, wstrb;
  logic [ 2:0] awsize;
  logic [ 1:0] awburst;
  logic [63:0] wdata;
  logic [31:0] store_base;
  // Fetched images are stored above those uploaded by the host.
  assign store_base = 32'(MEMORY_BYTES - (STORE_SLOTS << STORE_SLOT_BITS));
  logic [31:0] icap_data;
  logic [R-1:0] icap_region;

  // Every input is registered: logic behind an input without a register is evaluated by Verilator
  // at each call of `eval`, twice per cycle. The harness (board.hpp) therefore sets an input one
  // cycle early.
  logic rst_q, tick_q, shell_rx_valid, shell_rx_last, shell_tx_valid, shell_tx_ready, shell_tx_last, host_write_q, dma_read_ready_q, dma_data_valid_q, dma_data_error_q, dma_write_ready_q;
  logic [47:0] own_mac_q;
  logic [31:0] own_ip_q, host_data_q, store_ip_q, netmask_q, gateway_q;
  logic [511:0] store_path_q;
  logic [15:0] listen_port_q, store_port_q, udp_echo_q;
  logic [63:0] secret_q, shell_rx_data, shell_tx_data, dma_data_q;
  logic [8*http_pkg::KEY_BYTES-1:0] api_key_q;
  logic [7:0] shell_rx_keep, shell_tx_keep;
  logic [5:0] host_address_q;
  logic [REGIONS-1:0] k_done_q, k_s_ready_q, k_m_valid_q, k_m_last_q;
  logic [63:0] k_m_data_q[REGIONS];
  logic [7:0] k_m_keep_q[REGIONS];

  always_ff @(posedge clk) begin
    rst_q <= rst;
    tick_q <= tick;
    own_mac_q <= own_mac;
    own_ip_q <= own_ip;
    listen_port_q <= listen_port;
    secret_q <= secret;
    api_key_q <= api_key;
    store_ip_q <= store_ip;
    store_port_q <= store_port;
    store_path_q <= store_path;
    netmask_q <= netmask;
    gateway_q <= gateway;
    udp_echo_q <= udp_echo;
    host_write_q <= host_write;
    host_address_q <= host_address;
    host_data_q <= host_data;
    dma_read_ready_q <= dma_read_ready;
    dma_data_valid_q <= dma_data_valid;
    dma_data_q <= dma_data;
    dma_data_error_q <= dma_data_error;
    dma_write_ready_q <= dma_write_ready;
    k_done_q <= k_done;
    k_s_ready_q <= k_s_ready;
    k_m_valid_q <= k_m_valid;
    k_m_last_q <= k_m_last;
    k_m_data_q <= k_m_data;
    k_m_keep_q <= k_m_keep;
  end

  if (PORT == 32) begin : g_port32
    // Its own inputs are already registered.
    logic unused_port_rst;
    board_port32 #(
        .MSS(MSS)
    ) u_port (
        .port_clk,
        .port_rst     (unused_port_rst),
        .port_rx_valid(rx_valid),
        .port_rx_data (rx_data[31:0]),
        .port_rx_keep (rx_keep[3:0]),
        .port_rx_last (rx_last),
        .port_tx_valid(tx_valid),
        .port_tx_ready(tx_ready),
        .port_tx_data (tx_data[31:0]),
        .port_tx_keep (tx_keep[3:0]),
        .port_tx_last (tx_last),
        .clk,
        .rst          (rst_q),
        .rx_valid     (shell_rx_valid),
        .rx_data      (shell_rx_data),
        .rx_keep      (shell_rx_keep),
        .rx_last      (shell_rx_last),
        .rx_dropped,
        .tx_valid     (shell_tx_valid),
        .tx_ready     (shell_tx_ready),
        .tx_data      (shell_tx_data),
        .tx_keep      (shell_tx_keep),
        .tx_last      (shell_tx_last)
    );
    assign tx_data[63:32] = '0;
    assign tx_keep[7:4] = '0;
  end else begin : g_port64
    always_ff @(posedge clk) begin
      shell_rx_valid <= rx_valid;
      shell_rx_data  <= rx_data;
      shell_rx_keep  <= rx_keep;
      shell_rx_last  <= rx_last;
      shell_tx_ready <= tx_ready;
    end
    assign tx_valid = shell_tx_valid;
    assign tx_data = shell_tx_data;
    assign tx_keep = shell_tx_keep;
    assign tx_last = shell_tx_last;
    assign rx_dropped = '0;
  end

  board_shell #(
      .SESSIONS      (SESSIONS),
      .REGIONS       (REGIONS),
      .RX_RING_BITS  (RING_BITS),
      .TX_RING_BITS  (RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .BODY_BYTES    (BODY_BYTES),
      .MSS           (MSS),
      .IMAGE_BYTES   (MEMORY_BYTES),
      .STORE_SLOTS   (STORE_SLOTS),
      .STORE_SLOT_BITS(STORE_SLOT_BITS),
      .STORE         (STORE),
      .UDP           (UDP),
      .HOST_CALLS    (HOST_CALLS),
      .ISLANDS       (ISLANDS),
      .SHORTEST      (SHORTEST),
      .QUEUE         (QUEUE)
  ) u_shell (
      .icap_ready(1'b1),
      .rst(rst_q),
      .tick(tick_q),
      .own_mac(own_mac_q),
      .own_ip(own_ip_q),
      .listen_port(listen_port_q),
      .secret(secret_q),
      .api_key(api_key_q),
      .rx_valid(shell_rx_valid),
      .rx_data(shell_rx_data),
      .rx_keep(shell_rx_keep),
      .rx_last(shell_rx_last),
      .tx_valid(shell_tx_valid),
      .tx_ready(shell_tx_ready),
      .tx_data(shell_tx_data),
      .tx_keep(shell_tx_keep),
      .tx_last(shell_tx_last),
      .store_ip(store_ip_q),
      .store_port(store_port_q),
      .store_path(store_path_q),
      .netmask(netmask_q),
      .gateway(gateway_q),
      .udp_echo(udp_echo_q),
      .host_write(host_write_q),
      .host_address(host_address_q),
      .host_data(host_data_q),
      .dma_read_ready(dma_read_ready_q),
      .dma_data_valid(dma_data_valid_q),
      .dma_data(dma_data_q),
      .dma_data_error(dma_data_error_q),
      .dma_write_ready(dma_write_ready_q),
      .k_done(k_done_q),
      .k_s_ready(k_s_ready_q),
      .k_m_valid(k_m_valid_q),
      .k_m_last(k_m_last_q),
      .k_m_data(k_m_data_q),
      .k_m_keep(k_m_keep_q),
      .*
  );

  dram_model #(
      .BYTES  (MEMORY_BYTES),
      .LATENCY(IMAGE_LATENCY)
  ) u_memory (
      .rst    (rst_q),
      .*
  );

endmodule
