// Sum of floats (IEEE 754, to nearest even, including subnormal numbers; every NaN result is the
// quiet NaN without sign).
// Latency: 5 cycles. Throughput: one per cycle, while `enable` is high.
//
// Two paths, because long shifts before and after the sum exclude each other: a difference of
// numbers whose exponents differ by at most one (`near`) is exact, and may have any number of
// leading zeroes; every other sum has at most one, and may need any shift of the smaller number.
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
  localparam int N = MAN + 1;
  localparam int M = MAN + 4;  // bits of a number: hidden one, fraction, guard, round, sticky
  localparam int C = $clog2(N + 2);
  localparam int K = $clog2(M + 1);
  localparam int LOW = 8;  // values of the exponent's lower bits; of its upper ones, if it is small
  localparam int HIGH = (N + 1) / LOW + 1;

  // 1: which operand has the larger magnitude, and how far the exponents are apart. A subnormal
  // number has the exponent 1, and no hidden one.
  logic           swap_1, special_1, odd_1, a_sign, b_sign;
  logic [EXP-1:0] a_exp, b_exp, a_above, b_above;
  logic [N-1:0]   a_man, b_man;
  logic           a_top, b_top, a_normal, b_normal;
  logic [EXP-1:0] a_in, b_in;

  assign a_top    = a[S-1:MAN] == '1;
  assign b_top    = b[S-1:MAN] == '1;
  assign a_normal = a[S-1:MAN] != '0;
  assign b_normal = b[S-1:MAN] != '0;
  assign a_in     = {a[S-1:MAN+1], a[MAN] || !a_normal};
  assign b_in     = {b[S-1:MAN+1], b[MAN] || !b_normal};

  always_ff @(posedge clk) begin
    if (enable) begin
      swap_1    <= b[S-1:0] > a[S-1:0];
      special_1 <= a_top || b_top;
      odd_1     <= (a_top && a[MAN-1:0] != '0) || (b_top && b[MAN-1:0] != '0) ||
                   (a_top && b_top && a[S] != b[S]);
      a_sign    <= a[S];
      b_sign    <= b[S];
      a_exp     <= a_in;
      b_exp     <= b_in;
      a_above   <= a_in - b_in;
      b_above   <= b_in - a_in;
      a_man     <= {a_normal, a[MAN-1:0]};
      b_man     <= {b_normal, b[MAN-1:0]};
    end
  end

  // 2: the difference if they are near; otherwise the smaller one is shifted, and lost bits set the
  // sticky bit. The exponent, if it is small, is also kept as one bit for each value of its lower bits
  // (`low_2`), and of its upper ones.
  logic            special_2, odd_2, sign_2, minus_2, near_2, lost;
  logic [EXP-1:0]  exp, exp_2, apart;
  logic [N-1:0]    larger, smaller, large_2;
  logic [M-1:0]    shifted, small_2;
  logic [N:0]      halved, difference_2;
  logic [LOW-1:0]  low_2;
  logic [HIGH-1:0] high_2;

  assign larger = swap_1 ? b_man : a_man;
  assign smaller = swap_1 ? a_man : b_man;
  assign apart = swap_1 ? b_above : a_above;
  assign exp = swap_1 ? b_exp : a_exp;

  // The shift by one bit is first, because the difference uses it, too.
  assign halved = apart[0] ? {1'b0, smaller} : {smaller, 1'b0};

  always_comb begin
    shifted = {halved, 2'b0};
    lost    = 1'b0;
    for (int k = K - 1; k >= 1; k--)
      if (apart[k]) begin
        for (int i = 0; i < (1 << k) && i < M; i++) lost |= shifted[i];
        shifted >>= 1 << k;
      end
    if (apart[EXP-1:K] != '0) begin
      shifted = '0;
      lost    = smaller != '0;
    end
  end

  always_ff @(posedge clk) begin
    if (enable) begin
      {special_2, odd_2} <= {special_1, odd_1};
      sign_2       <= swap_1 ? b_sign : a_sign;
      minus_2      <= a_sign != b_sign;
      near_2       <= a_sign != b_sign && apart[EXP-1:1] == '0;
      exp_2        <= exp;
      large_2      <= larger;
      small_2      <= {shifted[M-1:1], shifted[0] || lost};
      difference_2 <= {larger, 1'b0} - halved;
      for (int i = 0; i < LOW; i++) low_2[i] <= exp[2:0] == 3'(i);
      for (int i = 0; i < HIGH; i++) high_2[i] <= exp[EXP-1:3] == (EXP - 3)'(i);
    end
  end

  // 3: the sum; the zeroes of the difference, as far as the exponent permits.
  logic           special_3, odd_3, sign_3, minus_3, near_3, none_3;
  logic [EXP-1:0] exp_3;
  logic [M:0]     sum_3;
  logic [N:0]     difference_3, limit;
  logic [C-1:0]   by, by_3;

  // The bit that has the exponent 1.
  always_comb for (int i = 0; i <= N; i++) limit[i] = low_2[(N + 1 - i) % LOW] && high_2[(N + 1 - i) / LOW];

  hls_leading_zeroes #(.W(N + 1)) u_zeroes (.a(difference_2 | limit), .y(by));

  always_ff @(posedge clk) begin
    if (enable) begin
      {special_3, odd_3, sign_3, minus_3, near_3} <= {special_2, odd_2, sign_2, minus_2, near_2};
      exp_3        <= exp_2;
      sum_3        <= minus_2 ? {1'b0, large_2, 3'b0} - {1'b0, small_2} :
                                {1'b0, large_2, 3'b0} + {1'b0, small_2};
      difference_3 <= difference_2;
      by_3         <= by;
      none_3       <= near_2 && difference_2 == '0;
    end
  end

  // 4: normalized. Long shifts are for a difference only; the last one is by up to three bits. Without
  // it, the sum has a bit more than the result.
  logic           special_4, odd_4, sign_4, carry, borrow;
  logic [EXP:0]   exp_4, left;
  logic [M:0]     far, whole;
  logic [1:0]     rest;
  logic [M-1:0]   sum_4;

  assign carry  = sum_3[M];
  assign borrow = minus_3 && !sum_3[M] && !sum_3[M-1];
  assign left   = near_3 ? (EXP + 1)'(by_3) : {{EXP{carry}}, carry || borrow};
  assign far    = near_3 ? {difference_3, 3'b0} << {by_3[C-1:2], 2'b0} : sum_3;
  assign rest   = near_3 ? by_3[1:0] : {borrow, !carry && !borrow};
  assign whole  = far << rest;

  always_ff @(posedge clk) begin
    if (enable) begin
      special_4 <= special_3;
      odd_4     <= odd_3;
      // A zero result is positive, except for two negative zeros.
      sign_4    <= sign_3 && !none_3;
      sum_4     <= {whole[M:2], whole[1] || whole[0]};
      exp_4     <= {1'b0, exp_3} - left;
    end
  end

  // 5: rounded. Without the hidden one the exponent is zero; a carry yields the next number in all
  // cases.
  logic         up;
  logic [S-1:0] packed_4;

  assign up       = sum_4[2] && (sum_4[1] || sum_4[0] || sum_4[3]);
  assign packed_4 = {sum_4[M-1] ? exp_4[EXP-1:0] : EXP'(0), sum_4[M-2:3]} + S'(up);

  always_ff @(posedge clk) begin
    if (enable) begin
      if (special_4 && odd_4) y <= {1'b0, {EXP{1'b1}}, 1'b1, {(MAN - 1) {1'b0}}};
      else if (special_4 || exp_4 >= {1'b0, {EXP{1'b1}}}) y <= {sign_4, {EXP{1'b1}}, {MAN{1'b0}}};
      else y <= {sign_4, packed_4};
    end
  end

`ifndef SYNTHESIS
  one_nan : assert property (@(posedge clk)
      enable |=> y[S-1:MAN] != '1 || y[MAN-1:0] == '0 ||
      y == {1'b0, {EXP{1'b1}}, 1'b1, {(MAN - 1) {1'b0}}});
  waits_without_enable : assert property (@(posedge clk) !enable |=> $stable(y));
`endif

endmodule
