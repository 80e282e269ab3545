// What the live model and the benches compile: the shell, and board memory behind its AXI4 port. The regions
// stay open: the harness puts kernels there, from libraries of their own (kernels.hpp).
//
// Parameters: as in board_shell; MEMORY_BYTES and IMAGE_LATENCY, of the memory that holds the images.
module board_model
  import fn_pkg::*;
  import functions_pkg::*;
#(
    parameter  int REGIONS = 4,
    parameter  int MEMORY_LATENCY = 4,
    parameter  int MSS = 1460,
    parameter  int MEMORY_BYTES = 1 << 25,
    parameter  int IMAGE_LATENCY = 40,
    localparam int R = $clog2(REGIONS)
) (
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
    output logic        busy,
    input  policy_t     policy,
    input  logic [ 7:0] patience,
    input  logic [31:0] load_cost,
    input  logic        change_valid,
    output logic        change_ready,
    input  logic        change_remove,
    input  name_t       change_name,
    input  entry_t      change_entry,
    output logic        changed_valid,
    output logic        changed,
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
    output logic         call_asked,
    output logic         call_granted,
    output logic         call_ended
);

  logic        arvalid, arready, rvalid, rready, rlast;
  logic [31:0] araddr;
  logic [ 7:0] arlen;
  logic [ 2:0] arsize;
  logic [ 1:0] arburst, rresp, bresp;
  logic [63:0] rdata;
  logic        awready, wready, bvalid;
  logic [31:0] icap_data;
  logic [R-1:0] icap_region;

  board_shell #(
      .REGIONS       (REGIONS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .MSS           (MSS),
      .IMAGE_BYTES   (MEMORY_BYTES)
  ) u_shell (
      .icap_ready(1'b1),
      .*
  );

  dram_model #(
      .BYTES  (MEMORY_BYTES),
      .LATENCY(IMAGE_LATENCY)
  ) u_memory (
      .awvalid(1'b0),
      .awaddr ('0),
      .wvalid (1'b0),
      .wdata  ('0),
      .wstrb  ('0),
      .wlast  (1'b0),
      .bready (1'b1),
      .*
  );

endmodule
