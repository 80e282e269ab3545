// A step of the parser: the visible bytes are classified (http_look) in one cycle, and the decision about them is made
// (http_parse) in the next. With the parser's memories: values of scalars, and the name that is decoded.
//
// A classification is valid if no bytes were consumed since, and the parser's state is the same.
//
// Parameters: SESSIONS; BODY_BYTES, the longest body; BINDINGS, whether functions may be bound to kernels
// from OpenCL C (functions_pkg). Latency: two cycles.
module http_step
  import fn_pkg::*;
  import http_pkg::*;
  import functions_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int BODY_BYTES = 1048576,
    parameter  bit BINDINGS = 1,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic           clk,
    input  logic           parses,        // a request is being parsed,
    input  logic           reader_start,  // from the next cycle on
    input  logic [S-1:0]   session,
    input  request_t       c,             // the request so far
    input  logic [8*KEY_BYTES-1:0] api_key,
    // The visible bytes (http_ahead), and the lane of the next one as the parser counts it.
    input  logic [127:0]   bytes,
    input  kind_t [23:0]   kinds,
    input  logic [23:0]    there,
    input  logic [4:0]     count,
    input  logic [2:0]     lane,
    input  logic [2:0]     place_lane,
    input  logic           drained,
    input  logic           arrived_all,
    // The state of the parser's waits.
    input  logic           passes,        // bytes are skipped (http_chunks)
    input  logic           ruined,        // the request is malformed
    input  logic           looking,       // a name is being looked up
    input  logic           find_ready,
    input  logic           found_now,
    input  entry_t         entry,         // of the request's function
    input  logic [63:0]    id_data,       // the decoded name, from the memory of ids
    output logic           seen_valid,    // the classification is valid,
    output logic           seen_drained,  // and there were no more bytes in memory,
    output logic           seen_all,      // nor from the peer
    output logic           may_step,      // a step is taken, with these results:
    output request_t       to,
    output logic [4:0]     onward,
    output logic           moved,
    output logic           broken,
    output logic           other_version,
    output logic           too_big,
    output name_t          word,
    output logic           word_over,
    output logic           id_put,
    output logic [7:0]     id_byte,
    output logic           id_second,     // the second word of the decoded name is read
    output logic           length_over,   // the body is longer than allowed
    output call_t          request_call   // the operands of the request's call
);

  seen_t looked, seen;  // the classification, and that of the previous cycle
  logic steps;          // the present classification is for a wrong position
  logic value_put;
  logic [31:0] value;   // the new value of a scalar
  logic [3:0][31:0] values_here;
  logic [3:0][63:0] scalars;
  entry_t entry_then;   // read from memory, a cycle late
  name_t stored;        // an encoded name, so far:
  logic [63:0] stored_low;
  logic [1:0] stored_step;  // complete with the last of these

  http_look u_look (
      .from(c),
      .api_key,
      .scalars,
      .scalar(values_here[c.key]),
      .bytes,
      .kinds,
      .there,
      .count,
      .lane,
      .active(parses),
      .seen(looked)
  );

  http_parse #(
      .BODY_BYTES(BODY_BYTES)
  ) u_parse (
      .from(c),
      .seen,
      .lane(place_lane),
      .to,
      .stored,
      .word,
      .word_over,
      .id_put,
      .id_byte,
      .scalar_put(value_put),
      .scalar(value),
      .onward,
      .moved,
      .broken,
      .other_version,
      .too_big
  );

  always_ff @(posedge clk) begin
    seen <= looked;
    seen_drained <= drained;
    seen_all <= arrived_all;
    seen_valid <= parses && !reader_start && !steps && !passes &&
        c.place != AT_BODY && !(c.place == AT_KEY && found_now) && !(c.place == AT_ENCODED && stored_step != '1);
    entry_then <= entry;
    length_over <= c.length > 24'(BODY_BYTES);
  end

  assign scalars = entry_then.scalars;
  assign may_step = parses && seen_valid && !ruined &&
      !(looking ? seen.at[AT_KEY] : (seen.at[AT_NAME] || seen.at[AT_ENCODED]) && c.route == ROUTE_FUNCTION && !find_ready);
  assign steps = may_step && moved;

  // ---- scalars ----
  for (genvar k = 0; k < 4; k++) begin : g_value
    logic [31:0] values[SESSIONS];  // one memory each
    always_ff @(posedge clk) if (value_put && may_step && c.key == 2'(k)) values[session] <= value;
    assign values_here[k] = values[session];
  end

  assign request_call.cost = entry_then.speed > 15'd7 ? '1 : ({1'b0, c.length, 7'd0} >> (4'd10 - 4'(entry_then.speed)));
  assign request_call.bound = BINDINGS && entry_then.bound;
  assign request_call.regions = entry_then.regions;
  assign request_call.timeout = entry_then.timeout;
  assign request_call.image = entry_then.image;
  always_comb begin
    for (int k = 0; k < 4; k++) request_call.params[32*k+:32] = c.keys[k] ? values_here[k] : '0;
    if (request_call.bound) request_call.params[127:96] = entry_then.scalars[3][31:0];
  end

  // ---- an encoded name, from the memory of ids ----
  // Read again after each step: its two words, one after another.
  always_ff @(posedge clk) begin
    stored_step <= !parses || c.place != AT_ENCODED || reader_start || may_step ? '0 : stored_step + 2'(stored_step != '1);
    if (stored_step == 2'd1) stored_low <= id_data;
  end
  assign stored = {id_data, stored_low};
  assign id_second = c.place == AT_ENCODED && stored_step != '0;

`ifndef SYNTHESIS
  // A step that does not move leaves the state as it is.
  steps_are_valid : assert property (@(posedge clk) may_step |-> parses && seen_valid);
  one_place : assert property (@(posedge clk) may_step |-> $onehot(seen.at));
  // A step consumes visible bytes.
  steps_are_visible : assert property (@(posedge clk)
      may_step && moved && !broken |-> 6'(onward) <= 6'(place_lane) + 6'(seen.count));
  scalars_are_digits : assert property (@(posedge clk)
      may_step && value_put |-> c.place == AT_VALUE);
`endif

endmodule
