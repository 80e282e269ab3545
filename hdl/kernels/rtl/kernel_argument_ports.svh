    // First ports of a kernel that is compiled from OpenCL C.
    input  logic        clk,
    input  logic        rst,
    input  logic        arg_valid,   // a word of the argument block, before `start`
    input  logic [10:0] arg_index,
    input  logic [63:0] arg_data,
`include "kernel_call_ports.svh"
