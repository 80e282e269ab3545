// Proof harness: a writer whose address or data memory has accepted has the port until its last
// beat: no other writer's address or data reaches memory; and the responses, in the order of the
// bursts, reach their writers.
module axi_writers_f
  import axi_pkg::*;
(
    input logic             clk,
    input logic             rst,
    input axi_write_t       s0,
    input axi_write_t       s1,
    input axi_write_t       s2,
    input axi_write_reply_t m_reply
);

  localparam int N = 3;

  axi_write_t       s_write[N];
  axi_write_reply_t s_reply[N];
  axi_write_t       m_write;
  localparam int MOST = 4;

  // The burst in progress: its writer, whether its address and its last beat were accepted.
  // The writers of the bursts without a response, the oldest first.
  logic             started, has_address, has_data, ends;
  logic [N-1:0]     taken, fed, answered, owner, beats;
  logic [N-1:0]     owed[MOST];
  logic [2:0]       count;

  initial started = 1'b0;
  assign s_write[0] = s0;
  assign s_write[1] = s1;
  assign s_write[2] = s2;

  axi_writers #(
      .N(N),
      .OUTSTANDING(MOST)
  ) dut (
      .*
  );

  for (genvar i = 0; i < N; i++) begin : g_writer
    assign taken[i]    = s_write[i].awvalid && s_reply[i].awready;
    assign fed[i]      = s_write[i].wvalid && s_reply[i].wready;
    assign answered[i] = s_reply[i].bvalid;
  end

  assign beats = taken | fed;
  assign ends = (has_address || taken != '0) && (has_data || (fed != '0 && m_write.wlast));

  always_ff @(posedge clk) begin
    started <= 1'b1;
    if (beats != '0) owner <= beats;
    has_address <= !ends && (has_address || taken != '0);
    has_data <= !ends && (has_data || (fed != '0 && m_write.wlast));
    if (ends) owner <= '0;
    for (int i = 0; i < MOST; i++) begin
      if (m_reply.bvalid && m_write.bready) begin
        owed[i] <= i + 1 < MOST ? owed[(i+1)%MOST] : '0;
        if (ends && 3'(i) == count - 1'b1) owed[i] <= owner | beats;
      end else if (ends && 3'(i) == count) owed[i] <= owner | beats;
    end
    count <= count + 3'(ends) - 3'(m_reply.bvalid && m_write.bready);
    if (rst) {has_address, has_data, owner, count} <= '0;
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else if (!rst) begin
      // Memory responds to bursts whose address and data it has accepted.
      assume (!m_reply.bvalid || count != '0);
      assert ((taken != '0) == (m_write.awvalid && m_reply.awready));
      assert ((fed != '0) == (m_write.wvalid && m_reply.wready));
      assert (((owner | beats) & ((owner | beats) - 1'b1)) == '0);
      for (int i = 0; i < N; i++) begin
        if (taken[i]) assert (m_write.awaddr == s_write[i].awaddr && m_write.awlen == s_write[i].awlen);
        if (fed[i]) assert (m_write.wdata == s_write[i].wdata && m_write.wstrb == s_write[i].wstrb);
      end
      if (has_address) assert (taken == '0);
      if (has_data) assert (fed == '0);
      assert (count <= 3'(MOST));
      assert (answered == (m_reply.bvalid ? owed[0] : '0));
    end
  end

endmodule
