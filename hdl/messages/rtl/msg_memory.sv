// A kernel's access to board memory: the guard and the cache of every kernel (memory_guard,
// memory_cache), with the kernel's memory as their only buffer.
//
// The kernel issues one request at a time and holds it until `mem_ready`: a read of a 64-bit word,
// which is valid in that cycle, or a write of bytes of a word. After a request outside of the
// kernel's memory, or one that board memory refuses, `mem_fault` is high until reset, and the
// request does not complete.
//
// Parameters: LINES of the cache, a power of two. Latency: a cycle for a write and two for a read
// that hit; otherwise as of memory_cache. The first request after reset takes a cycle more.
module msg_memory #(
    parameter int LINES = 32
) (
`include "msg_memory_ports.svh"
    ,
`include "msg_axi_ports.svh"
);

  localparam logic [3:0] Buffer = 4'd1;

  logic        ready, set, asked;       // `asked`: a read was accepted
  logic        cache_valid, cache_ready, checked_valid, checked_ready, mem_go, mem_answer;
  logic        fault, refused, outside;
  logic [31:0] cache_address, checked_address;

  // The table's line is written in the first cycle after reset.
  always_ff @(posedge clk) begin
    if (rst) ready <= 1'b0;
    else ready <= 1'b1;
  end
  assign set = !ready && !rst;

  // An address has 28 bits in a buffer.
  assign outside       = mem_valid && ready && mem_address[31:28] != '0;
  assign cache_valid   = mem_valid && ready && !asked && !outside;
  assign cache_address = {Buffer, mem_address[27:0]};
  assign mem_go        = asked ? mem_answer : cache_ready;
  assign mem_ready     = asked ? mem_answer : cache_valid && cache_ready && mem_strobe != '0;

  always_ff @(posedge clk) begin
    if (asked) asked <= !mem_answer;
    else asked <= cache_valid && cache_ready && mem_strobe == '0;
    if (outside || fault || refused) mem_fault <= 1'b1;
    if (rst) begin
      asked     <= 1'b0;
      mem_fault <= 1'b0;
    end
  end

  memory_guard u_guard (
      .clk,
      .rst,
      .set_valid    (set),
      .set_buffer   (Buffer),
      .set_address  (memory_address),
      .set_bytes    (memory_bytes),
      .set_writable (1'b1),
      .mem_valid    (cache_valid),
      .mem_ready    (cache_ready),
      .mem_address  (cache_address),
      .mem_strobe,
      .checked_valid,
      .checked_ready,
      .checked_address,
      .fetch_buffer ('0),
      .fetch_line   ('0),
      .fetch_address(),
      .fetch_bytes  (),
      .fetch_skews  (),
      .read_fault   (1'b0),
      .read_address ('0),
      .fault,
      .fault_buffer (),
      .fault_write  (),
      .fault_offset ()
  );

  memory_cache #(
      .LINES(LINES)
  ) u_cache (
      .mem_valid  (checked_valid),
      .mem_ready  (checked_ready),
      .mem_address(checked_address),
      .flush      (1'b0),
      .flushed    (),
      .*
  );

`ifndef SYNTHESIS
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      mem_valid && !mem_ready && !mem_fault |=> mem_valid && $stable({mem_address, mem_strobe}));
  reads_are_answered : assert property (@(posedge clk) disable iff (rst)
      asked |-> mem_valid && mem_strobe == '0);
  fault_stays : assert property (@(posedge clk) disable iff (rst) mem_fault |=> mem_fault);
`endif

endmodule
