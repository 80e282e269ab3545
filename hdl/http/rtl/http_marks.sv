// The positions of sessions that are not served: consumed and written ones, as notified to TCP, and the one at which
// reading resumes. They are set by the served session, by the end of a call, and when a session is opened; one at a
// time, in this order of priority.
//
// Parameters: SESSIONS; the rings' bits. Latency: one cycle.
module http_marks #(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    localparam int S = $clog2(SESSIONS),
    localparam int RxP = net_pkg::position_bits(RX_RING_BITS),
    localparam int TxP = net_pkg::position_bits(TX_RING_BITS)
) (
    input  logic           clk,
    input  logic           rst,
    // A session is opened; sessions are opened many cycles apart.
    input  net_pkg::opened_t opened,   // also those that the board opens, for others
    // The served session: which of its positions are set, to these values.
    input  logic           own,
    input  logic           own_begin,
    input  logic           own_resume,
    input  logic           own_written,
    input  logic [RxP-1:0] own_at,
    input  logic [TxP-1:0] own_position,
    input  logic [S-1:0]   session,
    // A call has ended well, in a cycle in which nothing else is set: the end of its request and of its reply.
    input  logic           ended,
    input  logic [S-1:0]   ended_at,
    input  logic [RxP-1:0] ended_after,
    input  logic [TxP-1:0] ended_to,
    output logic           opening,    // an opened session's positions are not set yet,
    output logic           opens,      // but in this cycle
    output logic [S-1:0]   opening_at,
    // The session that is served next, the served one, and one to notify TCP of.
    input  logic [S-1:0]   pick_at,
    output logic [RxP-1:0] pick_resume,
    output logic [RxP-1:0] resume,
    output logic [RxP-1:0] begun,
    output logic [TxP-1:0] written,
    input  logic [S-1:0]   notify_at,
    output logic [RxP-1:0] notify_begun,
    output logic [TxP-1:0] notify_written
);

  logic [RxP-1:0] resumes[SESSIONS], begun_of[SESSIONS];
  logic [TxP-1:0] written_of[SESSIONS];
  logic [RxP-1:0] opening_next, value;
  logic [TxP-1:0] opening_una, position;
  logic [S-1:0] at;

  logic open;
  assign open = opened.valid && !opened.active;
  assign opens = opening && !own;
  assign at = own ? session : opening ? opening_at : ended_at;
  assign value = own ? own_at : opening ? opening_next : ended_after;
  assign position = own ? own_position : opening ? opening_una : ended_to;

  always_ff @(posedge clk) begin
    if (opens || ended || own_resume) resumes[at] <= value;
    if (opens || ended || (own && own_begin)) begun_of[at] <= value;
    if (opens || ended || own_written) written_of[at] <= position;
    if (open) begin
      opening_at <= opened.session[S-1:0];
      opening_next <= RxP'(opened.next);
      opening_una <= TxP'(opened.una);
    end
    opening <= !rst && (open || (opening && !opens));
  end

  assign pick_resume = resumes[pick_at];
  assign resume = resumes[session];
  assign begun = begun_of[session];
  assign written = written_of[session];
  assign notify_begun = begun_of[notify_at];
  assign notify_written = written_of[notify_at];

`ifndef SYNTHESIS
  // The end of a call waits for the others.
  ends_wait : assert property (@(posedge clk) disable iff (rst) ended |-> !own && !opening);
  // A session is opened only when the previous one's positions are set.
  opened_sessions_are_set : assert property (@(posedge clk) disable iff (rst)
      open |-> !opening || opens);
`endif

endmodule
