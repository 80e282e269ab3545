// Packs pieces of 0 to W / 8 bytes into a stream of full beats, except the last.
//
// A full beat is held back until it is known whether it is the last, so that no empty beat follows
// others; an empty stream is one empty beat.
//
// Parameters: W, stream width in bits. Latency: 1 cycle, plus the wait for enough bytes.
// Throughput: W / 8 bytes per cycle; the end of a stream costs 1 or 2 cycles.
// `s_ready` depends on `m_ready`.
module axis_packer #(
    parameter int W = 64
) (
    input  logic                     clk,
    input  logic                     rst,
    input  logic                     s_valid,
    output logic                     s_ready,
    input  logic [W-1:0]             s_data,
    input  logic [$clog2(W/8+1)-1:0] s_count,
    input  logic                     s_last,
`include "stream_out.svh"
);

  localparam int B = W / 8;
  localparam int HaveBits = $clog2(2 * B + 1);
  localparam int ByteBits = $clog2(B);

  logic [W-1:0]        low, high, turned;
  logic [HaveBits-1:0] have, left;
  logic [HaveBits-1:0] have_next;
  logic                more;          // more than a beat is held
  logic                ending, put, get;

  assign m_valid = ending || more;
  assign m_last  = ending && !more;
  assign m_data  = low;

  // The valid ones of the first B bytes.
  function automatic logic [B-1:0] first(input logic [HaveBits-1:0] count);
    first = |count[HaveBits-1:ByteBits] ? '1 : ~({B{1'b1}} << count[ByteBits-1:0]);
  endfunction

  logic [B-1:0] held, waits;   // bytes of the lower beat, and of the upper one

  assign held   = first(have);
  assign waits  = have[HaveBits-1] ? '1 : have[ByteBits] ? first(HaveBits'(have[ByteBits-1:0])) : '0;
  assign m_keep = held;

  // The held bytes before a new piece fit in one beat, either already or because a beat leaves.
  assign s_ready = !ending && (!more || m_ready);
  assign put     = s_valid && s_ready;
  assign get     = m_valid && m_ready;
  assign have_next = left + (put ? HaveBits'(s_count) : '0);
  assign left    = !get ? have : m_last ? '0 : have - HaveBits'(B);

  // A piece is rotated once: its bytes after the held ones continue the lower beat, those that
  // wrapped around are the upper one. A beat that leaves is a full one then, so this does not
  // depend on whether one leaves.
  always_comb begin
    turned = s_data;
    for (int k = 0; k < ByteBits; k++) if (have[k]) turned = (turned << (8 << k)) | (turned >> (W - (8 << k)));
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      have   <= '0;
      more   <= 1'b0;
      ending <= 1'b0;
    end else begin
      have <= have_next;
      more <= have_next > HaveBits'(B);
      if (put && s_last) ending <= 1'b1;
      else if (get && m_last) ending <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    // No bit changes while a beat waits, not even bytes without `keep`. The upper beat is empty
    // unless the lower is offered.
    for (int i = 0; i < B; i++) if (get || (put && !held[i])) low[8*i+:8] <= waits[i] ? high[8*i+:8] : turned[8*i+:8];
    if (put) high <= turned;
  end

`ifndef SYNTHESIS
  pieces_fit : assert property (@(posedge clk) disable iff (rst)
      s_valid |-> s_count <= $bits(s_count)'(B));
  holds_two_beats : assert property (@(posedge clk) disable iff (rst) have <= HaveBits'(2 * B));
  more_is_count : assert property (@(posedge clk) disable iff (rst) more == (have > HaveBits'(B)));
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_last |-> m_keep == '1);
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable({m_data, m_keep, m_last}));
  // No piece of the next stream comes before the last beat has left.
  end_is_alone : assert property (@(posedge clk) disable iff (rst) ending |-> !s_ready);
`endif

endmodule
