// Arbitrates one output between several senders, one whole frame at a time, in turn.
//
// Parameters: N, senders. Latency: combinational within a frame; one cycle to choose the next one.
module net_mux
  import net_pkg::*;
#(
    parameter int N = 3
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [N-1:0] s_valid,
    output logic [N-1:0] s_ready,
    input  beat_t        s      [N],
    output logic         m_valid,
    input  logic         m_ready,
    output beat_t        m
);

  logic busy;
  logic [$clog2(N)-1:0] chosen, next;

  // The first waiting sender after the one that was served last.
  always_comb begin
    next = chosen;
    for (int i = N; i > 0; i--) begin
      if (s_valid[(int'(chosen)+i)%N]) next = $clog2(N)'((int'(chosen) + i) % N);
    end
  end

  assign m = s[chosen];
  assign m_valid = busy && s_valid[chosen];

  always_comb begin
    s_ready = '0;
    s_ready[chosen] = busy && m_ready;
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      busy   <= 1'b0;
      chosen <= '0;
    end else if (!busy || (m_valid && m_ready && m.last)) begin
      // A sender's next frame must not be considered while its last beat leaves.
      busy <= busy ? 1'b0 : |s_valid;
      if (!busy) chosen <= next;
    end
  end

`ifndef SYNTHESIS
  one_sender : assert property (@(posedge clk) disable iff (rst) $onehot0(s_ready));
  frames_are_whole : assert property (@(posedge clk) disable iff (rst)
      busy && !(m_valid && m_ready && m.last) |=> busy && $stable(chosen));
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m));
`endif

endmodule
