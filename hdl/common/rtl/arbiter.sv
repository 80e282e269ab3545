// Gives something that one can have at a time to one of those that ask, in turn.
//
// Parameters: N, how many may ask. Latency: combinational. Throughput: one a cycle; who was given something
// last comes last.
module arbiter #(
    parameter int N = 4
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         enable,
    input  logic [N-1:0] request,
    output logic [N-1:0] grant     // at most one of those that ask
);

  logic [N-1:0] behind, later;  // places behind the last one given; requests from there

  function automatic logic [N-1:0] lowest(input logic [N-1:0] set);
    return set & (~set + 1'b1);
  endfunction

  assign later = request & behind;
  assign grant = !enable ? '0 : later != '0 ? lowest(later) : lowest(request);

  always_ff @(posedge clk) begin
    if (rst) behind <= '0;
    else if (grant != '0) behind <= ~(grant | (grant - 1'b1));
  end

endmodule
