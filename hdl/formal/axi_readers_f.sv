// Proof harness: each address that memory accepts is that of one reader, which holds it, and memory's
// replies go to the readers in the order of these addresses.
//
// The solver picks the number of a burst, modulo 8; the reader of this burst is followed.
module axi_readers_f
  import axi_pkg::*;
(
    input logic            clk,
    input logic            rst,
    input axi_read_t       s0,
    input axi_read_t       s1,
    input axi_read_reply_t m_reply,
    input logic [2:0]      pick
);

  localparam int N = 2;
  localparam int Outstanding = 4;

  axi_read_t       s_read[N];
  axi_read_reply_t s_reply[N];
  axi_read_t       m_read, asked;
  logic            started, waited, ended;
  logic [N-1:0]    taken, given, held, followed;
  logic [2:0]      pick_before, taken_count, ended_count, open;

  initial started = 1'b0;
  assign s_read[0] = s0;
  assign s_read[1] = s1;

  axi_readers #(
      .N(N),
      .OUTSTANDING(Outstanding)
  ) dut (
      .*
  );

  for (genvar i = 0; i < N; i++) begin : g_reader
    assign taken[i] = s_read[i].arvalid && s_reply[i].arready;
    assign given[i] = s_reply[i].rvalid;
  end
  assign open  = taken_count - ended_count;
  assign ended = m_reply.rvalid && m_read.rready && m_reply.rlast;

  always_ff @(posedge clk) begin
    started     <= 1'b1;
    pick_before <= pick;
    waited      <= m_read.arvalid && !m_reply.arready && !rst;
    asked       <= m_read;
    held        <= rst ? '0 : {s1.arvalid, s0.arvalid} & ~taken;
    if (rst) begin
      taken_count <= '0;
      ended_count <= '0;
    end else begin
      if (taken != '0) taken_count <= taken_count + 1'b1;
      if (taken != '0 && taken_count == pick) followed <= taken;
      if (ended) ended_count <= ended_count + 1'b1;
    end
  end

  logic [31:0] asked_before[N];
  always_ff @(posedge clk) for (int i = 0; i < N; i++) asked_before[i] <= s_read[i].araddr;

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before);
      // A reader holds its address until it is accepted; memory replies to bursts that it accepted.
      for (int i = 0; i < N; i++) if (held[i]) assume (s_read[i].arvalid && s_read[i].araddr == asked_before[i]);
      assume (!m_reply.rvalid || open != '0);
      if (!rst) begin
        assert (open <= 3'(Outstanding));
        assert ((taken & (taken - 1'b1)) == '0);
        assert ((given & (given - 1'b1)) == '0);
        assert ((taken != '0) == (m_read.arvalid && m_reply.arready));
        for (int i = 0; i < N; i++) if (taken[i]) assert (m_read.araddr == s_read[i].araddr && m_read.arlen == s_read[i].arlen);
        if (waited) assert (m_read.arvalid && m_read.araddr == asked.araddr);
        assert ((given != '0) == m_reply.rvalid);
        if (m_reply.rvalid && ended_count == pick) assert (given == followed);
      end
    end
  end

endmodule
