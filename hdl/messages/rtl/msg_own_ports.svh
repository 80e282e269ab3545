    // First ports of a bridge of raw Ethernet or UDP: the own address, and a line of the table of ranks.
    input  logic        clk,
    input  logic        rst,
    input  logic [47:0] own,        // hardware address: the first byte is the highest
    input  logic [31:0] own_ip,     // in the same order
    input  logic        put,        // where a rank is
    input  logic [7:0]  put_rank,
