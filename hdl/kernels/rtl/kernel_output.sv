// The last stage of a kernel: a register between the kernel and its region, so that a kernel has no combinational
// path from the region to its own logic except `s_ready`, which is registered (docs/kernels.md).
//
// Parameters: W, stream width in bits. Latency: one cycle. Throughput: one beat per cycle.
module kernel_output #(
    parameter int W = 64
) (
    input  logic clk,
    input  logic rst,
`include "stream_in.svh"
`include "stream_out.svh"
);

  typedef struct packed {
    logic [W-1:0]   data;
    logic [W/8-1:0] keep;
    logic           last;
  } beat_t;

  beat_t out;

  axis_skid #(
      .T(beat_t)
  ) u_skid (
      .clk,
      .rst,
      .s_valid,
      .s_ready,
      .s_payload('{data: s_data, keep: s_keep, last: s_last}),
      .m_valid,
      .m_ready,
      .m_payload(out)
  );

  assign m_data = out.data;
  assign m_keep = out.keep;
  assign m_last = out.last;

`ifndef SYNTHESIS
  // An offered beat stays until it is accepted.
  held_beat : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(out));
  keep_is_contiguous : assert property (@(posedge clk) disable iff (rst)
      s_valid |-> (s_keep & (s_keep + 1'b1)) == '0);
`endif

endmodule
