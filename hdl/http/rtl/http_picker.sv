// Selects the session that is served next: those with pending work in turn, without those whose call is in progress.
//
// Parameters: SESSIONS. Latency: one cycle from an event to `any`, two to `next`.
module http_picker #(
    parameter  int SESSIONS = 16,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [S-1:0]        session,     // the served one:
    input  logic                picks,       // it is to be `next`, if there is one
    input  logic                calls,       // its call is requested
    input  logic                again,       // it has more work, after the others
    input  logic                arrived,
    input  logic [S-1:0]        arrived_at,
    input  logic                woken,
    input  logic [S-1:0]        woken_at,
    input  logic                finished,    // a call has ended
    input  logic [S-1:0]        finish_tag,
    output logic [SESSIONS-1:0] working,     // with pending work, or a call in progress
    output logic                next_valid,  // `next` has work
    output logic [S-1:0]        next,
    output logic                any,         // a session has work,
    output logic                others,      // other than the served one
    output logic                calling      // a call is in progress
);

  logic [SESSIONS-1:0] ready;
  logic [SESSIONS-1:0] in_call;  // its call is in progress: the session is not served
  logic [SESSIONS-1:0] pickable, pick_after;
  logic [S-1:0] pick_from, pick_next;

  function automatic logic [S-1:0] first_of(input logic [SESSIONS-1:0] set);
    first_of = '0;
    for (int i = SESSIONS - 1; i >= 0; i--) if (set[i]) first_of = S'(i);
  endfunction

  assign pickable = ready & ~in_call;
  assign working = ready | in_call;
  assign any = |pickable;
  assign others = |(pickable & ~(SESSIONS'(1) << session));
  assign calling = |in_call;
  assign pick_after = pickable & ({SESSIONS{1'b1}} << pick_from);
  assign pick_next = |pick_after ? first_of(pick_after) : first_of(pickable);
  assign next_valid = pickable[next];

  always_ff @(posedge clk) begin
    next <= pick_next;
    if (picks && next_valid) begin
      pick_from <= next + 1'b1;
      ready[next] <= 1'b0;
    end
    if (calls) in_call[session] <= 1'b1;
    if (again) ready[session] <= 1'b1;
    if (finished) begin
      in_call[finish_tag] <= 1'b0;
      ready[finish_tag] <= 1'b1;
    end
    if (arrived) ready[arrived_at] <= 1'b1;
    if (woken) ready[woken_at] <= 1'b1;
    if (rst) begin
      ready <= '0;
      pick_from <= '0;
      in_call <= '0;
    end
  end

`ifndef SYNTHESIS
  // A call ends only if it is in progress.
  finished_calls_are_in_progress : assert property (@(posedge clk) disable iff (rst)
      finished |-> in_call[finish_tag]);
  // No session is served while its call is in progress.
  calling_sessions_rest : assert property (@(posedge clk) disable iff (rst)
      picks && next_valid |-> !in_call[next]);
  picked_sessions_work : assert property (@(posedge clk) disable iff (rst)
      picks && next_valid |-> working[next]);
  one_call_per_session : assert property (@(posedge clk) disable iff (rst)
      $rose(calls) |-> !in_call[session]);
`endif

endmodule
