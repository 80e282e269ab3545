// The readers of a kernel with the guard and the read channels of the memory, which the bench is.
//
// Parameter W: 1: for rows of several work-items (STRIDES).
module kernel_readers_top #(
    parameter int W = 0
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               start,
    input  logic               step,
    input  logic [2:0]         port_reads,
    input  logic [2:0][31:0]   port_addresses,
    output logic [2:0][63:0]   port_words,
    output logic               readers_ready,
`include "memory_guard_ports.svh"
    ,
    output logic               idle,
    output logic               arvalid,
    input  logic               arready,
    output logic [31:0]        araddr,
    input  logic               rvalid,
    input  logic [63:0]        rdata,
    input  logic               rlast
);

  logic        fetch_valid, fetch_ready, fetched_valid, read_fault, line_ready, unused_signals;
  logic        mem_ready, checked_valid, cache_arready, cache_rvalid;
  logic [3:0]  fetch_buffer;
  logic [21:0] fetch_line;
  logic [7:0]  fetch_bytes;
  logic [63:0] fetch_skews;
  logic [31:0] fetch_address, read_address, checked_address;

  logic [2:0]  ports_ready;

  assign readers_ready  = &ports_ready;
  assign unused_signals = &{1'b0, mem_ready, checked_valid, cache_arready, cache_rvalid, checked_address};
  assign fetch_ready    = (line_ready || fetch_bytes == '0) && !fault;

  kernel_readers #(
      .PORTS  (3),
      .LINES  (W == 1 ? 64 : 16),
      .STRIDES(W == 1)
  ) u_readers (
      .rst         (rst || start),
      .port_steps  ({3{step}}),
      .fetched_word(rdata),
      .fetched_last(rlast),
      .*
  );

  memory_guard u_guard (
      .mem_valid    (1'b0),
      .mem_address  ('0),
      .mem_strobe   ('0),
      .checked_ready(1'b0),
      .*
  );

  memory_reads u_reads (
      .cache_arvalid(1'b0),
      .cache_araddr ('0),
      .line_valid   (fetch_valid && fetch_bytes != '0 && !fault && !start),
      .*
  );

endmodule
