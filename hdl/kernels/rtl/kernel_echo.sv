// A kernel that returns its body, to measure the cost of a call; a minimal example of a kernel.
//
// Scalars: none. Parameters: W, stream width in bits (32 or 64).
// Latency: 1 cycle per beat. Throughput: W / 8 bytes per cycle.
module kernel_echo #(
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

  assign unused_params = &{1'b0, params};

  kernel_control u_control (
      .clk,
      .rst,
      .start,
      .s_end (s_valid && s_ready && s_last),
      .m_end (m_valid && m_ready && m_last),
      .taking,
      .done
  );

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

endmodule
