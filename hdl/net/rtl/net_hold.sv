// Holds received frames back while `hold`, so that a segment does not overtake the opening of its
// session: the ACK that opens one takes some cycles to be checked, and data may come right behind it.
//
// Passes frames on beat by beat otherwise. A frame that might not fit is dropped whole.
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

  // What is read where it is written does not show: there the store is empty, since a frame is begun only if all of it has room.
  (* no_rw_check = 1 *) beat_t store[DEPTH];
  logic [A:0] head, tail, used;
  logic inside_frame, dropping, drop_now, keep, pass;
  logic [A:0] length;  // beats of this frame so far

  assign used = tail - head;
  assign drop_now = inside_frame ? dropping : used > (A + 1)'(DEPTH - FRAME);
  assign keep = s_valid && !drop_now && length < (A + 1)'(FRAME);
  // What comes into an empty store goes straight on.
  assign pass = keep && used == '0 && !hold;

  beat_t kept, stored, passed;
  logic from_store;

  always_comb begin
    kept = s;
    // A frame that is too long ends where there is no more room for it, and fails its checks.
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

endmodule
