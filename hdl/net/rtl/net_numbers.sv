// What net_stack tells of its sessions, for an application that looks at one of them at a time: numbers are in
// memories with one port to write and one to read, flags in a register for each session.
//
// Parameters: SESSIONS. Latency: one cycle.
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
    // the application: the stream in of one session, what is acknowledged of one, and what is new
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
    if (rcv_told) streams[rcv_at] <= '{ended: rcv_told_ended, next: rcv_told_next};
    // Nothing is told of a session in the cycle in which it is opened.
    if (open || tell) unas[open ? open_at : tell_at] <= open ? open_una : tell_una;
  end

  always_ff @(posedge clk) begin
    arrived <= rcv_arrived && !rst;
    arrived_at <= rcv_at;
    woken <= tell && tell_wake && !rst;
    woken_at <= tell_at;
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
    end
  end

endmodule
