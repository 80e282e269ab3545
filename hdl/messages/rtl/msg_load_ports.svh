    // First ports of a kernel: its rank, and its program, a word at a time.
    input  logic        clk,
    input  logic        rst,
    input  logic [7:0]  own,
    input  logic [8:0]  ranks,
    input  logic        load_valid,
    input  logic [15:0] load_address,
    input  logic [31:0] load_data,
