// Holds received frames back while `hold`, so that a segment does not overtake the opening of its
// session: the ACK that opens a session takes several cycles to check,
// and data may follow directly.
//
// Otherwise passes frames on beat by beat. A frame that might not fit is dropped as a whole.
//
// Parameters: DEPTH, beats, a power of two; FRAME, the longest frame. Latency: 1 cycle.
module net_hold
  import net_pkg::*;
#(
    parameter int DEPTH = 1024,
    parameter int FRAME = 192
) (
    input  logic  clk,
    input  logic  rst,
    input  logic  hold,
    input  logic  s_valid,
    input  beat_t s,
    output logic  m_valid,
    output beat_t m
);

  localparam int A = $clog2(DEPTH);

  if (DEPTH != 1 << A) $error("DEPTH must be a power of two");

  // No bypass for a read of the written address: the store is empty then,
  // because a frame is begun only if all of it fits.
  (* no_rw_check = 1 *) beat_t store[DEPTH];
  logic [A:0] head, tail, used;
  logic inside_frame, dropping, drop_now, keep, pass;
  logic [A:0] length;  // beats of this frame so far

  assign used = tail - head;
  assign drop_now = inside_frame ? dropping : used > (A + 1)'(DEPTH - FRAME);
  assign keep = s_valid && !drop_now && length < (A + 1)'(FRAME);
  // A beat that arrives at an empty store is passed on directly.
  assign pass = keep && used == '0 && !hold;

  beat_t kept, stored, passed;
  logic from_store;

  always_comb begin
    kept = s;
    // An oversized frame is cut where the store is full, and fails its checks.
    if (length == (A + 1)'(FRAME - 1)) kept.last = 1'b1;
  end

  assign m = from_store ? stored : passed;

  always_ff @(posedge clk) begin
    if (keep) store[tail[A-1:0]] <= kept;
    stored <= store[head[A-1:0]];
    passed <= kept;
    from_store <= !pass;
    if (rst) begin
      head <= '0;
      tail <= '0;
      inside_frame <= 1'b0;
      dropping <= 1'b0;
      length <= '0;
      m_valid <= 1'b0;
    end else begin
      m_valid <= !hold && (pass || used != '0);
      if (keep && !pass) tail <= tail + 1'b1;
      if (!hold && used != '0) head <= head + 1'b1;
      if (s_valid) begin
        inside_frame <= !s.last;
        dropping <= drop_now;
        length <= s.last ? '0 : length + (A + 1)'(keep);
      end
    end
  end

`ifndef SYNTHESIS
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      s_valid && !s.last |-> s.keep == '1);
  no_overflow : assert property (@(posedge clk) disable iff (rst)
      keep && !pass |-> used < (A + 1)'(DEPTH));
  store_is_bounded : assert property (@(posedge clk) disable iff (rst) used <= (A + 1)'(DEPTH));
  frames_are_bounded : assert property (@(posedge clk) disable iff (rst) length <= (A + 1)'(FRAME));
  hold_stops_beats : assert property (@(posedge clk) disable iff (rst) hold |=> !m_valid);
  // Only frames that fit are begun.
  kept_beats_fit : assert property (@(posedge clk) disable iff (rst)
      inside_frame && !dropping |-> used + (A + 1)'(FRAME) - length <= (A + 1)'(DEPTH));
`endif

endmodule
