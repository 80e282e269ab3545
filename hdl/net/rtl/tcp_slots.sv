// Free sessions: those that were released, in their order, and then those that were never used.
//
// Parameters: SESSIONS. Latency: two cycles from a release to `slot_free`.
module tcp_slots #(
    parameter  int SESSIONS = 16,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         release_valid,
    input  logic [S-1:0] release_at,
    input  logic         hold,       // `slot` does not change: the lookup has its number
    input  logic         taken,      // `slot` is no longer free; only with `slot_free`
    output logic         slot_free,  // there is a free session,
    output logic [S-1:0] slot,       // this one
    output logic [S:0]   born        // sessions that were ever used
);

  logic [S-1:0] free_slots[SESSIONS];
  logic [S:0] free_head, free_tail;
  logic slot_born;  // never used before

  always_ff @(posedge clk) begin
    slot_free <= (free_head != free_tail || born != (S + 1)'(SESSIONS)) && !taken;
    if (!hold) begin
      slot <= free_head != free_tail ? free_slots[free_head[S-1:0]] : born[S-1:0];
      slot_born <= free_head == free_tail;
    end
    if (release_valid) begin
      free_slots[free_tail[S-1:0]] <= release_at;
      free_tail <= free_tail + 1'b1;
    end
    if (taken) begin
      if (slot_born) born <= born + 1'b1;
      else free_head <= free_head + 1'b1;
    end
    if (rst) begin
      free_head <= '0;
      free_tail <= '0;
      born <= '0;
    end
  end

`ifndef SYNTHESIS
  // More sessions are not released than were taken.
  released_sessions_were_used : assert property (@(posedge clk) disable iff (rst)
      (S + 1)'(free_tail - free_head) <= born);
  // A session is taken only if there is one.
  taken_sessions_are_free : assert property (@(posedge clk) disable iff (rst) taken |-> slot_free);
  held_slots_stay : assert property (@(posedge clk) disable iff (rst) hold |=> $stable(slot));
`endif

endmodule
