// The ticks of sessions: each tick of the clock scans the sessions with running timers, 16 at a time, and every 64th
// tick all sessions; and the time.
//
// Parameters: SESSIONS, a power of two of at least 16. Latency: three cycles from a tick to its first session.
module tcp_timers #(
    parameter  int SESSIONS = 16,
    localparam int GROUPS = SESSIONS / 16,
    localparam int G = GROUPS > 1 ? $clog2(GROUPS) : 1,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         tick,         // a millisecond
    input  logic [S:0]   born,         // sessions that were ever used
    input  logic         alert_write,  // this session has a running timer, or no longer:
    input  logic [S-1:0] alert_at,
    input  logic         alert,
    output logic         chosen,       // a session has its tick:
    output logic [S-1:0] first,
    output logic         due_slow,     // one of 64 ms,
    output logic         late,         // or of a scan that the next tick has overtaken
    input  logic         taken,        // the tick of `first`
    output logic [15:0]  now,          // in ms
    output logic [15:0]  epoch,        // in 8.2 s
    output logic         busy          // a scan is owed or in progress
);

  logic [15:0] alerts[1<<G];  // sessions with running timers
  logic [15:0] due, due_now, alert_now;
  logic [G-1:0] group, due_group;
  logic [5:0] slow_turn;
  logic scanning, tick_owed, slow_now;
  logic [3:0] due_first;

  always_comb begin
    due_first = '0;
    for (int i = 15; i >= 0; i--) if (due[i]) due_first = 4'(i);
    slow_now = slow_turn == 6'(group);
    due_now = slow_now ? '1 : alerts[group];
    // Sessions that were used before.
    if (born[S:4] == (S - 3)'(group)) due_now &= ~(16'hffff << born[3:0]);
    else if (born[S:4] < (S - 3)'(group)) due_now = '0;
    alert_now = alerts[G'(alert_at >> 4)];
    alert_now[alert_at[3:0]] = alert;
  end

  assign busy = due != '0 || tick_owed || scanning || chosen;

  always_ff @(posedge clk) begin
    // The next group of sessions, when all of the previous group have been chosen.
    chosen <= |due && !taken;
    first <= S'({due_group, due_first});
    if (due == '0 && scanning) begin
      due <= due_now;
      due_group <= group;
      due_slow <= slow_now;
      group <= group + 1'b1;
      if (group == G'(GROUPS - 1)) scanning <= 1'b0;
    end
    if (due == '0 && !scanning) begin
      late <= 1'b0;
      group <= '0;
      if (tick_owed) begin
        scanning <= 1'b1;
        tick_owed <= 1'b0;
        slow_turn <= slow_turn + 6'd1;
      end
    end
    if (tick) begin
      tick_owed <= 1'b1;
      late <= scanning || due != '0;
    end
    if (taken) due[due_first] <= 1'b0;
    if (alert_write) alerts[G'(alert_at >> 4)] <= alert_now;

    if (tick) begin
      now <= now + 16'd1;
      if (now[12:0] == '1) epoch <= epoch + 16'd1;  // 8.2 s
    end
    if (rst) begin
      due <= '0;
      scanning <= 1'b0;
      tick_owed <= 1'b0;
      late <= 1'b0;
      chosen <= 1'b0;
      slow_turn <= '0;
      now <= '0;
      epoch <= '0;
    end
  end

`ifndef SYNTHESIS
  // Only a session of the present group is taken.
  taken_sessions_are_due : assert property (@(posedge clk) disable iff (rst)
      taken |-> chosen && due != '0);
  chosen_sessions_were_used : assert property (@(posedge clk) disable iff (rst)
      chosen |-> (S + 1)'(first) < born);
`endif

endmodule
