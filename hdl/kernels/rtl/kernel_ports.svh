    // The ports of a kernel that is compiled from OpenCL C; see docs/kernels.md.
    input  logic        clk,
    input  logic        rst,
    input  logic        arg_valid,   // a word of the argument block, before `start`
    input  logic [5:0]  arg_index,
    input  logic [63:0] arg_data,
    input  logic        start,
    output logic        done,        // one cycle, with `status`; 0: ok
    output logic [7:0]  status,
    output logic        print_valid, // a byte of text
    input  logic        print_ready,
    output logic [7:0]  print_data,
    output logic        mem_valid,   // a read of a word, or a write of bytes of it (memory_cache)
    input  logic        mem_ready,
    output logic [31:0] mem_address, // the argument's number and an offset in bytes (memory_guard)
    output logic [7:0]  mem_strobe,  // the bytes to write; none: a read
    output logic [63:0] mem_data,
    output logic        mem_go,      // the request is accepted, and the answer taken
    input  logic        mem_answer,
    input  logic [63:0] mem_word,    // valid with `mem_answer`
    input  logic        mem_fault,
`include "kernel_fetch_ports.svh"
