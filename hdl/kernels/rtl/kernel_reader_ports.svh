    // First ports of a port of loads: a read, by its address, in the cycles with `step`.
    input  logic        clk,
    input  logic        rst,
    input  logic        step,
    input  logic        read_valid,
    input  logic [31:0] read_address,
