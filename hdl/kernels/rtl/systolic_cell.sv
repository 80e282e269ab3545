// One cell of a systolic array: multiplies the passing values and accumulates the products.
//
// Values of a move right and values of b move down, one cell per cycle. `first` moves with a: its
// product begins a new sum. While `shift` is high the sums move up by one row per cycle.
//
// Parameters: SUM_BITS. Latency: 1 cycle to the next cell, 2 to the sum. Throughput:
// one product per cycle.
module systolic_cell #(
    parameter int SUM_BITS = 22
) (
    input  logic                       clk,
    input  logic signed [7:0]          a_left,
    input  logic                       first_left,
    input  logic signed [7:0]          b_above,
    output logic signed [7:0]          a_right,
    output logic                       first_right,
    output logic signed [7:0]          b_below,
    input  logic                       shift,
    input  logic signed [SUM_BITS-1:0] sum_below,
    output logic signed [SUM_BITS-1:0] sum
);

  logic signed [15:0] product;
  logic               first;

  always_ff @(posedge clk) begin
    a_right     <= a_left;
    first_right <= first_left;
    b_below     <= b_above;
    product     <= a_left * b_above;
    first       <= first_left;
    if (shift) sum <= sum_below;
    else sum <= (first ? '0 : sum) + SUM_BITS'(product);
  end

endmodule
