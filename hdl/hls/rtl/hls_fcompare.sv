// Comparison of two floats (IEEE 754); combinational.
module hls_fcompare #(
    parameter int EXP = 8,  // bits of the exponent
    parameter int MAN = 23  // and of the fraction
) (
    input  logic [EXP+MAN:0] a,
    input  logic [EXP+MAN:0] b,
    output logic             less,
    output logic             equal,
    output logic             unordered  // an operand is NaN
);

  localparam int S = EXP + MAN;

  logic zeroes, larger;

  assign unordered = (a[S-1:MAN] == '1 && a[MAN-1:0] != '0) || (b[S-1:MAN] == '1 && b[MAN-1:0] != '0);
  assign zeroes    = a[S-1:0] == '0 && b[S-1:0] == '0;
  assign larger    = a[S-1:0] > b[S-1:0];
  assign equal     = !unordered && (a == b || zeroes);
  assign less      = !unordered && !zeroes && a != b && (a[S] != b[S] ? a[S] : larger == a[S]);

endmodule
