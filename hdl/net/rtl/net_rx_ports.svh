    // First ports of a module that receives frames.
    input  logic        clk,
    input  logic        rst,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic        rx_valid,
    input  beat_t       rx,
