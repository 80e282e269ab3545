// Sum of floats (IEEE 754, to nearest even, including subnormal numbers; every NaN result is the
// quiet NaN without sign).
// Latency: 5 cycles. Throughput: one per cycle, while `enable` is high.
module hls_fadd #(
    parameter int EXP = 8,  // bits of the exponent
    parameter int MAN = 23  // and of the fraction
) (
    input  logic             clk,
    input  logic             enable,
    input  logic [EXP+MAN:0] a,
    input  logic [EXP+MAN:0] b,
    output logic [EXP+MAN:0] y
);

  localparam int S = EXP + MAN;
  localparam int M = MAN + 4;  // bits of a number: hidden one, fraction, guard, round, sticky
  localparam int C = $clog2(M + 1);

  // 1: the operand with the larger magnitude first.
  logic             swap, special_1, odd_1, sign_1, minus_1;
  logic [EXP-1:0]   exp_1, apart_1;
  logic [M-1:0]     large_1, small_1;
  logic [S:0]       first, second;
  logic [EXP-1:0]   first_exp, second_exp;

  assign swap       = b[S-1:0] > a[S-1:0];
  assign first      = swap ? b : a;
  assign second     = swap ? a : b;
  assign first_exp  = first[S-1:MAN] == '0 ? EXP'(1) : first[S-1:MAN];
  assign second_exp = second[S-1:MAN] == '0 ? EXP'(1) : second[S-1:MAN];

  always_ff @(posedge clk) begin
    if (enable) begin
      // The larger one is infinite or NaN.
      special_1  <= first[S-1:MAN] == '1;
      odd_1      <= first[MAN-1:0] != '0 || (second[S-1:MAN] == '1 && (second[MAN-1:0] != '0 || first[S] != second[S]));
      // A zero result is positive, except for two negative zeros.
      sign_1     <= first[S];
      minus_1    <= first[S] != second[S];
      exp_1      <= first_exp;
      apart_1    <= first_exp - second_exp;
      large_1    <= {first[S-1:MAN] != '0, first[MAN-1:0], 3'b0};
      small_1    <= {second[S-1:MAN] != '0, second[MAN-1:0], 3'b0};
    end
  end

  // 2: the smaller one is shifted; lost bits set the sticky bit.
  logic           special_2, odd_2, sign_2, minus_2;
  logic [EXP-1:0] exp_2;
  logic [M-1:0]   large_2, small_2, shifted, lost;
  logic           far;

  assign far     = apart_1 > EXP'(M);
  assign shifted = small_1 >> apart_1;
  assign lost    = small_1 & ~({M{1'b1}} << apart_1);

  always_ff @(posedge clk) begin
    if (enable) begin
      {special_2, odd_2, sign_2, minus_2} <= {special_1, odd_1, sign_1, minus_1};
      exp_2   <= exp_1;
      large_2 <= large_1;
      small_2 <= far ? M'(small_1 != '0) : {shifted[M-1:1], shifted[0] || lost != '0};
    end
  end

  // 3: the sum.
  logic           special_3, odd_3, sign_3, minus_3;
  logic [EXP-1:0] exp_3;
  logic [M:0]     sum_3;

  always_ff @(posedge clk) begin
    if (enable) begin
      {special_3, odd_3, sign_3, minus_3} <= {special_2, odd_2, sign_2, minus_2};
      exp_3 <= exp_2;
      sum_3 <= minus_2 ? {1'b0, large_2} - {1'b0, small_2} : {1'b0, large_2} + {1'b0, small_2};
    end
  end

  // 4: normalized, as far as the exponent permits.
  logic           special_4, odd_4, sign_4;
  logic [EXP:0]   exp_4;
  logic [M-1:0]   sum_4;
  logic [C-1:0]   zeroes, by;

  always_comb begin
    zeroes = C'(M);
    for (int i = 0; i < M; i++) if (sum_3[i]) zeroes = C'(M - 1 - i);
    by = (EXP+C)'(zeroes) < (EXP+C)'(exp_3) ? zeroes : C'(exp_3 - 1'b1);
  end

  always_ff @(posedge clk) begin
    if (enable) begin
      special_4 <= special_3;
      odd_4     <= odd_3;
      sign_4    <= sum_3 == '0 && minus_3 ? 1'b0 : sign_3;
      if (sum_3[M]) begin
        sum_4 <= {sum_3[M:2], sum_3[1] || sum_3[0]};
        exp_4 <= {1'b0, exp_3} + 1'b1;
      end else begin
        sum_4 <= sum_3[M-1:0] << by;
        exp_4 <= {1'b0, exp_3} - (EXP+1)'(by);
      end
    end
  end

  // 5: rounded. Without the hidden one the exponent is zero;
  // a carry yields the next number in all cases.
  logic         up;
  logic [S-1:0] packed_4;

  assign up       = sum_4[2] && (sum_4[1] || sum_4[0] || sum_4[3]);
  assign packed_4 = {sum_4[M-1] ? exp_4[EXP-1:0] : EXP'(0), sum_4[M-2:3]} + S'(up);

  always_ff @(posedge clk) begin
    if (enable) begin
      if (special_4) y <= odd_4 ? {1'b0, {EXP{1'b1}}, 1'b1, {(MAN - 1) {1'b0}}} : {sign_4, {EXP{1'b1}}, {MAN{1'b0}}};
      else if (exp_4 >= {1'b0, {EXP{1'b1}}}) y <= {sign_4, {EXP{1'b1}}, {MAN{1'b0}}};
      else y <= {sign_4, packed_4};
    end
  end

endmodule
