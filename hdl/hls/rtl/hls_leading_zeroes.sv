// The number of zeroes before the first one of a word, from the highest bit on; at least W if there
// is none. Combinational, as a tree of pairs: a level of logic for each bit of the result.
module hls_leading_zeroes #(
    parameter int W = 24,  // bits
    localparam int C = $clog2(W + 1)
) (
    input  logic [W-1:0] a,
    output logic [C-1:0] y
);

  localparam int T = 1 << C;

  // Of a node: whether its bits are zeroes, and how many come before its first one.
  logic [T-1:0]        none;
  logic [T-1:0][C-1:0] count;

  always_comb begin
    none  = ~{a, {(T - W) {1'b1}}};
    count = '0;
    for (int k = 0; k < C; k++)
      for (int i = 0; i < (T >> (k + 1)); i++) begin
        count[i] = none[2*i+1] ? count[2*i] | C'(1 << k) : count[2*i+1];
        none[i]  = none[2*i] && none[2*i+1];
      end
    y = count[0];
  end

endmodule
