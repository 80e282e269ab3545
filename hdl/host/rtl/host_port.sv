// The board's interface to its host, as over PCIe: registers, and descriptors by DMA.
//
// With it a host uploads images into board memory, changes the function table, and calls the
// board's functions without the network. Its calls use the same function engine as those over HTTP,
// one at a time, and the same regions.
//
// Parameters: as in host_registers and host_engine.
module host_port
  import host_pkg::*;
  import fn_pkg::*;
  import functions_pkg::*;
#(
    parameter  int REGIONS = 4,
    parameter  bit CALLS = 1,
    parameter  logic [31:0] SHELL = 32'h1,
    parameter  int IMAGE_BYTES = 1 << 26,
    localparam int N = NUMBER_BITS + 1
) (
    input  logic        clk,
    input  logic        rst,
    // Registers.
    input  logic        host_write,
    input  logic [ 5:0] host_address,
    input  logic [31:0] host_data,
    output logic [31:0] host_read_data,
    output logic        host_ended,     // a descriptor
    output logic        busy,
    // Host memory.
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
    // Board memory: AXI4 writes.
    output logic        awvalid,
    input  logic        awready,
    output logic [31:0] awaddr,
    output logic        wvalid,
    input  logic        wready,
    output logic [63:0] wdata,
    output logic        wlast,
    input  logic        bvalid,
    input  logic [ 1:0] bresp,
    // The scheduler's settings and the function table.
    output policy_t     policy,
    output logic [ 7:0] patience,
    output logic [31:0] load_cost,
    output logic        change_valid,
    input  logic        change_ready,
    output logic        change_remove,
    output name_t       change_name,
    output entry_t      change_entry,
    input  logic        changed_valid,
    input  logic        changed,
    input  logic [NUMBER_BITS-1:0] changed_function,
    // To the function engine: function numbers are the table's,
    // and after those the host's own programs.
    output logic        forget,
    output logic [N-1:0] forget_function,
    output logic        request_valid,
    input  logic        request_ready,
    output logic [N-1:0] request_function,
    output logic [31:0] request_cost,
    output logic [31:0] request_timeout,
    output logic [31:0] request_image,
    output logic [127:0] request_params,
    input  logic        grant,
    input  logic [$clog2(REGIONS)-1:0] grant_region,
    input  logic        finish_valid,
    output logic        finish_ready,
    input  logic        finish_killed,
    input  load_result_t finish_load,
    input  logic        finish_loaded,
    input  logic [31:0] finish_cycles,
    // The regions.
    input  logic [REGIONS-1:0] decouple,
    input  logic [31:0] region_loads[REGIONS],
    input  logic [63:0] region_busy[REGIONS],
    output logic [REGIONS-1:0] region_on,
    output logic        s_valid,
    input  logic        s_ready,
    output logic [63:0] s_data,
    output logic [ 7:0] s_keep,
    output logic        s_last,
    input  logic        m_valid,
    output logic        m_ready,
    input  logic [63:0] m_data,
    input  logic [ 7:0] m_keep,
    input  logic        m_last
);

  logic post_valid, post_ready, forget_own, works;
  logic [63:0] post_address;
  logic [NUMBER_BITS-1:0] forget_program;

  // The host does not do both at once.
  assign forget = (changed_valid && changed) || forget_own;
  assign forget_function = forget_own ? {1'b1, forget_program} : {1'b0, changed_function};
  assign busy = works || post_valid || change_valid;

  host_registers #(
      .REGIONS    (REGIONS),
      .SHELL      (SHELL),
      .IMAGE_BYTES(IMAGE_BYTES)
  ) u_registers (
      .clk,
      .rst,
      .write    (host_write),
      .address  (host_address),
      .data     (host_data),
      .read_data(host_read_data),
      .policy,
      .patience,
      .load_cost,
      .change_valid,
      .change_ready,
      .change_remove,
      .change_name,
      .change_entry,
      .changed_valid,
      .changed,
      .changed_function,
      .forget   (forget_own),
      .forget_program,
      .post_valid,
      .post_ready,
      .post_address,
      .ended    (host_ended),
      .decouple,
      .region_loads,
      .region_busy
  );

  host_engine #(
      .REGIONS    (REGIONS),
      .CALLS      (CALLS),
      .NUMBER_BITS(N)
  ) u_engine (
      .clk,
      .rst,
      .post_valid,
      .post_ready,
      .post_address,
      .ended        (host_ended),
      .busy         (works),
      .read_valid   (dma_read_valid),
      .read_ready   (dma_read_ready),
      .read_address (dma_read_address),
      .read_beats   (dma_read_beats),
      .data_valid   (dma_data_valid),
      .data         (dma_data),
      .data_error   (dma_data_error),
      .write_valid  (dma_write_valid),
      .write_ready  (dma_write_ready),
      .write_address(dma_write_address),
      .write_data   (dma_write_data),
      .write_keep   (dma_write_keep),
      .awvalid,
      .awready,
      .awaddr,
      .wvalid,
      .wready,
      .wdata,
      .wlast,
      .bvalid,
      .bresp,
      .request_valid,
      .request_ready,
      .request_function,
      .request_cost,
      .request_timeout,
      .request_image,
      .request_params,
      .grant,
      .grant_region,
      .finish_valid,
      .finish_ready,
      .finish_killed,
      .finish_load,
      .finish_loaded,
      .finish_cycles,
      .region_on,
      .s_valid,
      .s_ready,
      .s_data,
      .s_keep,
      .s_last,
      .m_valid,
      .m_ready,
      .m_data,
      .m_keep,
      .m_last
  );

endmodule
