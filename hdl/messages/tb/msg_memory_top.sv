// A kernel's access to memory, with a memory. W: 1, its latency varies.
module msg_memory_top
  import axi_pkg::*;
#(
    parameter int W = 0
) (
`include "msg_memory_ports.svh"
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

  axi_read_t        axi_read;
  axi_read_reply_t  axi_read_reply;
  axi_write_t       axi_write;
  axi_write_reply_t axi_write_reply;

  assign axi_read = '{
    arvalid: arvalid,
    araddr:  araddr,
    arlen:   8'd15,
    arsize:  3'd3,
    arburst: BurstIncr,
    rready:  rready
  };
  assign axi_write = '{
    awvalid: awvalid,
    awaddr:  awaddr,
    awlen:   8'd15,
    awsize:  3'd3,
    awburst: BurstIncr,
    wvalid:  wvalid,
    wdata:   wdata,
    wstrb:   '1,
    wlast:   wlast,
    bready:  bready
  };
  assign {arready, rvalid, rdata, rresp, rlast} = axi_read_reply;
  assign {awready, wready, bvalid, bresp} = axi_write_reply;

  dram_model #(
      .BYTES(1 << 16),
      .LATENCY(40),
      .JITTER(W == 0 ? 0 : 50)
  ) u_dram (
      .*
  );

endmodule
