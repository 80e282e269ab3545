// Proof harness: frames of several senders leave one after another, each whole and from one sender,
// and a sender waits for at most one frame of each other sender.
module net_mux_f
  import net_pkg::*;
(
    input logic       clk,
    input logic       rst,
    input logic [2:0] s_valid,
    input beat_t      s0,
    input beat_t      s1,
    input beat_t      s2,
    input logic       m_ready,
    input logic [1:0] pick      // the sender that is followed
);

  localparam int N = 3;

  logic         started, m_valid, open;
  logic [N-1:0] s_ready, moved, from, held;
  logic [1:0]   pick_before, passed;
  beat_t        s[N];
  beat_t        m;

  initial started = 1'b0;
  assign s[0] = s0;
  assign s[1] = s1;
  assign s[2] = s2;
  assign moved = s_valid & s_ready;

  net_mux #(
      .N(N)
  ) dut (
      .*
  );

  always_ff @(posedge clk) begin
    started     <= 1'b1;
    pick_before <= pick;
    held        <= rst ? '0 : s_valid & ~s_ready;
    if (rst) begin
      open   <= 1'b0;
      passed <= '0;
    end else begin
      if (moved != '0) begin
        from <= moved;
        open <= !m.last;
      end
      if (!s_valid[pick] || moved[pick]) passed <= '0;
      else if (moved != '0 && m.last && passed != '1) passed <= passed + 1'b1;
    end
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before && pick < 2'(N));
      // An offered beat stays until it is accepted.
      assume ((held & ~s_valid) == '0);
      if (!rst) begin
        assert ((s_ready & (s_ready - 1'b1)) == '0);
        assert ((moved != '0) == (m_valid && m_ready));
        for (int i = 0; i < N; i++) if (moved[i]) assert (m == s[i]);
        if (open && moved != '0) assert (moved == from);
        assert (passed < 2'(N));
      end
    end
  end

endmodule
