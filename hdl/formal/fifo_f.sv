// Proof harness: the small FIFO does not lose, reorder or invent entries,
// also with a writer that decides a cycle early.
//
// The solver picks a position in the stream, modulo 16; the entry at this position is followed.
module fifo_f (
`include "queue_inputs.svh"
);

  localparam int Depth = 4;

  logic       s_ready, ready_before, m_valid, started, waited;
  logic [3:0] m_payload, offered, pick_before, taken, given, value, count;

  initial started = 1'b0;

  fifo #(
      .T    (logic [3:0]),
      .DEPTH(Depth)
  ) dut (
      .*
  );

  assign count = taken - given;

  always_ff @(posedge clk) begin
    started      <= 1'b1;
    pick_before  <= pick;
    ready_before <= s_ready && !rst;
    waited       <= m_valid && !m_ready && !rst;
    offered      <= m_payload;
    if (rst) begin
      taken <= '0;
      given <= '0;
    end else begin
      if (s_valid) taken <= taken + 1'b1;
      if (s_valid && taken == pick) value <= s_payload;
      if (m_valid && m_ready) given <= given + 1'b1;
    end
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before);
      // The writer saw `s_ready` in this cycle or in the previous one, and cannot be stopped.
      assume (!s_valid || s_ready || ready_before);
      if (!rst) begin
        assert (count <= 4'(Depth));
        assert (m_valid == (count != '0));
        assert (s_ready || count != '0);
        if (waited) assert (m_valid && m_payload == offered);
        if (m_valid && given == pick) assert (m_payload == value);
      end
    end
  end

endmodule
