// The ports of two regions to one board memory, for the bench.
module kernel_memory_top
  import axi_pkg::*;
  import board_pkg::*;
  import fn_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        pause,         // the memory accepts no word
    input  logic [1:0]  off,
    output logic [1:0]  idle,
    input  logic [1:0]  k_arvalid,
    output logic [1:0]  k_arready,
    input  logic [31:0] k_araddr[2],
    input  logic [7:0]  k_length[2],
    output logic [1:0]  k_rvalid,
    output logic [1:0]  k_rlast,
    output logic [63:0] k_rdata[2],
    input  logic [1:0]  k_awvalid,
    output logic [1:0]  k_awready,
    input  logic [31:0] k_awaddr[2],
    input  logic [1:0]  k_wvalid,
    output logic [1:0]  k_wready,
    input  logic [63:0] k_wdata[2],
    output logic [1:0]  k_bvalid
);

  axi_read_t s_read[2], axi_read, near_read;
  axi_read_reply_t s_read_reply[2], axi_read_reply;
  axi_write_t s_write[2], axi_write, near_write;
  axi_write_reply_t s_write_reply[2], axi_write_reply, near_reply;

  for (genvar i = 0; i < 2; i++) begin : g_port
    memory_t kernel, board;
    memory_reply_t kernel_reply;

    assign kernel.read = '{
      arvalid: k_arvalid[i],
      araddr:  k_araddr[i],
      arlen:   k_length[i],
      arsize:  3'd3,
      arburst: BurstIncr,
      rready:  1'b1
    };
    assign kernel.write = '{
      awvalid: k_awvalid[i],
      awaddr:  k_awaddr[i],
      awlen:   k_length[i],
      awsize:  3'd3,
      awburst: BurstIncr,
      wvalid:  k_wvalid[i],
      wdata:   k_wdata[i],
      wstrb:   '1,
      wlast:   1'b0,
      bready:  1'b1
    };
    assign {k_arready[i], k_rvalid[i], k_rlast[i]} = {kernel_reply.read.arready, kernel_reply.read.rvalid, kernel_reply.read.rlast};
    assign k_rdata[i] = kernel_reply.read.rdata;
    assign {k_awready[i], k_wready[i], k_bvalid[i]} = {kernel_reply.write.awready, kernel_reply.write.wready, kernel_reply.write.bvalid};
    assign {s_read[i], s_write[i]} = board;

    region_memory u_port (
        .clk,
        .rst,
        .off        (off[i]),
        .idle       (idle[i]),
        .kernel,
        .kernel_reply,
        .board,
        .board_reply('{read: s_read_reply[i], write: s_write_reply[i]})
    );
  end

  axi_readers u_readers (
      .clk,
      .rst,
      .s_read,
      .s_reply(s_read_reply),
      .m_read (axi_read),
      .m_reply(axi_read_reply)
  );

  axi_writers u_writers (
      .clk,
      .rst,
      .s_write,
      .s_reply(s_write_reply),
      .m_write(axi_write),
      .m_reply(axi_write_reply)
  );

  // The kernels' addresses begin at KERNEL_BASE, those of this memory at 0.
  always_comb begin
    near_read = axi_read;
    near_read.araddr -= KERNEL_BASE;
    near_write = axi_write;
    near_write.awaddr -= KERNEL_BASE;
    near_write.wvalid = axi_write.wvalid && !pause;
    axi_write_reply = near_reply;
    axi_write_reply.wready = near_reply.wready && !pause;
  end

  dram_model #(
      .BYTES  (1 << 14),
      .LATENCY(6),
      .JITTER (9)
  ) u_memory (
      .axi_read       (near_read),
      .axi_write      (near_write),
      .axi_write_reply(near_reply),
      .*
  );

  a_kernels_part :
  assert property (@(posedge clk) disable iff (rst) axi_read.arvalid |-> axi_read.araddr >= KERNEL_BASE);
  a_kernels_part_written :
  assert property (@(posedge clk) disable iff (rst) axi_write.awvalid |-> axi_write.awaddr >= KERNEL_BASE);

endmodule
