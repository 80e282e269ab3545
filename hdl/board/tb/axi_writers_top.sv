// Two writers and their port, each signal by itself, for the bench.
module axi_writers_top
  import axi_pkg::*;
(
`include "axi_write_ports.svh"
    input  logic        clk,
    input  logic        rst,
    input  logic [1:0]  s_awvalid,
    output logic [1:0]  s_awready,
    input  logic [31:0] s_awaddr[2],
    input  logic [7:0]  s_awlen[2],
    input  logic [1:0]  s_wvalid,
    output logic [1:0]  s_wready,
    input  logic [63:0] s_wdata[2],
    input  logic [7:0]  s_wstrb[2],
    input  logic [1:0]  s_wlast,
    output logic [1:0]  s_bvalid,
    input  logic [1:0]  s_bready
);

`include "axi_write_signals.svh"

  axi_write_t       s_write[2];
  axi_write_reply_t s_reply[2];

  for (genvar i = 0; i < 2; i++) begin : g_writer
    assign s_write[i] = '{
      awvalid: s_awvalid[i],
      awaddr:  s_awaddr[i],
      awlen:   s_awlen[i],
      awsize:  3'd3,
      awburst: BurstIncr,
      wvalid:  s_wvalid[i],
      wdata:   s_wdata[i],
      wstrb:   s_wstrb[i],
      wlast:   s_wlast[i],
      bready:  s_bready[i]
    };
    assign {s_awready[i], s_wready[i], s_bvalid[i]} = {s_reply[i].awready, s_reply[i].wready, s_reply[i].bvalid};
  end

  axi_writers u_writers (
      .m_write(axi_write),
      .m_reply(axi_write_reply),
      .*
  );

endmodule
