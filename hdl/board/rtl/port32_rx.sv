// The receiving half of a 32-bit port (board_port32): words of a MAC, which cannot wait, in one
// clock domain; beats of the shell, 64 bits and all full except the last, in another.
//
// A frame is accepted if there is space for the longest frame, otherwise it is dropped completely
// and counted. A core that is too slow for the line therefore drops whole frames. Beats of a frame
// beyond FRAME are cut off; such frames are not permitted, and the shell, which cuts them at the
// same length (net_hold), finds that their checks fail. A frame of which a part arrives while the
// port is in reset is dropped without being counted.
//
// Parameters: FRAME, beats of the longest frame; DEPTH, beats of the FIFO, a power of two,
// at least FRAME + 8.
// Latency: 3 cycles of `port_clk`, at most 5 of `clk`. Resets and constraints: fifo_cdc.
module port32_rx
  import net_pkg::*;
#(
    parameter int FRAME = 192,
    parameter int DEPTH = 512
) (
    input  logic        port_clk,
    input  logic        port_rst,
    input  logic        s_valid,
    input  logic [31:0] s_data,
    input  logic [ 3:0] s_keep,    // contiguous from bit 0; full on every word except the last
    input  logic        s_last,
    input  logic        clk,
    input  logic        rst,
    output logic        m_valid,
    output beat_t       m,
    output logic [15:0] dropped    // dropped frames; wraps
);

  localparam int A = $clog2(DEPTH);
  localparam int L = $clog2(FRAME + 1);

  if (DEPTH < FRAME + 8) $error("DEPTH must be at least FRAME + 8");

  // The smallest encoding of a beat: two block RAMs of 36 bits hold it.
  typedef struct packed {
    logic [63:0] data;
    logic [2:0]  more;  // bytes minus one
    logic        last;
  } entry_t;

  // ---- two words per beat ----
  logic was_reset, take, odd, beat_valid;
  logic [31:0] low;
  entry_t beat;

  // The incoming words belong to a frame that began during reset: none at power-on.
  logic rest = 1'b0;
  assign take = s_valid && !rest && !port_rst;

  always_ff @(posedge port_clk) begin
    was_reset <= port_rst;
    if (s_valid) rest <= !s_last && (port_rst || rest);
    else if (port_rst && !was_reset) rest <= 1'b0;
    if (!odd) low <= s_data;
    beat.data  <= odd ? {s_data, low} : {32'b0, s_data};
    beat.more  <= {odd, s_keep[2], s_keep[3] || (s_keep[1] && !s_keep[2])};
    beat.last  <= s_last;
    beat_valid <= take && (odd || s_last);
    if (port_rst) odd <= 1'b0;
    else if (take) odd <= !odd && !s_last;
  end

  // ---- whole frames, or none ----
  logic inside_frame, dropping, drop_now, room, keep, put, ready;
  logic [A:0] level;
  logic [L-1:0] length;  // accepted beats of this frame
  entry_t entry;

  // Three further beats may be in flight.
  always_ff @(posedge port_clk) room <= level <= (A + 1)'(DEPTH - FRAME - 4);

  assign drop_now = inside_frame ? dropping : !room;
  assign keep = beat_valid && !drop_now && length < L'(FRAME);

  always_ff @(posedge port_clk) begin
    entry <= beat;
    if (length == L'(FRAME - 1)) entry.last <= 1'b1;
    put <= keep && !port_rst;
    if (port_rst) begin
      inside_frame <= 1'b0;
      dropping <= 1'b0;
      length <= '0;
    end else if (beat_valid) begin
      inside_frame <= !beat.last;
      dropping <= drop_now;
      length <= beat.last ? '0 : length + L'(keep);
    end
  end

  entry_t out;
  logic step;
  logic [15:0] unused_count, unused_next, unused_gray, count;

  fifo_cdc #(
      .T    (entry_t),
      .DEPTH(DEPTH)
  ) u_fifo (
      .s_clk    (port_clk),
      .s_rst    (port_rst),
      .s_valid  (put),
      .s_ready  (ready),
      .s_payload(entry),
      .s_level  (level),
      .m_clk    (clk),
      .m_rst    (rst),
      .m_valid,
      .m_ready  (1'b1),
      .m_payload(out)
  );

  assign m = '{data: out.data, keep: 8'hff >> (3'd7 - out.more), last: out.last};

  assign step = beat_valid && beat.last && drop_now;

  cdc_count #(
      .BITS(16)
  ) u_dropped (
      .s_clk      (port_clk),
      .s_rst      (port_rst),
      .s_step     (step),
      .s_count    (unused_count),
      .s_gray_next(unused_next),
      .m_clk      (clk),
      .m_rst      (rst),
      .m_gray     (unused_gray),
      .m_count    (count)
  );

  always_ff @(posedge clk) dropped <= count;

`ifndef SYNTHESIS
  room_is_kept : assert property (@(posedge port_clk) disable iff (port_rst) put |-> ready);
  words_are_full : assert property (@(posedge port_clk) disable iff (port_rst)
      s_valid && !s_last |-> s_keep == '1);
  frames_are_bounded : assert property (@(posedge port_clk) disable iff (port_rst)
      length <= L'(FRAME));
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m.last |-> m.keep == '1);
`endif

endmodule
