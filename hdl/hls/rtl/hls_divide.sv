// Quotient and remainder of integers, one bit per cycle: begun by `start`, valid while `done`,
// until the next start. Division by zero yields all ones, and the dividend.
module hls_divide #(
    parameter int W = 32  // bits
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         start,
    input  logic         is_signed,
    input  logic [W-1:0] a,
    input  logic [W-1:0] b,
    output logic         done,
    output logic [W-1:0] y,
    output logic [W-1:0] rest
);

  localparam int C = $clog2(W + 1);

  logic [C-1:0] left;
  logic [W-1:0] quotient, remainder, divisor;
  logic         negative, negative_rest;
  logic [W:0]   next, less;

  assign next = {remainder, quotient[W-1]};
  assign less = next - {1'b0, divisor};
  assign done = left == '0;
  assign y    = negative ? -quotient : quotient;
  assign rest = negative_rest ? -remainder : remainder;

  always_ff @(posedge clk) begin
    if (start) begin
      left          <= C'(W);
      quotient      <= is_signed && a[W-1] ? -a : a;
      divisor       <= is_signed && b[W-1] ? -b : b;
      remainder     <= '0;
      negative      <= is_signed && a[W-1] != b[W-1] && b != '0;
      negative_rest <= is_signed && a[W-1];
    end else if (!done) begin
      left      <= left - 1'b1;
      quotient  <= {quotient[W-2:0], !less[W]};
      remainder <= less[W] ? next[W-1:0] : less[W-1:0];
    end
    if (rst) left <= '0;
  end

`ifndef SYNTHESIS
  bits_are_bounded : assert property (@(posedge clk) disable iff (rst) left <= C'(W));
  remainder_is_smaller : assert property (@(posedge clk) disable iff (rst)
      divisor != '0 && left != C'(W) |-> remainder < divisor);
  result_stays : assert property (@(posedge clk) disable iff (rst)
      done && !start |=> $stable({y, rest}));
`endif

endmodule
