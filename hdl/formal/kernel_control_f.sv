// Proof harness: a run has one `done`, in the cycle after both of its ends,
// and accepts input only until its end.
//
// The assumptions about the caller are those of docs/kernels.md: no start within a run,
// no ends outside of one.
module kernel_control_f (
    input logic clk,
    input logic rst,
    input logic start,
    input logic s_end,
    input logic m_end
);

  logic taking, done, started, in_run, s_ended, m_ended, ended;

  initial started = 1'b0;

  kernel_control dut (.*);

  assign ended = in_run && (s_ended || s_end) && (m_ended || m_end);

  logic ended_before;

  always_ff @(posedge clk) begin
    started      <= 1'b1;
    ended_before <= ended && !rst;
    if (rst) begin
      in_run  <= 1'b0;
      s_ended <= 1'b0;
      m_ended <= 1'b0;
    end else begin
      if (start) in_run <= 1'b1;
      else if (ended) in_run <= 1'b0;
      s_ended <= !start && (s_ended || s_end);
      m_ended <= !start && (m_ended || m_end);
    end
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else if (!rst) begin
      assume (!start || !in_run);
      assume (!s_end || taking);
      assume (!m_end || (in_run && !m_ended));
      assert (done == ended_before);
      assert (taking == (in_run && !s_ended));
    end
  end

endmodule
