// Converts a 64-bit float to 32 bits, to nearest even. Latency: 2 cycles. Throughput: one per
// cycle, while `enable` is high.
module hls_narrow (
    input  logic        clk,
    input  logic        enable,
    input  logic [63:0] a,
    output logic [31:0] y
);

  logic        sign_1, odd_1, over_1, below, up;
  logic [11:0] exp, back;
  logic [7:0]  exp_1;
  logic [52:0] man, shifted;
  logic [25:0] man_1;  // hidden one, fraction, guard, sticky

  assign exp     = 12'(a[62:52]) - 12'd896;
  assign below   = $signed(exp) < 12'sd1;
  assign back    = 12'd1 - exp;
  assign man     = {a[62:52] != '0, a[51:0]};
  assign shifted = !below ? man : back > 12'd54 ? '0 : man >> back;
  assign up      = man_1[1] && (man_1[0] || man_1[2]);

  always_ff @(posedge clk) begin
    if (enable) begin
      sign_1 <= a[63];
      odd_1  <= a[62:52] == '1 && a[51:0] != '0;
      over_1 <= $signed(exp) >= 12'sd255;
      exp_1  <= below ? '0 : exp[7:0];
      man_1  <= {shifted[52-:25], shifted[27:0] != '0 || (below && (back > 12'd54 ? man != '0 : (shifted << back) != man))};
      if (odd_1) y <= 32'h7fc0_0000;
      else if (over_1) y <= {sign_1, 8'hff, 23'd0};
      else y <= {sign_1, {exp_1, man_1[24:2]} + 31'(up)};
    end
  end

`ifndef SYNTHESIS
  one_nan : assert property (@(posedge clk)
      enable |=> y[30:23] != '1 || y[22:0] == '0 || y == 32'h7fc0_0000);
  waits_without_enable : assert property (@(posedge clk) !enable |=> $stable(y));
`endif

endmodule
