// Proof harness: for any pieces, beats are full except the last, `keep` is contiguous, offered
// beats stay, and the output never has more bytes than the input.
module axis_packer_f (
    input logic        clk,
    input logic        rst,
    input logic        s_valid,
    input logic [31:0] s_data,
    input logic [2:0]  s_count,
    input logic        s_last,
    input logic        m_ready
);

  logic        s_ready, m_valid, m_last, started, waited, last_before, first;
  logic [31:0] m_data, data_before;
  logic [3:0]  m_keep, keep_before, count;
  logic [2:0]  kept;

  initial started = 1'b0;

  axis_packer #(
      .W(32)
  ) dut (
      .*
  );

  assign kept = 3'(m_keep[0]) + 3'(m_keep[1]) + 3'(m_keep[2]) + 3'(m_keep[3]);

  always_ff @(posedge clk) begin
    started     <= 1'b1;
    waited      <= m_valid && !m_ready && !rst;
    data_before <= m_data;
    keep_before <= m_keep;
    last_before <= m_last;
    if (rst) begin
      count <= '0;
      first  <= 1'b1;
    end else begin
      count <= count + (s_valid && s_ready ? 4'(s_count) : 4'd0) - (m_valid && m_ready ? 4'(kept) : 4'd0);
      if (m_valid && m_ready) first <= m_last;
    end
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else if (!rst) begin
      assume (s_count <= 3'd4);
      assert (count <= 4'd8);
      if (m_valid) begin
        assert ((m_keep & (m_keep + 1'b1)) == '0);
        assert (m_last || m_keep == '1);
        assert (4'(kept) <= count);
        assert (!m_last || 4'(kept) == count);
        assert (m_keep != '0 || first);
      end
      if (waited) assert (m_valid && m_keep == keep_before && m_last == last_before && m_data == data_before);
    end
  end

endmodule
