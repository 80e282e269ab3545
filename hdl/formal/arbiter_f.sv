// Proof harness: the arbiter grants only to requesters, grants whenever it may, and passes over a
// permanent requester at most once for each other one.
module arbiter_f (
    input logic       clk,
    input logic       rst,
    input logic       enable,
    input logic [3:0] request,
    input logic [1:0] pick      // the requester that is followed
);

  localparam int N = 4;

  logic       started;
  logic [3:0] grant;
  logic [1:0] pick_before;
  logic [2:0] passed;   // grants to others while this one requested

  initial started = 1'b0;

  arbiter #(
      .N(N)
  ) dut (
      .*
  );

  always_ff @(posedge clk) begin
    started     <= 1'b1;
    pick_before <= pick;
    if (rst || !request[pick] || grant[pick]) passed <= '0;
    else if (grant != '0 && passed != '1) passed <= passed + 1'b1;
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before);
      if (!rst) begin
        assert ((grant & (grant - 1'b1)) == '0);
        assert ((grant & ~request) == '0);
        assert ((grant != '0) == (enable && request != '0));
        assert (passed < 3'(N));
        if (passed == 3'(N - 1) && grant != '0 && request[pick]) assert (grant[pick]);
      end
    end
  end

endmodule
