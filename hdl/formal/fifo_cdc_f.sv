// Proof harness: the FIFO between two clocks does not lose, reorder or invent entries,
// with any behavior of the clocks.
//
// A step of the proof is shorter than a cycle of either clock: each clock may rise in any step,
// also both in the same one, and then crossing values are sampled before their change; a step
// later, after it. One bit changes at a time (cdc_count asserts it), so that both values to which a
// flip-flop may settle are covered. The solver picks a position in the stream, modulo 8; the entry
// at this position is followed.
module fifo_cdc_f (
    input logic       s_clk,
    input logic       s_rst,
    input logic       s_valid,
    input logic       s_payload,
    input logic       m_clk,
    input logic       m_rst,
    input logic       m_ready,
    input logic [2:0] choice
);

  localparam int Depth = 4;

  logic       s_ready, m_valid, offered_valid;
  logic       m_payload, offered, value;
  logic [2:0] s_level;
  logic [2:0] taken, given, count, pick;
  logic [1:0] s_cycles, m_cycles;  // cycles in reset, saturating at three
  logic       s_begun, m_begun;    // out of reset
  logic       over;                // each has been in reset for three cycles

  initial begin
    s_cycles = '0;
    m_cycles = '0;
    s_begun = 1'b0;
    m_begun = 1'b0;
  end

  fifo_cdc #(
      .T    (logic),
      .DEPTH(Depth)
  ) dut (
      .*
  );

  assign count = taken - given;
  assign over = s_cycles == 2'd3 && m_cycles == 2'd3;

  always_ff @(posedge s_clk) begin
    if (s_cycles != 2'd3) s_cycles <= s_cycles + 1'b1;
    if (!s_rst) s_begun <= 1'b1;
    if (s_rst) begin
      taken <= '0;
      pick  <= choice;
    end else if (s_valid && s_ready) begin
      taken <= taken + 1'b1;
      if (taken == pick) value <= s_payload;
    end
  end

  always_ff @(posedge m_clk) begin
    if (m_cycles != 2'd3) m_cycles <= m_cycles + 1'b1;
    if (!m_rst) m_begun <= 1'b1;
    offered_valid <= m_valid && !m_ready && !m_rst;
    offered <= m_payload;
    if (m_rst) given <= '0;
    else if (m_valid && m_ready) given <= given + 1'b1;
  end

  always_comb begin
    // Once, together, and until the other's zero has arrived; they end at different times.
    assume (s_rst || over);
    assume (m_rst || over);
    assume (!s_rst || !s_begun);
    assume (!m_rst || !m_begun);
    if (over) begin
      assert (count <= 3'(Depth + 1));
      if (s_begun) assert (s_level <= 3'(Depth));
      if (m_begun) begin
        if (m_valid) assert (count != '0);
        if (offered_valid) assert (m_valid && m_payload == offered);
        if (m_valid && given == pick) assert (m_payload == value);
      end
    end
  end

endmodule
