// Round-robin arbiter: grants a resource to one of the requesters, in turn.
//
// Parameters: N, requesters. Latency: combinational. Throughput: one grant per cycle; the last
// granted requester has the lowest priority.
module arbiter #(
    parameter int N = 4
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         enable,
    input  logic [N-1:0] request,
    output logic [N-1:0] grant     // at most one of the requesters
);

  logic [N-1:0] behind, later;  // positions after the last grant; requests from there

  function automatic logic [N-1:0] lowest(input logic [N-1:0] set);
    return set & (~set + 1'b1);
  endfunction

  assign later = request & behind;
  assign grant = !enable ? '0 : later != '0 ? lowest(later) : lowest(request);

  always_ff @(posedge clk) begin
    if (rst) behind <= '0;
    else if (grant != '0) behind <= ~(grant | (grant - 1'b1));
  end

`ifndef SYNTHESIS
  one_grant : assert property (@(posedge clk) disable iff (rst) $onehot0(grant));
  grants_requesters : assert property (@(posedge clk) disable iff (rst) (grant & ~request) == '0);
  grants_when_enabled : assert property (@(posedge clk) disable iff (rst)
      enable && request != '0 |-> grant != '0);
  // The positions after the last grant are the upper ones: from any of them on, all.
  turn_is_upper_part : assert property (@(posedge clk) disable iff (rst)
      (behind | (behind << 1)) == behind);
`endif

endmodule
