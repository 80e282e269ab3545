// The board's interface to its host, as over PCIe: registers, and descriptors by DMA.
//
// With it a host uploads images into board memory, changes the function table, and calls the
// board's functions without the network. Its calls use the same function engine as those over HTTP,
// one at a time, and the same regions.
//
// Parameters: as in host_registers and host_engine.
module host_port
  import axi_pkg::*;
  import host_pkg::*;
  import fn_pkg::*;
  import functions_pkg::*;
#(
    parameter  int REGIONS = 4,
    parameter  bit CALLS = 1,
    parameter  bit READS = 1,
    parameter  logic [31:0] SHELL = 32'h1,
    parameter  int IMAGE_BYTES = 1 << 26,
    localparam int N = NUMBER_BITS + 1
) (
    input  logic        clk,
    input  logic        rst,
    input  host_in_t        host_in,
    output host_out_t       host_out,
    output logic            busy,
    // Board memory.
    output axi_read_t        axi_read,
    input  axi_read_reply_t  axi_read_reply,
    output axi_write_t       axi_write,
    input  axi_write_reply_t axi_write_reply,
    // The scheduler's settings and the function table.
    output scheduling_t     scheduling,
    output table_change_t   change,
    input  logic            change_ready,
    input  table_changed_t  changed,
    // To the function engine: function numbers are the table's,
    // and after those the host's own programs.
    output logic            forget,
    output logic [N-1:0]    forget_function,
    output host_call_t       call,
    input  host_call_reply_t call_reply,
    // The regions.
    input  logic [REGIONS-1:0] decouple,
    input  logic [31:0] region_loads[REGIONS],
    input  logic [63:0] region_busy[REGIONS],
    output logic [REGIONS-1:0] region_on,
    output logic         region_kill,
    output streams_in_t  region_in,
    input  streams_out_t region_out
);

  logic post_valid, post_ready, forget_own, works, abort;
  logic [63:0] post_address;
  logic [31:0] abort_address;
  logic [NUMBER_BITS-1:0] forget_program;

  // The host does not do both at once.
  assign forget = (changed.valid && changed.changed) || forget_own;
  assign forget_function = forget_own ? {1'b1, forget_program} : {1'b0, changed.number};
  assign busy = works || post_valid || change.valid;

  host_registers #(
      .REGIONS    (REGIONS),
      .SHELL      (SHELL),
      .IMAGE_BYTES(IMAGE_BYTES)
  ) u_registers (
      .clk,
      .rst,
      .write    (host_in.write),
      .address  (host_in.address),
      .data     (host_in.data),
      .read_data(host_out.read_data),
      .policy   (scheduling.policy),
      .patience (scheduling.patience),
      .load_cost(scheduling.load_cost),
      .change_valid    (change.valid),
      .change_ready,
      .change_remove   (change.remove),
      .change_name     (change.name),
      .change_entry    (change.entry),
      .changed_valid   (changed.valid),
      .changed         (changed.changed),
      .changed_function(changed.number),
      .forget   (forget_own),
      .forget_program,
      .post_valid,
      .post_ready,
      .post_address,
      .abort,
      .abort_address,
      .ended    (host_out.ended),
      .decouple,
      .region_loads,
      .region_busy
  );

  host_engine #(
      .REGIONS    (REGIONS),
      .CALLS      (CALLS),
      .READS      (READS),
      .NUMBER_BITS(N)
  ) u_engine (
      .clk,
      .rst,
      .post_valid,
      .post_ready,
      .post_address,
      .ended        (host_out.ended),
      .abort,
      .abort_address,
      .busy         (works),
      .read_valid   (host_out.dma_read_valid),
      .read_ready   (host_in.dma_read_ready),
      .read_address (host_out.dma_read_address),
      .read_beats   (host_out.dma_read_beats),
      .data_valid   (host_in.dma_data_valid),
      .data         (host_in.dma_data),
      .data_error   (host_in.dma_data_error),
      .write_valid  (host_out.dma_write_valid),
      .write_ready  (host_in.dma_write_ready),
      .write_address(host_out.dma_write_address),
      .write_data   (host_out.dma_write_data),
      .write_keep   (host_out.dma_write_keep),
      .axi_read,
      .axi_read_reply,
      .axi_write,
      .axi_write_reply,
      .call,
      .call_reply,
      .region_on,
      .region_kill,
      .region_in,
      .region_out
  );

endmodule
