// Sessions with a pending event of the application, in the order of the events: each is in the queue at most once.
//
// An event is a report of the application, or a `kick` of the engine itself, which waits while there is a report.
//
// Parameters: SESSIONS. Latency: two cycles from an event to `chosen`, in an empty queue.
module tcp_pending #(
    parameter  int SESSIONS = 16,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         report_valid,
    input  logic [S-1:0] report_at,
    input  logic         kick,      // held until a cycle without a report
    input  logic [S-1:0] kick_at,
    output logic         chosen,    // the oldest session is known:
    output logic [S-1:0] next,
    input  logic         taken,     // it leaves the queue
    output logic         busy       // the queue's state changes
);

  // A queue with each session at most once.
  // A session is in the queue if its two bits differ: one is toggled on entry, the other on exit.
  logic [S-1:0] queue[SESSIONS];
  logic came[SESSIONS], went[SESSIONS];
  logic [S:0] queue_head, queue_tail;
  logic enqueue, queued, push_again, wiping;
  logic [S-1:0] push_at, wipe_at;

  assign push_at = report_valid ? report_at : kick_at;
  assign queued = came[push_at] ^ went[push_at];
  assign push_again = taken && next == push_at;
  assign enqueue = (report_valid || kick) && (!queued || push_again);

  always_ff @(posedge clk) begin
    // Both start equal.
    if (wiping || enqueue) came[wiping ? wipe_at : push_at] <= !wiping && !came[push_at];
    if (wiping || taken) went[wiping ? wipe_at : next] <= !wiping && !went[next];
    wipe_at <= wipe_at + 1'b1;
    if (wipe_at == '1) wiping <= 1'b0;
    if (enqueue) queue[queue_tail[S-1:0]] <= push_at;
    // The next entry is read a cycle ahead.
    if (taken) chosen <= 1'b0;
    else if (!chosen && queue_head != queue_tail) begin
      chosen <= 1'b1;
      next <= queue[queue_head[S-1:0]];
      queue_head <= queue_head + 1'b1;
    end
    if (enqueue) queue_tail <= queue_tail + 1'b1;
    if (rst) begin
      wiping <= 1'b1;
      wipe_at <= '0;
      chosen <= 1'b0;
      queue_head <= '0;
      queue_tail <= '0;
    end
  end

  assign busy = chosen || wiping || queue_head != queue_tail;

`ifndef SYNTHESIS
  // Each session is in the queue at most once.
  queue_never_overflows : assert property (@(posedge clk) disable iff (rst)
      (S + 1)'(queue_tail - queue_head) <= (S + 1)'(SESSIONS));
  // Only a known session is taken.
  taken_sessions_are_chosen : assert property (@(posedge clk) disable iff (rst) taken |-> chosen);
  kicks_stay : assert property (@(posedge clk) disable iff (rst)
      kick && report_valid |=> kick && $stable(kick_at));
`endif

endmodule
