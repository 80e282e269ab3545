// What net_stack tells of its sessions and is told, as one number a session: for an application that looks at any of
// them at any time. What the application says goes out with its `notify`.
//
// Parameters: SESSIONS. Latency: one cycle to the application, none from it.
module net_numbers #(
    parameter  int SESSIONS = 16,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic                clk,
    input  logic                rst,
    // net_stack
    input  logic                rcv_told,
    input  logic [S-1:0]        rcv_at,
    input  logic [31:0]         rcv_told_next,
    input  logic                rcv_told_ended,
    input  logic                rcv_arrived,
    input  logic                open,
    input  logic [S-1:0]        open_at,
    input  logic [31:0]         open_una,
    input  logic                tell,
    input  logic [S-1:0]        tell_at,
    input  logic [31:0]         tell_una,
    input  logic                tell_dead,
    input  logic                tell_shut,
    input  logic                tell_wake,
    output logic                app_valid,
    output logic [S-1:0]        app_at,
    output logic [31:0]         app_read_to,
    output logic [31:0]         app_written_to,
    output logic                app_finish,
    // the application
    output logic [31:0]         rcv_next   [SESSIONS],
    output logic [SESSIONS-1:0] rcv_ended,
    output logic                arrived,
    output logic [S-1:0]        arrived_at,
    output logic [31:0]         snd_una    [SESSIONS],
    output logic [SESSIONS-1:0] dead,
    output logic [SESSIONS-1:0] shut,
    output logic                woken,
    output logic [S-1:0]        woken_at,
    input  logic [31:0]         read_to    [SESSIONS],
    input  logic [31:0]         written_to [SESSIONS],
    input  logic [SESSIONS-1:0] finish,
    input  logic                notify,
    input  logic [S-1:0]        notify_at,
    input  logic                release_valid,
    input  logic [S-1:0]        release_at
);

  assign app_valid = notify;
  assign app_at = notify_at;
  assign app_read_to = read_to[notify_at];
  assign app_written_to = written_to[notify_at];
  assign app_finish = finish[notify_at];

  always_ff @(posedge clk) begin
    arrived <= rcv_arrived && !rst;
    arrived_at <= rcv_at;
    woken <= tell && tell_wake && !rst;
    woken_at <= tell_at;
    if (rcv_told) begin
      rcv_next[rcv_at]  <= rcv_told_next;
      rcv_ended[rcv_at] <= rcv_told_ended;
    end
    // Nothing is told of a session in the cycle in which it is opened.
    if (open || tell) snd_una[open ? open_at : tell_at] <= open ? open_una : tell_una;
    if (tell) begin
      dead[tell_at] <= tell_dead;
      shut[tell_at] <= tell_shut;
    end
    if (release_valid) dead[release_at] <= 1'b0;
    if (open) begin
      dead[open_at] <= 1'b0;
      shut[open_at] <= 1'b0;
    end
    if (rst) begin
      dead <= '0;
      shut <= '0;
      rcv_ended <= '0;
    end
  end

endmodule
