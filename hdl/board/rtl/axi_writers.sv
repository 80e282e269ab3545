// Shares one AXI4 write port of board memory between several writers: one burst after the other, in
// turn. The selected writer has the port from its address to its last beat; the others wait.
// Memory responds in the order of the bursts, and each response goes to its writer (bresp to all).
//
// Parameters: N; OUTSTANDING, bursts without a response. Latency: one cycle from an address to its
// output, two between bursts. Throughput: otherwise that of the port.
module axi_writers
  import axi_pkg::*;
#(
    parameter int N = 2,
    parameter int OUTSTANDING = 8
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
  logic [N-1:0] may, next;    // writer of the burst, at most one; writer of the next burst
  logic         taken, fed;   // its address, and all its data, were accepted
  logic         takes, feeds, ends, is_free, is_due, answers;
  logic [N-1:0] answered;     // writer of the next response

  arbiter #(
      .N(N)
  ) u_turns (
      .clk,
      .rst,
      .enable (may == '0 && is_free),
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
        m_write.wvalid  = !fed && s_write[i].wvalid;
        m_write.wdata   = s_write[i].wdata;
        m_write.wstrb   = s_write[i].wstrb;
        m_write.wlast   = s_write[i].wlast;
      end
      if (is_due && answered[i]) m_write.bready = s_write[i].bready;
      s_reply[i].awready = may[i] && m_reply.awready && !taken;
      s_reply[i].wready  = may[i] && m_reply.wready && !fed;
      s_reply[i].bvalid  = is_due && answered[i] && m_reply.bvalid;
      s_reply[i].bresp   = m_reply.bresp;
    end
  end

  assign takes = m_write.awvalid && m_reply.awready;
  assign feeds = m_write.wvalid && m_reply.wready && m_write.wlast;
  assign ends = (taken || takes) && (fed || feeds);
  assign answers = m_reply.bvalid && m_write.bready;

  fifo #(
      .T(logic [N-1:0]),
      .DEPTH(OUTSTANDING)
  ) u_answers (
      .clk,
      .rst,
      .s_valid(ends),
      .s_ready(is_free),
      .s_payload(may),
      .m_valid(is_due),
      .m_ready(answers),
      .m_payload(answered)
  );

  always_ff @(posedge clk) begin
    if (may == '0) may <= next;
    else if (ends) may <= '0;
    taken <= may != '0 && !ends && (taken || takes);
    fed <= may != '0 && !ends && (fed || feeds);
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
      m_reply.bvalid |-> is_due);
  ended_bursts_have_place : assert property (@(posedge clk) disable iff (rst) ends |-> is_free);
`endif

endmodule
