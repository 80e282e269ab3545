// The product of two signed integers that fit a multiplier. Latency: 2 cycles. Throughput: one per
// cycle, while `enable` is high.
module hls_product #(
    parameter int W = 18  // bits of the operands
) (
    input  logic           clk,
    input  logic           enable,
    input  logic [W-1:0]   a,
    input  logic [W-1:0]   b,
    output logic [2*W-1:0] y
);

  logic signed [W-1:0] x, z;

  always_ff @(posedge clk) begin
    if (enable) begin
      x <= a;
      z <= b;
      y <= x * z;
    end
  end

`ifndef SYNTHESIS
  waits_without_enable : assert property (@(posedge clk) !enable |=> $stable(y));
`endif

endmodule
