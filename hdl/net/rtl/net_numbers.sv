// Stores the notifications of net_stack about sessions, for an application that reads one session
// at a time: positions are in memories with one write port and one read port,
// flags in a register per session.
//
// Parameters: SESSIONS. Latency: one cycle.
module net_numbers #(
    parameter  int SESSIONS = 16,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic                clk,
    input  logic                rst,
    // net_stack
    input  logic                rcv_notify,
    input  logic [S-1:0]        rcv_at,
    input  logic [31:0]         rcv_notify_next,
    input  logic                rcv_notify_ended,
    input  logic                rcv_arrived,
    input  logic                open,
    input  logic [S-1:0]        open_at,
    input  logic [31:0]         open_una,
    input  logic                notify,
    input  logic [S-1:0]        notify_at,
    input  logic [31:0]         notify_una,
    input  logic                notify_dead,
    input  logic                notify_shut,
    input  logic                notify_wake,
    // the application: the received stream of one session, the acknowledged position of one,
    // and changes
    input  logic [S-1:0]        rcv_of,
    output logic [31:0]         rcv_next,
    output logic                rcv_ended,
    input  logic [S-1:0]        una_of,
    output logic [31:0]         snd_una,
    output logic                arrived,
    output logic [S-1:0]        arrived_at,
    output logic [SESSIONS-1:0] dead,
    output logic [SESSIONS-1:0] shut,
    output logic                woken,
    output logic [S-1:0]        woken_at,
    input  logic                release_valid,
    input  logic [S-1:0]        release_at
);

  typedef struct packed {
    logic        ended;
    logic [31:0] next;
  } stream_t;

  stream_t streams[SESSIONS];
  logic [31:0] unas[SESSIONS];

  assign {rcv_ended, rcv_next} = streams[rcv_of];
  assign snd_una = unas[una_of];

  always_ff @(posedge clk) begin
    if (rcv_notify) streams[rcv_at] <= '{ended: rcv_notify_ended, next: rcv_notify_next};
    // There is no notification of a session in the cycle in which it is opened.
    if (open || notify) unas[open ? open_at : notify_at] <= open ? open_una : notify_una;
  end

  always_ff @(posedge clk) begin
    arrived <= rcv_arrived && !rst;
    arrived_at <= rcv_at;
    woken <= notify && notify_wake && !rst;
    woken_at <= notify_at;
    if (notify) begin
      dead[notify_at] <= notify_dead;
      shut[notify_at] <= notify_shut;
    end
    if (release_valid) dead[release_at] <= 1'b0;
    if (open) begin
      dead[open_at] <= 1'b0;
      shut[open_at] <= 1'b0;
    end
    if (rst) begin
      dead <= '0;
      shut <= '0;
    end
  end

`ifndef SYNTHESIS
  // The positions have one write port.
  one_position : assert property (@(posedge clk) disable iff (rst) !(open && notify));
  dead_sessions_were_notified : assert property (@(posedge clk) disable iff (rst)
      notify && notify_dead && !release_valid |=> dead[$past(notify_at)]);
`endif

endmodule
