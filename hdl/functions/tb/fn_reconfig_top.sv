// The reconfiguration controller with board memory, for its bench.
// At 32 bits memory's latency varies.
module fn_reconfig_top
  import axi_pkg::*;
  import fn_pkg::*;
#(
    parameter int W = 64,
    parameter int LATENCY = 40,
    parameter int JITTER = W == 32 ? 30 : 0
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         load_valid,
    output logic         load_ready,
    input  logic [1:0]   load_region,
    input  logic [31:0]  load_address,
    output logic         done,
    output load_result_t result,
    output logic [31:0]  kernel,
    output logic [31:0]  checksum,
    output logic [3:0]   decouple,
    output logic         icap_valid,
    input  logic         icap_ready,
    output logic [31:0]  icap_data,
    output logic [1:0]   icap_region
);

  axi_read_t        axi_read;
  axi_read_reply_t  axi_read_reply;
  axi_write_reply_t unused_reply;

  fn_reconfig #(
      .SHELL(32'hBA17),
      .DATA(W),
      .MAX_BYTES(1 << 20)
  ) u_reconfig (
      .*
  );

  dram_model #(
      .DATA(W),
      .LATENCY(LATENCY),
      .JITTER(JITTER)
  ) u_dram (
      .axi_write('0),
      .axi_write_reply(unused_reply),
      .*
  );

endmodule
