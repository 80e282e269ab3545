// Top of the live model and the benches: the shell, and board memory behind its AXI4 port. The
// regions are open: the harness connects kernels from separate libraries (kernels.hpp). Its ports
// are those of the shell, signal by signal, as the harness in C++ sets them.
//
// Parameters: as in board_shell; PORT, bits of the Ethernet port: 64, the shell's own, or 32, in
// the lower lanes and at `port_clk` (board_port32); MEMORY_BYTES and IMAGE_LATENCY,
// of the part of board memory that holds the images. The kernels' part has the timing of dram.hpp.
module board_model
  import axi_pkg::*;
  import board_pkg::*;
  import fn_pkg::*;
  import host_pkg::*;
  import net_pkg::*;
#(
    parameter  int PORT = 64,
    parameter  int SESSIONS = 16,
    parameter  int RING_BITS = 24,
    parameter  int BODY_BYTES = 3 << (RING_BITS - 2),
    parameter  int REGIONS = 4,
    parameter  int MEMORY_LATENCY = 4,
    parameter  bit RINGS_IN_MEMORY = 0,
    parameter  int MSS = 1460,
    parameter  int MEMORY_BYTES = 1 << 25,
    parameter  int IMAGE_LATENCY = 40,
    parameter  int STORE_SLOTS = 8,
    parameter  int STORE_SLOT_BITS = 21,
    parameter  bit STORE = 1,
    parameter  bit UDP = 1,
    parameter  int HOST_CALLS = REGIONS,
    parameter  bit SHORTEST = 1,
    parameter  int ISLANDS = 4,
    parameter  int QUEUE = 16,
    parameter  bit KERNEL_MEMORY = 1,
    parameter  bit HTTP = 1,
    parameter  int MESSAGES = 0,
    localparam int R = $clog2(REGIONS)
) (
    input  logic        port_clk,
`include "net_address_ports.svh"
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
    output logic        host_busy,
    output logic        pause,
    output logic        owed,
    output logic        failed,
    output logic [7:0]  failed_station,
    input  logic [31:0] store_ip,
    input  logic [15:0] store_port,
    input  logic [511:0] store_path,
    input  logic [31:0] netmask,
    input  logic [31:0] gateway,
    input  logic [15:0] udp_echo,
`include "host_ports.svh"
    output logic         icap_valid,
    output logic         swap,
    output logic [R-1:0] swap_region,
    output logic [31:0]  swap_kernel,
    output logic [REGIONS-1:0] decouple,
    output logic [REGIONS-1:0] k_rst,
    output logic [REGIONS-1:0] k_start,
    output logic [127:0]       k_params  [REGIONS],
    input  logic [REGIONS-1:0] k_done,
    input  logic [2*REGIONS-1:0] k_code,
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
`include "kernel_memory_ports.svh"
    input  logic [REGIONS-1:0] k_awake,   // its outputs may have changed
    // Packets of messages, from the kernels and to them.
    input  logic [REGIONS-1:0] k_out_valid,
    output logic [REGIONS-1:0] k_out_ready,
    input  logic [REGIONS-1:0] k_out_last,
    input  logic [63:0]        k_out_data[REGIONS],
    output logic [REGIONS-1:0] k_in_valid,
    input  logic [REGIONS-1:0] k_in_ready,
    output logic [REGIONS-1:0] k_in_last,
    output logic [63:0]        k_in_data [REGIONS],
    output logic         call_requested,
    output logic         call_granted,
    output logic         call_ended
);

  axi_read_t        axi_read;
  axi_read_reply_t  axi_read_reply;
  axi_write_t       axi_write;
  axi_write_reply_t axi_write_reply;

  // Every input is registered: logic behind an input without a register is evaluated by Verilator
  // at each call of `eval`, twice per cycle. The harness (board.hpp) therefore sets an input one
  // cycle early.
  logic rst_q, tick_q, shell_rx_valid, shell_tx_valid, shell_tx_ready;
  settings_t settings;
  beat_t shell_rx, shell_tx;
  host_in_t host_in;
  host_out_t host_out;
  kernel_in_t kernel_in[REGIONS];
  kernel_out_t kernel_out[REGIONS];
  configuration_t configuration;
  events_t events;

  always_ff @(posedge clk) begin
    rst_q <= rst;
    tick_q <= tick;
    settings <= '{
      own_mac:     own_mac,
      own_ip:      own_ip,
      netmask:     netmask,
      gateway:     gateway,
      listen_port: listen_port,
      secret:      secret,
      api_key:     api_key,
      udp_echo:    udp_echo,
      store_ip:    store_ip,
      store_port:  store_port,
      store_path:  store_path,
      // Fetched images are stored above those uploaded by the host.
      store_base:  32'(MEMORY_BYTES - (STORE_SLOTS << STORE_SLOT_BITS))
    };
    host_in <= '{
      write:           host_write,
      address:         host_address,
      data:            host_data,
      dma_read_ready:  dma_read_ready,
      dma_data_valid:  dma_data_valid,
      dma_data:        dma_data,
      dma_data_error:  dma_data_error,
      dma_write_ready: dma_write_ready
    };
  end

  localparam logic [7:0] LineLength = 8'd15;  // of a kernel's bursts (memory_cache)

  for (genvar i = 0; i < REGIONS; i++) begin : g_kernel
    always_ff @(posedge clk) if (k_awake[i]) begin
      kernel_out[i].done <= k_done[i];
      kernel_out[i].code <= k_code[2*i+:2];
      kernel_out[i].streams <= '{
        s_ready: k_s_ready[i],
        m_valid: k_m_valid[i],
        m_data:  k_m_data[i],
        m_keep:  k_m_keep[i],
        m_last:  k_m_last[i]
      };
      kernel_out[i].memory.read <= '{
        arvalid: k_arvalid[i],
        araddr:  k_araddr[i],
        arlen:   LineLength,
        arsize:  3'd3,
        arburst: BurstIncr,
        rready:  1'b1
      };
      kernel_out[i].memory.write <= '{
        awvalid: k_awvalid[i],
        awaddr:  k_awaddr[i],
        awlen:   LineLength,
        awsize:  3'd3,
        awburst: BurstIncr,
        wvalid:  k_wvalid[i],
        wdata:   k_wdata[i],
        wstrb:   '1,
        wlast:   1'b0,  // the shell counts
        bready:  1'b1
      };
      kernel_out[i].packets <= '{
        valid: k_out_valid[i],
        last:  k_out_last[i],
        data:  k_out_data[i],
        ready: k_in_ready[i]
      };
    end
    assign {k_arready[i], k_rvalid[i], k_rlast[i]} =
        {kernel_in[i].memory.read.arready, kernel_in[i].memory.read.rvalid, kernel_in[i].memory.read.rlast};
    assign {k_rdata[i], k_rfailed[i]} = {kernel_in[i].memory.read.rdata, kernel_in[i].memory.read.rresp[1]};
    assign {k_awready[i], k_wready[i], k_bvalid[i]} =
        {kernel_in[i].memory.write.awready, kernel_in[i].memory.write.wready, kernel_in[i].memory.write.bvalid};
    assign k_bfailed[i] = kernel_in[i].memory.write.bresp[1];
    assign {k_in_valid[i], k_in_last[i], k_in_data[i], k_out_ready[i]} = kernel_in[i].packets;
    assign {k_rst[i], k_start[i], k_params[i]} = {kernel_in[i].rst, kernel_in[i].start, kernel_in[i].params};
    assign {k_s_valid[i], k_s_data[i], k_s_keep[i], k_s_last[i], k_m_ready[i]} = kernel_in[i].streams;
  end

  assign {host_read_data, host_ended} = {host_out.read_data, host_out.ended};
  assign {dma_read_valid, dma_read_address, dma_read_beats} =
      {host_out.dma_read_valid, host_out.dma_read_address, host_out.dma_read_beats};
  assign {dma_write_valid, dma_write_address} = {host_out.dma_write_valid, host_out.dma_write_address};
  assign {dma_write_data, dma_write_keep} = {host_out.dma_write_data, host_out.dma_write_keep};
  assign {icap_valid, swap, swap_kernel} = {configuration.valid, configuration.swap, configuration.swap_kernel};
  assign swap_region = configuration.region[R-1:0];
  assign {busy, host_busy, pause, owed, failed, failed_station, call_requested, call_granted, call_ended} = events;

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
        .rx_data      (shell_rx.data),
        .rx_keep      (shell_rx.keep),
        .rx_last      (shell_rx.last),
        .rx_dropped,
        .tx_valid     (shell_tx_valid),
        .tx_ready     (shell_tx_ready),
        .tx_data      (shell_tx.data),
        .tx_keep      (shell_tx.keep),
        .tx_last      (shell_tx.last)
    );
    assign tx_data[63:32] = '0;
    assign tx_keep[7:4] = '0;
  end else begin : g_port64
    always_ff @(posedge clk) begin
      shell_rx_valid <= rx_valid;
      shell_rx       <= '{data: rx_data, keep: rx_keep, last: rx_last};
      shell_tx_ready <= tx_ready;
    end
    assign tx_valid = shell_tx_valid;
    assign tx_data = shell_tx.data;
    assign tx_keep = shell_tx.keep;
    assign tx_last = shell_tx.last;
    assign rx_dropped = '0;
  end

  board_shell #(
      .SESSIONS      (SESSIONS),
      .REGIONS       (REGIONS),
      .RX_RING_BITS  (RING_BITS),
      .TX_RING_BITS  (RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .RINGS_IN_MEMORY(RINGS_IN_MEMORY),
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
      .QUEUE         (QUEUE),
      .KERNEL_MEMORY (KERNEL_MEMORY),
      .HTTP          (HTTP),
      .MESSAGES      (MESSAGES)
  ) u_shell (
      .clk,
      .rst(rst_q),
      .tick(tick_q),
      .settings,
      .rx_valid(shell_rx_valid),
      .rx(shell_rx),
      .tx_valid(shell_tx_valid),
      .tx_ready(shell_tx_ready),
      .tx(shell_tx),
      .configuration_ready(1'b1),
      .*
  );

  // The kernels' part of board memory, and the rings.
  localparam int RINGS_BYTES = RINGS_IN_MEMORY ? 2 * SESSIONS << RING_BITS : 0;
  localparam int FAR_BYTES = KERNEL_MEMORY || RINGS_IN_MEMORY ? (1 << 30) + RINGS_BYTES : 0;

  dram_model #(
      .BYTES    (MEMORY_BYTES),
      .LATENCY  (IMAGE_LATENCY),
      .WRITES   (8),
      .FAR      (KERNEL_BASE),
      .FAR_BYTES(FAR_BYTES)
  ) u_memory (
      .rst    (rst_q),
      .*
  );

endmodule
