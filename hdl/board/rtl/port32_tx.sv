// The sending half of a 32-bit port (board_port32): beats of the shell, 64 bits, in one clock
// domain; words for a MAC in another, with `m_valid` throughout a frame,
// because a MAC cannot pause within one.
//
// A frame is held until it is complete: the shell may not have a beat in every cycle of a frame
// (its rings may be in a memory that stalls, and its clock may be slower than half the port's), so
// no fixed lead is sufficient for all boards. This adds a frame's length to the latency; the
// throughput is unaffected if two of the longest frames fit. The number of complete frames crosses
// in a counter (cdc_count), a cycle after the last beat's pointer, so that the receiver of the
// counter can read the whole frame.
//
// Parameters: FRAME, beats of the longest frame; DEPTH, beats of the FIFO, a power of two, at least
// FRAME, and twice that for full throughput. Latency: from a frame's last beat 2 cycles of `clk`
// and at most 5 of `port_clk`. Resets and constraints: fifo_cdc.
module port32_tx
  import net_pkg::*;
#(
    parameter int FRAME = 192,
    parameter int DEPTH = 512
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        s_valid,
    output logic        s_ready,
    input  beat_t       s,
    input  logic        port_clk,
    input  logic        port_rst,
    output logic        m_valid,
    input  logic        m_ready,
    output logic [31:0] m_data,
    output logic [ 3:0] m_keep,
    output logic        m_last
);

  localparam int A = $clog2(DEPTH);

  if (DEPTH < FRAME) $error("DEPTH must be at least FRAME");

  // The smallest encoding of a beat: two block RAMs of 36 bits hold it.
  typedef struct packed {
    logic [63:0] data;
    logic [2:0]  more;  // bytes minus one
    logic        last;
  } entry_t;

  // ---- the shell's side ----
  entry_t in, out;
  logic ended;  // the last beat of a frame was accepted a cycle ago
  logic out_valid, out_ready;
  logic [A:0] whole_there, whole_next, unused_level, unused_count, unused_there;

  always_comb begin
    in.data = s.data;
    in.last = s.last;
    in.more = '0;
    for (int i = 1; i < 8; i++) if (s.keep[i]) in.more = 3'(i);
  end

  always_ff @(posedge clk) ended <= !rst && s_valid && s_ready && s.last;

  fifo_cdc #(
      .T    (entry_t),
      .DEPTH(DEPTH)
  ) u_fifo (
      .s_clk    (clk),
      .s_rst    (rst),
      .s_valid,
      .s_ready,
      .s_payload(in),
      .s_level  (unused_level),
      .m_clk    (port_clk),
      .m_rst    (port_rst),
      .m_valid  (out_valid),
      .m_ready  (out_ready),
      .m_payload(out)
  );

  cdc_count #(
      .BITS(A + 1)
  ) u_whole (
      .s_clk      (clk),
      .s_rst      (rst),
      .s_step     (ended),
      .s_count    (unused_count),
      .s_gray_next(whole_next),
      .m_clk      (port_clk),
      .m_rst      (port_rst),
      .m_gray     (whole_there),
      .m_count    (unused_there)
  );

  // ---- the port's side: a waiting beat, the visible word, and possibly the word after it ----
  // The FIFO is read by a register; a beat arrives every other cycle, the time of two words.
  entry_t beat;
  logic beat_full, first, whole, starts, move, high_full, high_last, sends;
  logic [31:0] high;
  logic [3:0] high_keep;
  logic [A:0] begun, begun_next, begun_gray;  // frames

  assign out_ready = !beat_full;
  assign sends = !m_valid || m_ready;
  assign move = beat_full && !high_full && sends && (!first || whole);
  assign starts = move && first;
  assign begun_next = begun + 1'b1;

  function automatic logic [3:0] kept(input logic [1:0] more);
    return 4'hf >> (2'd3 - more);
  endfunction

  always_ff @(posedge port_clk) begin
    if (!beat_full) beat <= out;
    if (move) begin
      high      <= beat.data[63:32];
      high_keep <= kept(beat.more[1:0]);
      high_last <= beat.last;
    end
    if (sends) begin
      m_data <= high_full ? high : beat.data[31:0];
      m_keep <= high_full ? high_keep : beat.more[2] ? 4'hf : kept(beat.more[1:0]);
      m_last <= high_full ? high_last : beat.last && !beat.more[2];
    end
    if (port_rst) begin
      beat_full  <= 1'b0;
      high_full  <= 1'b0;
      m_valid    <= 1'b0;
      first      <= 1'b1;
      whole      <= 1'b0;
      begun      <= '0;
      begun_gray <= '0;
    end else begin
      beat_full <= beat_full ? !move : out_valid;
      if (sends) begin
        m_valid   <= high_full || move;
        high_full <= move && beat.more[2];
      end
      if (move) first <= beat.last;
      // A cycle late, also after a start: no beat moves in the next one.
      whole <= whole_there != begun_gray;
      if (starts) begin
        begun      <= begun_next;
        begun_gray <= begun_next ^ (begun_next >> 1);
      end
    end
  end

`ifndef SYNTHESIS
  no_pause : assert property (@(posedge port_clk) disable iff (port_rst)
      m_valid && m_ready && !m_last |=> m_valid);
  offers_stay : assert property (@(posedge port_clk) disable iff (port_rst)
      m_valid && !m_ready |=> m_valid && $stable({m_data, m_keep, m_last}));
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      s_valid && !s.last |-> s.keep == '1);
  // A frame that does not fit would wait for its end indefinitely.
  logic [A:0] length;
  always_ff @(posedge clk)
    if (rst) length <= '0;
    else if (s_valid && s_ready) length <= s.last ? '0 : length + 1'b1;
  frames_fit : assert property (@(posedge clk) disable iff (rst)
      s_valid |-> length < (A + 1)'(FRAME));
`endif

endmodule
