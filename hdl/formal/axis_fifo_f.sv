// Proof harness: the FIFO does not lose, reorder or invent entries,
// and an offered entry stays until it is accepted.
//
// The solver picks a position in the stream, modulo 16; the entry at this position is followed.
module axis_fifo_f (
`include "queue_inputs.svh"
);

  localparam int Most = 5;   // entries that fit

  logic       s_ready, m_valid, started, waited;
  logic [3:0] m_payload, offered, pick_before, taken, given, value, count;
  logic [2:0] level;

  initial started = 1'b0;

  axis_fifo #(
      .T    (logic [3:0]),
      .DEPTH(4)
  ) dut (
      .*
  );

  assign count = taken - given;

  always_ff @(posedge clk) begin
    started     <= 1'b1;
    pick_before <= pick;
    waited      <= m_valid && !m_ready && !rst;
    offered     <= m_payload;
    if (rst) begin
      taken <= '0;
      given <= '0;
    end else begin
      if (s_valid && s_ready) taken <= taken + 1'b1;
      if (s_valid && s_ready && taken == pick) value <= s_payload;
      if (m_valid && m_ready) given <= given + 1'b1;
    end
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before);
      if (!rst) begin
        assert (count <= 4'(Most));
        assert (!m_valid || count != '0);
        assert (s_ready || count != '0);
        if (waited) assert (m_valid && m_payload == offered);
        if (m_valid && given == pick) assert (m_payload == value);
        assert (4'(level) == count);
      end
    end
  end

endmodule
