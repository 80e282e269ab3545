// A kernel's access to memory, with a memory. W: 1, its latency varies.
module msg_memory_top #(
    parameter int W = 0
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        mem_valid,
    output logic        mem_ready,
    input  logic [31:0] mem_address,
    input  logic [7:0]  mem_strobe,
    input  logic [63:0] mem_data,
    output logic [63:0] mem_word,
    output logic        mem_fault,
    input  logic        flush,
    output logic        flushed
);

  logic arvalid, arready, rvalid, rready, rlast, awvalid, awready, wvalid, wready, wlast, bvalid, bready;
  logic [31:0] araddr, awaddr;
  logic [63:0] rdata, wdata;
  logic [1:0]  rresp, bresp;

  msg_memory #(
      .LINES(8)
  ) u_memory (
      .*
  );

  dram_model #(
      .BYTES(1 << 16),
      .LATENCY(40),
      .JITTER(W == 0 ? 0 : 50)
  ) u_dram (
      .arlen(8'd7),
      .wstrb('1),
      .*
  );

endmodule
