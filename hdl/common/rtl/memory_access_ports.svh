    // First ports of a cache of a kernel: accesses to words of memory.
    input  logic        clk,
    input  logic        rst,
    input  logic        mem_valid,
    output logic        mem_ready,
    input  logic [31:0] mem_address,  // in bytes; the lowest three bits are ignored
    input  logic [7:0]  mem_strobe,   // the bytes to write; none: a read
    input  logic [63:0] mem_data,
