// Converts a 32-bit float to 64 bits, exactly. Latency: 1 cycle, while `enable` is high.
module hls_widen (
    input  logic        clk,
    input  logic        enable,
    input  logic [31:0] a,
    output logic [63:0] y
);

  logic [4:0]  zeroes;
  logic [22:0] front;

  // A subnormal number becomes normal.
  always_comb begin
    zeroes = '0;
    for (int i = 0; i < 23; i++) if (a[i]) zeroes = 5'(23 - i);
    front = a[22:0] << zeroes;
  end

  always_ff @(posedge clk) begin
    if (enable) begin
      if (a[30:23] == '1) y <= {a[31] && a[22:0] == '0, 11'h7ff, a[22:0] != '0, 51'd0};
      else if (a[30:23] != '0) y <= {a[31], 11'(a[30:23]) + 11'd896, a[22:0], 29'd0};
      else if (a[22:0] == '0) y <= {a[31], 63'd0};
      else y <= {a[31], 11'd897 - 11'(zeroes), front, 29'd0};
    end
  end

`ifndef SYNTHESIS
  one_nan : assert property (@(posedge clk)
      enable |=> y[62:52] != '1 || y[51:0] == '0 || y == 64'h7ff8_0000_0000_0000);
  waits_without_enable : assert property (@(posedge clk) !enable |=> $stable(y));
`endif

endmodule
