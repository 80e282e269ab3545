// tcp_lookup for its bench: W sessions.
module tcp_lookup_top #(
    parameter  int W = 16,
    localparam int S = $clog2(W)
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [ 63:0] secret,
    input  logic         query,
    input  logic [ 63:0] query_key,
    output logic         found_valid,
    output logic         found,
    output logic [S-1:0] found_index,
    output logic         hit,
    output logic [S-1:0] index,
    input  logic         change_valid,
    input  logic         change_remove,
    input  logic [ 63:0] change_key,
    input  logic [S-1:0] change_index,
    output logic         changed,
    output logic         refused
);
  tcp_lookup #(.SESSIONS(W)) u_lookup (.*);
endmodule
