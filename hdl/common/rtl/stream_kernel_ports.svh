    // The ports of every kernel (docs/kernels.md).
    input  logic           clk,
    input  logic           rst,
    input  logic           start,
    input  logic [127:0]   params,
    output logic           done,
`include "stream_in.svh"
`include "stream_out.svh"
