// Proof harness: a writer whose address memory has accepted has the port until memory's response: no
// other writer's address or data reaches memory, and no other writer gets the response.
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
  logic             started, open;
  logic [N-1:0]     taken, fed, answered, owner;

  initial started = 1'b0;
  assign s_write[0] = s0;
  assign s_write[1] = s1;
  assign s_write[2] = s2;

  axi_writers #(
      .N(N)
  ) dut (
      .*
  );

  for (genvar i = 0; i < N; i++) begin : g_writer
    assign taken[i]    = s_write[i].awvalid && s_reply[i].awready;
    assign fed[i]      = s_write[i].wvalid && s_reply[i].wready;
    assign answered[i] = s_reply[i].bvalid;
  end

  always_ff @(posedge clk) begin
    started <= 1'b1;
    if (taken != '0) owner <= taken;
    if (taken != '0) open <= 1'b1;
    else if (m_reply.bvalid && m_write.bready) open <= 1'b0;
    if (rst) open <= 1'b0;
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else if (!rst) begin
      // Memory responds to a burst whose address it has accepted.
      assume (!m_reply.bvalid || open);
      assert ((taken & (taken - 1'b1)) == '0);
      assert ((taken != '0) == (m_write.awvalid && m_reply.awready));
      assert ((fed != '0) == (m_write.wvalid && m_reply.wready));
      for (int i = 0; i < N; i++) begin
        if (taken[i]) assert (m_write.awaddr == s_write[i].awaddr && m_write.awlen == s_write[i].awlen);
        if (fed[i]) assert (m_write.wdata == s_write[i].wdata && m_write.wstrb == s_write[i].wstrb);
      end
      if (open) begin
        assert (taken == '0);
        assert ((fed & ~owner) == '0);
        assert ((answered & ~owner) == '0);
      end
    end
  end

endmodule
