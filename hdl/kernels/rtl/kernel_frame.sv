// A kernel that is compiled from OpenCL C (the macro KERNEL is its module), with the guard and the
// cache of its memory port.
//
// `done`: the kernel has ended, and all that it wrote is in memory. Buffers: see memory_guard.
module kernel_frame (
    input  logic        clk,
    input  logic        rst,
    input  logic        arg_valid,
    input  logic [5:0]  arg_index,
    input  logic [63:0] arg_data,
    input  logic        start,
    output logic        done,
    output logic [7:0]  status,
    output logic        print_valid,
    input  logic        print_ready,
    output logic [7:0]  print_data,
    input  logic        set_valid,
    input  logic [3:0]  set_buffer,
    input  logic [31:0] set_address,
    input  logic [28:0] set_bytes,
    input  logic        set_writable,
    output logic        fault,
    output logic [3:0]  fault_buffer,
    output logic        fault_write,
    output logic [27:0] fault_offset,
`include "msg_axi_ports.svh"
);

  logic        mem_valid, mem_ready, mem_go, mem_answer, mem_fault;
  logic        checked_valid, checked_ready, flush, flushed, refused;
  logic [31:0] mem_address, checked_address;
  logic [7:0]  mem_strobe, kernel_status;
  logic [63:0] mem_data, mem_word;
  logic        ended;

  `KERNEL u_kernel (
      .done  (ended),
      .status(kernel_status),
      .*
  );

  memory_guard u_guard (.*);

  assign mem_fault = fault || refused;

  memory_cache u_cache (
      .mem_valid  (checked_valid),
      .mem_ready  (checked_ready),
      .mem_address(checked_address),
      .*
  );

  assign done = flushed;

  always_ff @(posedge clk) begin
    if (flushed) flush <= 1'b0;
    if (ended) begin
      flush  <= 1'b1;
      status <= kernel_status;
    end
    if (rst) flush <= 1'b0;
  end

endmodule
