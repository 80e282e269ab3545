// The lower half of a product. Latency: 2 cycles up to 18 bits, otherwise 3. Throughput: one per
// cycle, while `enable` is high.
module hls_multiply #(
    parameter int W = 32  // bits, even
) (
    input  logic         clk,
    input  logic         enable,
    input  logic [W-1:0] a,
    input  logic [W-1:0] b,
    output logic [W-1:0] y
);

  localparam int H = W / 2;

  logic [W-1:0] x, z;

  always_ff @(posedge clk) begin
    if (enable) begin
      x <= a;
      z <= b;
    end
  end

  if (W <= 18) begin : g_small
    always_ff @(posedge clk) if (enable) y <= x * z;
  end else begin : g_large
    logic [W-1:0] low;
    logic [H-1:0] up, down;

    always_ff @(posedge clk) begin
      if (enable) begin
        low  <= W'(x[H-1:0]) * W'(z[H-1:0]);
        up   <= x[W-1:H] * z[H-1:0];
        down <= x[H-1:0] * z[W-1:H];
        y    <= {low[W-1:H] + up + down, low[H-1:0]};
      end
    end
  end

`ifndef SYNTHESIS
  waits_without_enable : assert property (@(posedge clk) !enable |=> $stable(y));
`endif

endmodule
