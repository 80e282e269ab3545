// Template of a kernel: copy it, rename it, replace the part between the two lines of dashes.
//
// docs/kernels.md has the interface's rules. Unchanged, it is a kernel that returns its body.
//
// Scalars: the meaning of each of the four. Parameters: W, stream width in bits (32 or 64).
// Latency: cycles from input to output. Throughput: bytes per cycle.
module kernel_template #(
    parameter int W = 64
) (
`include "stream_kernel_ports.svh"
);

  if (W != 32 && W != 64) $error("W must be 32 or 64");

  logic  taking, skid_ready;
  logic  unused_params;

  // Scalar 0 is params[31:0]. A kernel without scalars has a waiver for the linter.
  assign unused_params = &{1'b0, params};

  // Controls when input may be accepted, and when the run is over.
  kernel_control u_control (
      .s_end (s_valid && s_ready && s_last),
      .m_end (m_valid && m_ready && m_last),
      .*
  );

  // ------------------------------------------------------------------------------
  // Input may be accepted while `taking`; output leaves through a register (here a skid buffer), so
  // that a region has no combinational path from one of its sides to the other.
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
  // ------------------------------------------------------------------------------

`ifndef SYNTHESIS
  // A sentence for each property that the kernel's own part keeps: input only during a run.
  input_while_taking : assert property (@(posedge clk) disable iff (rst) s_ready |-> taking);
`endif

endmodule
