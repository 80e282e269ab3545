// Splits a stream into bytes.
//
// The end of a stream is a separate word, with `m_end` and no byte:
// a stream of n bytes is n + 1 words.
//
// Parameters: W, stream width in bits. Latency: 1 cycle. Throughput: one byte per cycle.
// `s_ready` depends on `m_ready`.
module axis_bytes #(
    parameter int W = 64
) (
    input  logic           clk,
    input  logic           rst,
`include "stream_in.svh"
    output logic           m_valid,
    input  logic           m_ready,
    output logic [7:0]     m_byte,
    output logic           m_end
);

  logic [W-1:0]   data;
  logic [W/8-1:0] keep;
  logic           full, last, leaves;

  assign m_byte  = data[7:0];
  assign m_valid = full;
  assign m_end   = !keep[0];
  // A beat is used up with its last byte; the last beat of a stream only with the end.
  assign leaves  = full && m_ready && (last ? !keep[0] : !keep[1]);
  assign s_ready = !full || leaves;

  always_ff @(posedge clk) begin
    if (rst) full <= 1'b0;
    else if (s_valid && s_ready) full <= 1'b1;
    else if (leaves) full <= 1'b0;
  end

  always_ff @(posedge clk) begin
    if (s_valid && s_ready) begin
      data <= s_data;
      keep <= s_keep;
      last <= s_last;
    end else if (full && m_ready) begin
      data <= data >> 8;
      keep <= keep >> 1;
    end
  end

`ifndef SYNTHESIS
  bytes_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable({m_byte, m_end}));
  // Within a stream, each beat has a byte, as otherwise the end would come early.
  beats_have_bytes : assert property (@(posedge clk) disable iff (rst)
      s_valid && !s_last |-> s_keep[0]);
  keep_is_contiguous : assert property (@(posedge clk) disable iff (rst)
      s_valid |-> (s_keep & (s_keep + 1'b1)) == '0);
`endif

endmodule
