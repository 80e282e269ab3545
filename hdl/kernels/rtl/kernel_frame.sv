// A kernel that is compiled from OpenCL C (the macro KERNEL is its module), with the guard and the
// cache of its memory port, and the arbiter between the cache and the lines that it reads ahead.
//
// `done`: the kernel has ended, and all that it wrote is in memory. Buffers: see memory_guard.
module kernel_frame (
`include "kernel_argument_ports.svh"
`include "memory_guard_ports.svh"
    ,
`include "msg_axi_ports.svh"
`include "kernel_channel_ports.svh"
);

  logic        mem_valid, mem_ready, mem_go, mem_answer, mem_fault;
  logic        checked_valid, checked_ready, flush, flushed, refused;
  logic        fence, fenced, last_flush;
  logic [31:0] mem_address, checked_address;
  logic [7:0]  mem_strobe, kernel_status;
  logic [63:0] mem_data, mem_word;
  logic        ended, running, empty;
  logic        fetch_valid, fetch_ready, fetched_valid, fetched_last, read_fault, idle;
  logic [3:0]  fetch_buffer;
  logic [21:0] fetch_line;
  logic [7:0]  fetch_bytes;
  logic [63:0] fetch_skews, fetched_word;
  logic [31:0] fetch_address, read_address;
  logic        cache_arvalid, cache_arready, cache_rvalid, line_ready;
  logic [31:0] cache_araddr;

  `KERNEL u_kernel (
      .done  (ended),
      .status(kernel_status),
      .*
  );

  memory_guard u_guard (.*);

  assign mem_fault = fault || refused;

  // A fence empties the cache as the end does.
  assign flush  = last_flush || fence;
  assign fenced = flushed && fence;

  memory_cache u_cache (
      .mem_valid  (checked_valid),
      .mem_ready  (checked_ready),
      .mem_address(checked_address),
      .arvalid    (cache_arvalid),
      .arready    (cache_arready),
      .araddr     (cache_araddr),
      .rvalid     (cache_rvalid),
      .rready     (),
      .*
  );

  // No line is requested after the end or a fault.
  assign fetch_ready = (line_ready || fetch_bytes == '0) && running && !fault;

  memory_reads u_reads (
      .line_valid(fetch_valid && fetch_bytes != '0 && running && !fault),
      .*
  );

  assign rready       = 1'b1;
  assign fetched_word = rdata;
  assign fetched_last = rlast;
  // Lines that the kernel has requested ahead are on their way when it ends.
  assign done         = empty && idle;

  always_ff @(posedge clk) begin
    if (start) running <= 1'b1;
    if (done) empty <= 1'b0;
    if (flushed && last_flush) begin
      empty      <= 1'b1;
      last_flush <= 1'b0;
    end
    if (ended) begin
      running    <= 1'b0;
      last_flush <= 1'b1;
      status     <= kernel_status;
    end
    if (rst) begin
      running    <= 1'b0;
      empty      <= 1'b0;
      last_flush <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  starts_when_empty : assert property (@(posedge clk) disable iff (rst)
      start |-> !running && !last_flush && !empty);
  ends_once : assert property (@(posedge clk) disable iff (rst) ended |-> running);
  writes_are_done : assert property (@(posedge clk) disable iff (rst)
      done |-> !running && !awvalid && !wvalid);
  reads_stay : assert property (@(posedge clk) disable iff (rst)
      arvalid && !arready |=> arvalid && $stable(araddr));
  writes_stay : assert property (@(posedge clk) disable iff (rst)
      awvalid && !awready |=> awvalid && $stable(awaddr));
  data_stay : assert property (@(posedge clk) disable iff (rst)
      wvalid && !wready |=> wvalid && $stable({wdata, wlast}));
`endif

endmodule
