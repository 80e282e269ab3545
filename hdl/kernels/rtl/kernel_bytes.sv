// The body of a kernel's request, byte by byte, while the kernel takes it (kernel_control).
//
// The end of a body is a separate word, as in axis_bytes. `start` drops the rest of the previous body.
//
// Parameters: W, stream width in bits. Latency: 1 cycle. Throughput: one byte per cycle.
module kernel_bytes #(
    parameter int W = 64
) (
    input  logic       clk,
    input  logic       rst,
    input  logic       start,
    input  logic       taking,
`include "stream_in.svh"
    output logic       byte_valid,
    input  logic       byte_taken,
    output logic [7:0] next_byte,
    output logic       byte_end
);

  logic ready;

  assign s_ready = taking && ready;

  axis_bytes #(
      .W(W)
  ) u_bytes (
      .rst    (rst || start),
      .s_valid(taking && s_valid),
      .s_ready(ready),
      .m_valid(byte_valid),
      .m_ready(byte_taken),
      .m_byte (next_byte),
      .m_end  (byte_end),
      .*
  );

`ifndef SYNTHESIS
  bytes_stay : assert property (@(posedge clk) disable iff (rst)
      byte_valid && !byte_taken && !start |=> byte_valid && $stable({next_byte, byte_end}));
  end_is_last : assert property (@(posedge clk) disable iff (rst)
      byte_valid && byte_end && byte_taken && !start |=> !byte_valid);
  no_input_before_start : assert property (@(posedge clk) disable iff (rst) s_ready |-> taking);
`endif

endmodule
