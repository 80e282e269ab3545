// Shares one AXI4 read port of board memory between several readers, in turn. Memory replies in the
// order of the requests, so replies go to the readers in that order.
//
// Parameters: N; OUTSTANDING, bursts that may be in progress. Latency: none. Throughput: that of
// the port.
module axi_readers
  import axi_pkg::*;
#(
    parameter int N = 2,
    parameter int OUTSTANDING = 16
) (
    input  logic            clk,
    input  logic            rst,
    // Each reader holds its address until it is accepted, as AXI4 requires.
    input  axi_read_t       s_read[N],
    output axi_read_reply_t s_reply[N],
    // The memory's port.
    output axi_read_t       m_read,
    input  axi_read_reply_t m_reply
);

  logic own_clk;  // gated while no state changes

  localparam int SlotBits = $clog2(OUTSTANDING);

  logic [N-1:0]      requests, grant, held, chosen;
  logic [N-1:0]      order[OUTSTANDING];  // the readers of the bursts in progress
  logic [SlotBits:0] head, tail;
  logic [N-1:0]      owner;
  logic              full, accepted;

  assign full  = (head - tail) == (SlotBits + 1)'(OUTSTANDING);
  assign owner = head == tail ? '0 : order[tail[SlotBits-1:0]];

  arbiter #(
      .N(N)
  ) u_turns (
      .clk(own_clk),
      .rst,
      .enable (held == '0 && !full),
      .request(requests),
      .grant
  );

  // A reader whose address memory has not accepted keeps its turn.
  assign chosen   = held != '0 ? held : grant;
  assign accepted = m_read.arvalid && m_reply.arready;

  for (genvar i = 0; i < N; i++) begin : g_request
    assign requests[i] = s_read[i].arvalid;
  end

  always_comb begin
    m_read = '0;
    m_read.arsize = 3'd3;
    m_read.arburst = BurstIncr;
    for (int i = 0; i < N; i++) begin
      if (chosen[i]) begin
        m_read.arvalid = s_read[i].arvalid;
        m_read.araddr  = s_read[i].araddr;
        m_read.arlen   = s_read[i].arlen;
      end
      if (owner[i]) m_read.rready = s_read[i].rready;
      s_reply[i]         = m_reply;
      s_reply[i].arready = chosen[i] && m_reply.arready;
      s_reply[i].rvalid  = owner[i] && m_reply.rvalid;
    end
  end

  always_ff @(posedge own_clk) begin
    if (accepted) order[head[SlotBits-1:0]] <= chosen;
    if (rst) begin
      head <= '0;
      tail <= '0;
      held <= '0;
    end else begin
      if (accepted) head <= head + 1'b1;
      held <= accepted ? '0 : chosen;
      if (m_reply.rvalid && m_read.rready && m_reply.rlast) tail <= tail + 1'b1;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || requests != '0 || held != '0 || head != tail),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  one_at_a_time : assert property (@(posedge clk) disable iff (rst) $onehot0(chosen));
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      m_read.arvalid && !m_reply.arready |=>
      m_read.arvalid && $stable({m_read.araddr, m_read.arlen}));
  words_were_requested : assert property (@(posedge clk) disable iff (rst)
      m_reply.rvalid |-> owner != '0);
  bursts_are_bounded : assert property (@(posedge clk) disable iff (rst)
      head - tail <= (SlotBits + 1)'(OUTSTANDING));
`endif

endmodule
