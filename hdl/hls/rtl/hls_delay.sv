// A value of STEPS steps before; a step is a cycle in which `enable` is high. The values between are in
// distributed memory: about a LUT for each bit, where registers would be STEPS for each.
module hls_delay #(
    parameter int W = 32,    // bits
    parameter int STEPS = 5  // at least 3
) (
    input  logic         clk,
    input  logic         enable,
    input  logic [W-1:0] a,
    output logic [W-1:0] y
);

  localparam int WORDS = STEPS - 1;
  localparam int N = $clog2(WORDS);

  (* ram_style = "distributed" *) logic [W-1:0] words[WORDS];
  logic [N-1:0] place;  // from any start it is in range after a step

  always_ff @(posedge clk) begin
    if (enable) begin
      y            <= words[place];
      words[place] <= a;
      place        <= place >= N'(WORDS - 1) ? '0 : place + 1'b1;
    end
  end

`ifndef SYNTHESIS
  place_is_in_range : assert property (@(posedge clk) enable |=> place <= N'(WORDS - 1));
`endif

endmodule
