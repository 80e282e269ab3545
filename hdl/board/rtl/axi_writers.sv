// Shares one AXI4 write port of board memory between several writers: one burst at a time, in turn.
// The selected writer has the port from its address to its response; the others wait.
// Responses (bresp) go to all.
//
// Parameters: N. Latency: one cycle from an address to its output, one between bursts. Throughput:
// otherwise that of the port.
module axi_writers
  import axi_pkg::*;
#(
    parameter int N = 2
) (
    input  logic             clk,
    input  logic             rst,
    // Each writer holds its address and its data until they are accepted, as AXI4 requires.
    input  axi_write_t       s_write[N],
    output axi_write_reply_t s_reply[N],
    // The memory's port.
    output axi_write_t       m_write,
    input  axi_write_reply_t m_reply
);

  logic [N-1:0] requests;
  logic [N-1:0] may, next;  // writer of the burst, at most one; writer of the next burst
  logic         taken;      // its address was accepted

  arbiter #(
      .N(N)
  ) u_turns (
      .clk,
      .rst,
      .enable (may == '0),
      .request(requests),
      .grant  (next)
  );

  always_comb begin
    m_write = '0;
    m_write.awsize = 3'd3;
    m_write.awburst = BurstIncr;
    for (int i = 0; i < N; i++) begin
      requests[i] = s_write[i].awvalid;
      if (may[i]) begin
        m_write.awvalid = !taken && s_write[i].awvalid;
        m_write.awaddr  = s_write[i].awaddr;
        m_write.awlen   = s_write[i].awlen;
        m_write.wvalid  = s_write[i].wvalid;
        m_write.wdata   = s_write[i].wdata;
        m_write.wstrb   = s_write[i].wstrb;
        m_write.wlast   = s_write[i].wlast;
        m_write.bready  = s_write[i].bready;
      end
      s_reply[i].awready = may[i] && m_reply.awready && !taken;
      s_reply[i].wready  = may[i] && m_reply.wready;
      s_reply[i].bvalid  = may[i] && m_reply.bvalid;
      s_reply[i].bresp   = m_reply.bresp;
    end
  end

  always_ff @(posedge clk) begin
    if (may == '0) begin
      may   <= next;
      taken <= 1'b0;
    end else if (m_reply.bvalid && m_write.bready) may <= '0;
    else if (m_write.awvalid && m_reply.awready) taken <= 1'b1;
    if (rst) may <= '0;
  end

`ifndef SYNTHESIS
  one_at_a_time : assert property (@(posedge clk) disable iff (rst) $onehot0(may));
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      m_write.awvalid && !m_reply.awready |=>
      m_write.awvalid && $stable({m_write.awaddr, m_write.awlen}));
  data_stay : assert property (@(posedge clk) disable iff (rst)
      m_write.wvalid && !m_reply.wready |=>
      m_write.wvalid && $stable({m_write.wdata, m_write.wstrb, m_write.wlast}));
  responses_were_requested : assert property (@(posedge clk) disable iff (rst)
      m_reply.bvalid |-> may != '0 && taken);
`endif

endmodule
