    // First ports of region_packets, also of its bench.
    input  logic       clk,
    input  logic       rst,
    input  logic       start,
    input  logic       off,
    input  logic       put,           // the region's rank
    input  logic [7:0] put_rank,
