// Template of a kernel: copy it, rename it, replace the part between the two lines of dashes.
//
// docs/kernels.md has the interface's rules. Unchanged, it is a kernel that returns its body.
//
// Scalars: the meaning of each of the four. Parameters: W, stream width in bits (32 or 64).
// Latency: cycles from input to output. Throughput: bytes per cycle.
module kernel_template #(
    parameter int W = 64
) (
    input  logic           clk,
    input  logic           rst,
    input  logic           start,
    input  logic [127:0]   params,
    output logic           done,
    input  logic           s_valid,
    output logic           s_ready,
    input  logic [W-1:0]   s_data,
    input  logic [W/8-1:0] s_keep,
    input  logic           s_last,
    output logic           m_valid,
    input  logic           m_ready,
    output logic [W-1:0]   m_data,
    output logic [W/8-1:0] m_keep,
    output logic           m_last
);

  localparam int B = W / 8;

  if (W != 32 && W != 64) $error("W must be 32 or 64");

  typedef struct packed {
    logic [W-1:0] data;
    logic [B-1:0] keep;
    logic         last;
  } beat_t;

  logic  taking, skid_ready;
  beat_t out;
  logic  unused_params;

  // Scalar 0 is params[31:0]. A kernel without scalars has a waiver for the linter.
  assign unused_params = &{1'b0, params};

  // Controls when input may be accepted, and when the run is over.
  kernel_control u_control (
      .clk,
      .rst,
      .start,
      .s_end (s_valid && s_ready && s_last),
      .m_end (m_valid && m_ready && m_last),
      .taking,
      .done
  );

  // ------------------------------------------------------------------------------
  // Input may be accepted while `taking`; output leaves through a register (here a skid buffer), so
  // that a region has no combinational path from one of its sides to the other.
  assign s_ready = taking && skid_ready;

  axis_skid #(
      .T(beat_t)
  ) u_skid (
      .clk,
      .rst,
      .s_valid  (taking && s_valid),
      .s_ready  (skid_ready),
      .s_payload('{data: s_data, keep: s_keep, last: s_last}),
      .m_valid,
      .m_ready,
      .m_payload(out)
  );

  assign m_data = out.data;
  assign m_keep = out.keep;
  assign m_last = out.last;
  // ------------------------------------------------------------------------------

endmodule
