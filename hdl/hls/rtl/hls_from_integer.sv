// An integer as a float, to nearest even. Latency: 3 cycles. Throughput: one per cycle,
// while `enable` is high.
module hls_from_integer #(
    parameter int I      = 32,  // bits of the integer
    parameter bit SIGNED = 1,   // whether it has a sign
    parameter int EXP    = 8,   // bits of the exponent
    parameter int MAN    = 23   // and of the fraction
) (
    input  logic             clk,
    input  logic             enable,
    input  logic [I-1:0]     a,
    output logic [EXP+MAN:0] y
);

  localparam int S = EXP + MAN;
  localparam int W = I > MAN + 3 ? I : MAN + 3;
  localparam int C = $clog2(I + 1);
  localparam int BIAS = (1 << (EXP - 1)) - 1;

  logic         sign_1, sign_2, zero_2, up;
  logic [I-1:0] size_1;
  logic [C-1:0] zeroes, zeroes_2;
  logic [W-1:0] front_2;

  always_comb begin
    zeroes = C'(I);
    for (int i = 0; i < I; i++) if (size_1[i]) zeroes = C'(I - 1 - i);
  end

  assign up = front_2[W-MAN-2] && (front_2[W-MAN-1] || (front_2 & ((W'(1) << (W - MAN - 2)) - 1'b1)) != '0);

  always_ff @(posedge clk) begin
    if (enable) begin
      sign_1   <= SIGNED && a[I-1];
      size_1   <= SIGNED && a[I-1] ? -a : a;
      sign_2   <= sign_1;
      zero_2   <= size_1 == '0;
      zeroes_2 <= zeroes;
      front_2  <= (W'(size_1) << (W - I)) << zeroes;
      y        <= zero_2 ? '0 : {sign_2, {EXP'(BIAS + I - 1) - EXP'(zeroes_2), front_2[W-2-:MAN]} + S'(up)};
    end
  end

`ifndef SYNTHESIS
  integers_are_finite : assert property (@(posedge clk) enable |=> y[S-1:MAN] != '1);
  waits_without_enable : assert property (@(posedge clk) !enable |=> $stable(y));
`endif

endmodule
