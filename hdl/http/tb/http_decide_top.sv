// http_decide for its bench, its structs signal by signal.
module http_decide_top
  import http_pkg::*;
#(
    localparam int TX_RING_BITS = 14
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic [2:0]            method,
    input  logic [2:0]            route,
    input  logic                  http10,
    input  logic                  close,
    input  logic                  keep,
    input  logic                  expect_100,
    input  logic                  unexpected,
    input  logic                  continued,
    input  logic                  coded,
    input  logic                  together,
    input  logic                  bad,
    input  logic                  has_length,
    input  logic                  has_host,
    input  logic                  too_long,
    input  logic [23:0]           body_length,
    input  logic                  pending, length_over, stranger, all_there, arrived_all, stale, failed,
    input  logic [TX_RING_BITS:0] free_space,
    output logic                  too_full,
    output logic                  saves,    // the next state: SAVE,
    output logic                  calls,    // CALL,
    output logic                  lists,    // LIST,
    output logic                  heads,    // or HEAD
    output logic                  replies,
    output logic [4:0]            text,
    output logic [4:0]            ending,
    output logic                  with_length,
    output logic                  with_body,
    output logic                  closing,
    output logic                  listing,
    output logic                  continues,
    output logic                  ends
);
  request_t c;
  decision_t decision;

  always_comb begin
    c = '0;
    c.method = method_t'(method);
    c.route = route_t'(route);
    {c.http10, c.close, c.keep, c.expect_100} = {http10, close, keep, expect_100};
    {c.unexpected, c.continued, c.coded, c.together} = {unexpected, continued, coded, together};
    {c.bad, c.has_length, c.has_host, c.too_long} = {bad, has_length, has_host, too_long};
    c.length = body_length;
  end
  http_decide #(
      .TX_RING_BITS(TX_RING_BITS)
  ) u_decide (
      .active (1'b1),
      .c,
      .outcome(TEXT_503),
      .*
  );

  assign saves = decision.next == SAVE;
  assign calls = decision.next == CALL;
  assign lists = decision.next == LIST;
  assign heads = decision.next == HEAD;
  assign {replies, text, ending} = {decision.replies, decision.text, decision.ending};
  assign {with_length, with_body} = {decision.with_length, decision.with_body};
  assign {closing, listing} = {decision.closing, decision.listing};
  assign {continues, ends} = {decision.continues, decision.ends};

  // A decision leads to one state.
  one_state : assert property (@(posedge clk) disable iff (rst) $onehot({saves, calls, lists, heads}));
  // A call is requested only if its reply has space.
  calls_have_space : assert property (@(posedge clk) disable iff (rst) calls |-> !too_full);
endmodule
