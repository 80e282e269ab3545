// The reconfiguration controller with board memory, for its bench.
// At 32 bits memory's latency varies.
module fn_reconfig_top
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
    output logic [3:0]   decouple,
    output logic         icap_valid,
    input  logic         icap_ready,
    output logic [31:0]  icap_data,
    output logic [1:0]   icap_region
);

  logic arvalid, arready, rvalid, rready, rlast, awready, wready, bvalid, unused_signals;
  logic [31:0] araddr;
  logic [7:0]  arlen;
  logic [2:0]  arsize;
  logic [1:0]  arburst, rresp, bresp;
  logic [W-1:0] rdata;

  assign unused_signals = &{1'b0, arsize, arburst, awready, wready, bvalid, bresp};

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
