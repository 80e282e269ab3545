// Decides about a request whose head is complete: a reply of the board itself, a call, or to wait for the rest of the
// body or for space for the reply.
//
// Parameters: TX_RING_BITS, log2 of the bytes of a transmit ring. Latency: combinational.
module http_decide
  import http_pkg::*;
#(
    parameter  int TX_RING_BITS = 21,
    localparam int TxBits = TX_RING_BITS + 1
) (
    input  logic              active,       // the decision is used; otherwise it is arbitrary
    input  request_t          c,            // the request
    input  logic              pending,      // chunks of its body are not assembled yet
    input  logic              length_over,  // its body is longer than allowed
    input  logic              stranger,     // its API key is wrong
    input  logic              all_there,    // its body has arrived,
    input  logic              arrived_all,  // and so has all that the peer sends
    input  logic              stale,        // functions have changed since its function was looked up
    input  logic              failed,       // its call has failed, with this reply
    input  text_t             outcome,
    input  logic [TxBits-1:0] free_space,   // in the transmit ring
    output logic              too_full,     // no reply has space
    output decision_t         decision
);

  localparam int RingBytes = 1 << TX_RING_BITS;
  // Minimum free space for a reply. The longest own replies, /metrics and the list of functions,
  // are shorter.
  localparam int Least = RingBytes < 8192 ? RingBytes / 2 : 4096;
  if (TX_RING_BITS < 12) $error("TX_RING_BITS must be at least 12: a ring must hold the list of functions");

  logic wrong_method, may_run;
  logic [31:0] room;
  text_t refusal;

  assign refusal = refusal_of(c, pending, length_over);
  assign wrong_method = c.route == ROUTE_FUNCTION ? c.method != METHOD_POST :
      !(c.method inside {METHOD_GET, METHOD_HEAD});
  // A reply may be four times as long as its request, or longer if no other data waits.
  assign room = 32'(Least) + {6'd0, c.length, 2'b00};
  assign may_run = !pending && (c.together || all_there) && 32'(free_space) >= (room > 32'(RingBytes) ? 32'(RingBytes) : room);
  assign too_full = 32'(free_space) < 32'(Least);

  always_comb begin
    decision = 'x;
    if (active) begin
      decision = '{
        next:        HEAD,
        replies:     1'b1,
        text:        TEXT_END,
        ending:      ending_of(c),
        with_length: 1'b0,
        with_body:   c.method != METHOD_HEAD,
        closing:     !persists(c),
        listing:     1'b0,
        continues:   1'b0,
        ends:        1'b0
      };
      if (refusal != TEXT_END) begin
        decision.text = refusal;
        // The start of a next request is unknown, and so is whether a client that expects 100
        // sends the body.
        if (c.coded || c.too_long || length_over || (pending && (c.http10 || c.has_length)) || c.unexpected) begin
          decision.closing = 1'b1;
          decision.ending = TEXT_END_CLOSE;
        end
      end else if (stranger) decision.text = TEXT_401;
      else if (c.route == ROUTE_NONE || c.route == ROUTE_SYSTEM) decision.text = TEXT_404;
      else if (c.method == METHOD_OPTIONS)
        decision.text = c.route == ROUTE_SERVER ? TEXT_OPTIONS : c.route == ROUTE_FUNCTION ? TEXT_OPTIONS_POST : TEXT_OPTIONS_GET;
      else if (wrong_method) decision.text = c.route == ROUTE_FUNCTION ? TEXT_405_POST : TEXT_405_GET;
      else
        case (c.route)
          ROUTE_HEALTH: decision.text = TEXT_HEALTH;
          ROUTE_METRICS: decision.text = TEXT_METRICS;
          ROUTE_FUNCTIONS: begin
            decision.text = TEXT_FUNCTIONS;
            decision.with_length = 1'b1;
            decision.listing = 1'b1;
            decision.next = LIST;
          end
          default: begin
            if (failed) decision.text = outcome;
            else if (stale) decision.text = TEXT_503_CHANGED;
            else if (may_run) begin
              decision.next = CALL;
              decision.replies = 1'b0;
            end else if (c.expect_100 && !c.continued && (pending || !all_there)) begin
              decision.text = TEXT_CONTINUE;
              decision.continues = 1'b1;
            end else begin
              decision.next = SAVE;
              decision.replies = 1'b0;
              decision.ends = arrived_all && !c.together && !all_there;
            end
          end
        endcase
      // A client that waits for 100 may or may not send the body after an error.
      if (c.expect_100 && !c.continued && (c.route != ROUTE_FUNCTION || wrong_method || c.bad || stranger || refusal != TEXT_END || (pending && stale))) begin
        decision.closing = 1'b1;
        decision.ending = TEXT_END_CLOSE;
      end
      if (too_full) begin
        decision.next = SAVE;
        decision.replies = 1'b0;
        decision.listing = 1'b0;
        decision.continues = 1'b0;
      end
    end
  end

endmodule
