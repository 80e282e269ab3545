// Product of floats (IEEE 754, to nearest even, including subnormal numbers; every NaN result is
// the quiet NaN without sign).
// Latency: 5 cycles. Throughput: one per cycle, while `enable` is high.
//
// Subnormal operands are multiplied as they are. The product of two of them is less than half of
// the smallest number, so that at most one operand's zeroes matter: they are counted beside the
// multiplication, and one shift of the product removes them or makes a subnormal result.
module hls_fmul #(
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
  localparam int H = N / 2;
  localparam int P = 2 * N;
  localparam int E = EXP + 2;  // exponents, which may be negative
  localparam int BIAS = (1 << (EXP - 1)) - 1;
  localparam int C = $clog2(N + 1);
  localparam int R = $clog2(P + 1);

  // 1: unpacked. `infinite` and `odd` (NaN) pass through the pipeline. A subnormal number has the
  // exponent 1, and no hidden one.
  logic           infinite_1, odd_1, sign_1;
  logic [EXP-1:0] a_exp, b_exp;
  logic [N-1:0]   a_man, b_man;
  logic           a_top, b_top, a_normal, b_normal, a_zero, b_zero;

  assign a_top    = a[S-1:MAN] == '1;
  assign b_top    = b[S-1:MAN] == '1;
  assign a_normal = a[S-1:MAN] != '0;
  assign b_normal = b[S-1:MAN] != '0;
  assign a_zero   = a[S-1:0] == '0;
  assign b_zero   = b[S-1:0] == '0;

  always_ff @(posedge clk) begin
    if (enable) begin
      a_exp      <= {a[S-1:MAN+1], a[MAN] || !a_normal};
      b_exp      <= {b[S-1:MAN+1], b[MAN] || !b_normal};
      a_man      <= {a_normal, a[MAN-1:0]};
      b_man      <= {b_normal, b[MAN-1:0]};
      sign_1     <= a[S] ^ b[S];
      infinite_1 <= a_top || b_top;
      odd_1      <= (a_top && (a[MAN-1:0] != '0 || b_zero)) ||
                    (b_top && (b[MAN-1:0] != '0 || a_zero));
    end
  end

  // 2: products of halves, the exponent of their sum's bit P - 2, and a subnormal operand's zeroes.
  logic                infinite_2, odd_2, sign_2;
  logic signed [E-1:0] exp_2;
  logic [C-1:0]        zeroes, zeroes_2;
  logic [P-1:0]        ll, lh, hl, hh;

  hls_leading_zeroes #(.W(N)) u_zeroes (.a(a_man[MAN] ? b_man : a_man), .y(zeroes));

  always_ff @(posedge clk) begin
    if (enable) begin
      {infinite_2, odd_2, sign_2} <= {infinite_1, odd_1, sign_1};
      exp_2    <= E'(a_exp) + E'(b_exp) - E'(BIAS);
      zeroes_2 <= zeroes;
      ll       <= P'(a_man[H-1:0]) * P'(b_man[H-1:0]);
      lh       <= P'(a_man[H-1:0]) * P'(b_man[N-1:H]);
      hl       <= P'(a_man[N-1:H]) * P'(b_man[H-1:0]);
      hh       <= P'(a_man[N-1:H]) * P'(b_man[N-1:H]);
    end
  end

  // 3: the product, and its shift: to the left over the zeroes; if the result is subnormal, as far
  // as the exponent permits, or to the right. It counts from the longest shift to the left.
  logic                infinite_3, odd_3, sign_3, below, below_3;
  logic [EXP:0]        exp_3;  // 0 if the result is subnormal
  logic [R-1:0]        back_3;
  logic [P-1:0]        product;

  assign below = exp_2 <= $signed(E'(zeroes_2));

  always_ff @(posedge clk) begin
    if (enable) begin
      {infinite_3, odd_3, sign_3} <= {infinite_2, odd_2, sign_2};
      below_3 <= below;
      exp_3   <= below ? '0 : (EXP+1)'(exp_2) - (EXP+1)'(zeroes_2);
      if (!below) back_3 <= R'(N - 1) - R'(zeroes_2);
      else if (exp_2 < -$signed(E'(N + 1))) back_3 <= R'(P);
      else back_3 <= R'(N - 1) - R'(exp_2);
      product <= ll + ((lh + hl) << H) + (hh << (2 * H));
    end
  end

  // 4: shifted and normalized. Lost bits set the sticky bit.
  logic         infinite_4, odd_4, sign_4, lost, top;
  logic [P:0]   front;
  logic [EXP:0] exp_4;
  logic [N+1:0] man_4;  // hidden one, fraction, guard, sticky

  always_comb begin
    front = {product, 1'b0};
    lost  = 1'b0;
    for (int k = R - 1; k >= 0; k--)
      if (back_3[k]) begin
        for (int i = 0; i < (1 << k) && i <= P; i++) lost |= front[i];
        front >>= 1 << k;
      end
    top = front[N+1];
  end

  always_ff @(posedge clk) begin
    if (enable) begin
      {infinite_4, odd_4, sign_4} <= {infinite_3, odd_3, sign_3};
      exp_4 <= exp_3 + (EXP+1)'(top);
      man_4 <= top || below_3 ? {front[N+1:1], front[0] || lost} : {front[N:0], lost};
    end
  end

  // 5: rounded. Without the hidden one the exponent is zero; a carry yields the next number in all
  // cases.
  logic         up;
  logic [S-1:0] packed_4;

  assign up       = man_4[1] && (man_4[0] || man_4[2]);
  assign packed_4 = {man_4[N+1] ? exp_4[EXP-1:0] : EXP'(0), man_4[N:2]} + S'(up);

  always_ff @(posedge clk) begin
    if (enable) begin
      if (odd_4) y <= {1'b0, {EXP{1'b1}}, 1'b1, {(MAN - 1) {1'b0}}};
      else if (infinite_4 || exp_4 >= {1'b0, {EXP{1'b1}}}) y <= {sign_4, {EXP{1'b1}}, {MAN{1'b0}}};
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
