// A float's integer part; the result is undefined if the integer cannot represent it, as in C.
// Latency: 2 cycles. Throughput: one per cycle, while `enable` is high.
module hls_to_integer #(
    parameter int I      = 32,  // bits of the integer
    parameter bit SIGNED = 1,   // whether it has a sign
    parameter int EXP    = 8,   // bits of the exponent
    parameter int MAN    = 23   // and of the fraction
) (
    input  logic             clk,
    input  logic             enable,
    input  logic [EXP+MAN:0] a,
    output logic [I-1:0]     y
);

  localparam int W = I + MAN;
  localparam int BIAS = (1 << (EXP - 1)) - 1;

  logic           sign_1, below_1;
  logic [EXP-1:0] by_1;
  logic [MAN:0]   man_1;
  logic [W-1:0]   shifted;

  assign shifted = W'(man_1) << by_1;

  always_ff @(posedge clk) begin
    if (enable) begin
      sign_1  <= a[EXP+MAN];
      below_1 <= a[EXP+MAN-1:MAN] < EXP'(BIAS);
      by_1    <= a[EXP+MAN-1:MAN] - EXP'(BIAS);
      man_1   <= {1'b1, a[MAN-1:0]};
      y       <= below_1 ? '0 : SIGNED && sign_1 ? -shifted[W-1:MAN] : shifted[W-1:MAN];
    end
  end

`ifndef SYNTHESIS
  waits_without_enable : assert property (@(posedge clk) !enable |=> $stable(y));
`endif

endmodule
