    // First ports of a module that contains a network stack.
    input  logic                      clk,
    input  logic                      rst,
    input  logic                      tick,
    input  logic [47:0]               own_mac,
    input  logic [31:0]               own_ip,
    input  logic [15:0]               listen_port,
    input  logic [63:0]               secret,       // of the SYN cookies
