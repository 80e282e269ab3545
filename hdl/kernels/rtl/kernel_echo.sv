// A kernel that returns its body, to measure the cost of a call; a minimal example of a kernel.
//
// Scalars: none. Parameters: W, stream width in bits (32 or 64).
// Latency: 1 cycle per beat. Throughput: W / 8 bytes per cycle.
module kernel_echo #(
    parameter int W = 64
) (
`include "stream_kernel_ports.svh"
);

  if (W != 32 && W != 64) $error("W must be 32 or 64");

  logic  taking, skid_ready;
  logic  unused_params;

  assign unused_params = &{1'b0, params};

  kernel_control u_control (
      .s_end (s_valid && s_ready && s_last),
      .m_end (m_valid && m_ready && m_last),
      .*
  );

  assign s_ready = taking && skid_ready;

  kernel_output #(
      .W(W)
  ) u_output (
      .s_valid(taking && s_valid),
      .s_ready(skid_ready),
      .s_data (s_data),
      .s_keep (s_keep),
      .s_last (s_last),
      .*
  );

`ifndef SYNTHESIS
  // Each beat of the body is a beat of the reply; two are on their way at most.
  logic [1:0] held;
  always_ff @(posedge clk)
    if (rst) held <= '0;
    else held <= held + 2'(s_valid && s_ready) - 2'(m_valid && m_ready);
  replies_follow_beats : assert property (@(posedge clk) disable iff (rst)
      m_valid |-> held inside {2'd1, 2'd2});
  nothing_is_left : assert property (@(posedge clk) disable iff (rst) done |-> held == '0);
`endif

endmodule
