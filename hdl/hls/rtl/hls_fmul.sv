// Product of floats (IEEE 754, to nearest even, including subnormal numbers; every NaN result is
// the quiet NaN without sign).
// Latency: 5 cycles. Throughput: one per cycle, while `enable` is high.
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

  typedef struct packed {
    logic [E-1:0] exp;
    logic [N-1:0] man;
  } number_t;

  // A normalized number.
  function automatic number_t normal(input logic [S-1:0] x);
    automatic int zeroes = 0;
    for (int i = 0; i < MAN; i++) if (x[i]) zeroes = MAN - i;
    if (x[S-1:MAN] != '0) return '{exp: E'(x[S-1:MAN]), man: {1'b1, x[MAN-1:0]}};
    return '{exp: E'(1 - zeroes), man: {1'b0, x[MAN-1:0]} << zeroes};
  endfunction

  // 1: unpacked. `infinite`, `odd` (NaN) and `zero` pass through the pipeline.
  logic    infinite_1, odd_1, zero_1, sign_1;
  number_t a_1, b_1;
  logic    a_top, b_top, a_odd, b_odd, a_zero, b_zero;

  assign a_top  = a[S-1:MAN] == '1;
  assign b_top  = b[S-1:MAN] == '1;
  assign a_odd  = a_top && a[MAN-1:0] != '0;
  assign b_odd  = b_top && b[MAN-1:0] != '0;
  assign a_zero = a[S-1:0] == '0;
  assign b_zero = b[S-1:0] == '0;

  always_ff @(posedge clk) begin
    if (enable) begin
      a_1        <= normal(a[S-1:0]);
      b_1        <= normal(b[S-1:0]);
      sign_1     <= a[S] ^ b[S];
      infinite_1 <= a_top || b_top;
      odd_1      <= a_odd || b_odd || (a_top && b_zero) || (b_top && a_zero);
      zero_1     <= a_zero || b_zero;
    end
  end

  // 2, 3: the product, from halves.
  logic         infinite_2, odd_2, zero_2, sign_2, infinite_3, odd_3, zero_3, sign_3;
  logic [E-1:0] exp_2, exp_3;
  logic [P-1:0] ll, lh, hl, hh, product;

  always_ff @(posedge clk) begin
    if (enable) begin
      {infinite_2, odd_2, zero_2, sign_2} <= {infinite_1, odd_1, zero_1, sign_1};
      {infinite_3, odd_3, zero_3, sign_3} <= {infinite_2, odd_2, zero_2, sign_2};
      exp_2   <= a_1.exp + b_1.exp - E'(BIAS);
      exp_3   <= exp_2;
      ll      <= P'(a_1.man[H-1:0]) * P'(b_1.man[H-1:0]);
      lh      <= P'(a_1.man[H-1:0]) * P'(b_1.man[N-1:H]);
      hl      <= P'(a_1.man[N-1:H]) * P'(b_1.man[H-1:0]);
      hh      <= P'(a_1.man[N-1:H]) * P'(b_1.man[N-1:H]);
      product <= ll + ((lh + hl) << H) + (hh << (2 * H));
    end
  end

  // 4: normalized; a subnormal result is shifted back. Lost bits set the sticky bit.
  logic         infinite_4, odd_4, zero_4, sign_4;
  logic [E-1:0] exp_front, back;
  logic [P-1:0] front, shifted;
  logic [E-1:0] exp_4;
  logic [N+1:0] man_4;  // hidden one, fraction, guard, sticky
  logic         below;

  assign front     = product[P-1] ? product : product << 1;
  assign exp_front = exp_3 + E'(product[P-1]);
  assign below     = $signed(exp_front) < E'(1);
  assign back      = E'(1) - exp_front;
  assign shifted   = back > E'(P) ? '0 : front >> back;

  always_ff @(posedge clk) begin
    if (enable) begin
      {infinite_4, odd_4, zero_4, sign_4} <= {infinite_3, odd_3, zero_3, sign_3};
      exp_4 <= below ? '0 : exp_front;
      man_4 <= below ? {shifted[P-1-:N+1], shifted[P-N-2:0] != '0 || (shifted << back) != front || back > E'(P)}
                     : {front[P-1-:N+1], front[P-N-2:0] != '0};
    end
  end

  // 5: rounded; a carry yields the next number in all cases.
  logic         up;
  logic [S-1:0] packed_4;

  assign up       = man_4[1] && (man_4[0] || man_4[2]);
  assign packed_4 = {exp_4[EXP-1:0], man_4[N:2]} + S'(up);

  always_ff @(posedge clk) begin
    if (enable) begin
      if (odd_4) y <= {1'b0, {EXP{1'b1}}, 1'b1, {(MAN - 1) {1'b0}}};
      else if (infinite_4) y <= {sign_4, {EXP{1'b1}}, {MAN{1'b0}}};
      else if (zero_4) y <= {sign_4, S'(0)};
      else if ($signed(exp_4) >= $signed(E'({EXP{1'b1}}))) y <= {sign_4, {EXP{1'b1}}, {MAN{1'b0}}};
      else y <= {sign_4, packed_4};
    end
  end

endmodule
