// Reads the stream of the served session, and prefetches that of the session that is served next (http_ahead).
//
// Parameters: SESSIONS; RX_RING_BITS and MEMORY_LATENCY of the receive rings. Latency: http_ahead's.
module http_reader
  import http_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    localparam int S = $clog2(SESSIONS),
    localparam int RxP = net_pkg::position_bits(RX_RING_BITS),
    localparam int RxBits = RX_RING_BITS + 2
) (
    input  logic              clk,
    input  logic              rst,
    input  logic              idle,         // no session is served
    input  logic              serves,       // the served session is known and its request loaded
    input  logic [S-1:0]      session,
    input  logic              start,        // reading begins
    input  logic [RxP-1:0]    at,           // there
    input  logic              pause,
    // The session that is served next.
    input  logic              next_any,
    input  logic              next_valid,
    input  logic [S-1:0]      next,
    input  logic [RxP-1:0]    next_resume,
    input  logic              drop,         // what was prefetched of this session is no longer valid,
    input  logic [S-1:0]      drop_session,
    input  logic              drop_next,    // or will not be
    // The end of a session's stream.
    output logic [S-1:0]      rcv_of,
    input  logic [RxP-1:0]    rcv_next,
    input  logic              rcv_ended,
    output logic [RxBits-1:0] arrived_to,   // of the served one
    output logic              arrived_all,
    // The rings.
    output logic              rx_wants,
    input  logic              rx_may,
    output logic              rx_read,
    output logic [S+RX_RING_BITS-4:0] rx_address,
    output logic [3:0]        rx_note,
    input  logic              word_valid,
    input  logic [3:0]        word_note,
    input  logic [63:0]       word_data,
    // The visible bytes (http_ahead).
    output logic [127:0]      bytes,
    output kind_t [23:0]      kinds,
    output logic [23:0]       there,
    output logic [4:0]        count,
    output logic              drained,
    output logic [2:0]        lane,
    input  logic [4:0]        onward,
    output logic              busy
);

  // A peer's FIN takes a sequence number but is not a byte. One multiplexer serves the current
  // session and, every other cycle, the session that is served next.
  logic hints, hinted;
  logic [S-1:0] look, hint_session;
  logic [RxP-1:0] hint_from;
  logic [RxBits-1:0] look_to, hint_to;
  assign look = hints ? next : session;
  assign rcv_of = look;
  assign look_to = RxBits'(rcv_next) - RxBits'(rcv_ended);

  always_ff @(posedge clk) begin
    hints <= !hints && next_any && serves;
    if (hints) begin
      hinted <= next_valid && next != session && !idle;
      hint_session <= next;
      hint_from <= next_resume;
      hint_to <= look_to;
    end
    if (!hints) begin
      arrived_to <= look_to;
      arrived_all <= rcv_ended;
    end
    if (rst || drop) hinted <= 1'b0;
  end

  // A head and a margin: the call reads the data after a head.
  http_ahead #(
      .SESSION_BITS  (S),
      .RING_BITS     (RX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY)
  ) u_ahead (
      .clk(clk),
      .rst,
      .start,
      .session,
      .from        (32'(at)),
      .up_to       (32'(arrived_to)),
      .pause,
      // The session that is served next.
      .ahead       (hinted && hint_session != session && !start && !drop_next && serves),
      .ahead_session(hint_session),
      .ahead_from  (32'(hint_from)),
      .ahead_up_to (32'(hint_to)),
      .drop,
      .drop_session,
      .wants       (rx_wants),
      .may         (rx_may),
      .read        (rx_read),
      .read_address(rx_address),
      .read_note   (rx_note),
      .*
  );

`ifndef SYNTHESIS
  // Prefetching is of another session than the served one.
  other_sessions_are_prefetched : assert property (@(posedge clk) disable iff (rst)
      hinted && hint_session == session |-> !u_ahead.ahead);
`endif

endmodule
