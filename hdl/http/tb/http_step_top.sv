// http_step with the reader of a stream and, as in http_engine, the registers that it steps: the request and the
// position. The names of functions are looked up by the bench.
module http_step_top
  import fn_pkg::*;
  import http_pkg::*;
  import functions_pkg::*;
#(
    localparam int BODY_BYTES = 1048576
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         begins,         // a request, at `from` of `session`
    input  logic [3:0]   session,
    input  logic [31:0]  from,
    input  logic [31:0]  up_to,
    input  logic         arrived_all,
    input  logic         may,
    output logic         read,
    output logic [21:0]  read_address,
    output logic [3:0]   read_note,
    input  logic         word_valid,
    input  logic [3:0]   word_note,
    input  logic [63:0]  word_data,
    // A name, until it is found, or is not.
    input  logic         find_ready,
    output logic         find_valid,
    output name_t        find_name,
    input  logic         found_valid,
    input  logic         found,
    input  logic [5:0]   found_function,
    input  logic [127:0] scalars_low,    // the names of the function's scalars
    input  logic [127:0] scalars_high,
    // The request so far.
    output logic         complete,       // its head
    output logic         malformed,
    output logic [31:0]  used,           // position
    output logic [2:0]   method,
    output logic [2:0]   route,
    output logic [5:0]   number,
    output logic [23:0]  body_length,
    output logic [3:0]   keys,
    output logic         http10,
    output logic         close,
    output logic         expect_100,
    output logic         bad,
    output logic         too_long,
    output logic         length_over,
    output logic         drained,
    output logic [127:0] params
);
  request_t c, parsed;
  logic served, parses, reader_start, looking, ruined, found_before, known;
  logic [22:0] at;
  logic [1:0] at_gone;
  logic [127:0] bytes;
  kind_t [23:0] kinds;
  logic [23:0] there;
  logic [4:0] count, onward, parse_onward;
  logic [2:0] lane, stepped_from;
  logic seen_valid, may_step, stepped, moved, broken, too_big, word_over, id_put, id_second, unused_wants, unused_busy;
  logic unused_drained, unused_all, unused_version;
  logic [7:0] id_byte;
  logic [63:0] id_data;
  entry_t entry;
  call_t request_call;

  http_ahead u_ahead (
      .start        (reader_start),
      .from         (32'(at)),
      .pause        (1'b0),
      .drop         (1'b0),
      .drop_session ('0),
      .ahead        (1'b0),
      .ahead_session('0),
      .ahead_from   ('0),
      .ahead_up_to  ('0),
      .wants        (unused_wants),
      .busy         (unused_busy),
      .*
  );

  http_step #(
      .BODY_BYTES(BODY_BYTES)
  ) u_step (
      .api_key      ('0),
      .place_lane   (at[2:0]),
      .passes       (1'b0),
      .found_now    (found_valid || found_before),
      .to           (parsed),
      .onward       (parse_onward),
      .other_version(unused_version),
      .word         (find_name),
      .seen_drained (unused_drained),
      .seen_all     (unused_all),
      .*
  );

  http_ids u_ids (
      .clk,
      .write        (id_put && may_step),
      .write_session(session),
      .write_at     (c.id_bytes),
      .write_data   (id_byte),
      .read         (c.place == AT_ENCODED),
      .session,
      .word         (3'(id_second)),
      .data         (id_data)
  );

  assign parses = served && !begins;
  assign onward = may_step ? parse_onward : 5'(at[2:0]);
  assign find_valid = seen_valid && !ruined && !too_big && word_over && may_step;

  always_ff @(posedge clk) begin
    reader_start <= begins;
    entry <= '0;
    // There is no entry before a function is found.
    known <= !begins && (known || (found_valid && found));
    if (known || (found_valid && found)) entry.scalars <= {scalars_high, scalars_low};
    at[2:0] <= onward[2:0];
    at_gone <= onward[4:3];
    at[22:3] <= at[22:3] + 20'(at_gone);
    if (may_step) c <= parsed;
    stepped <= may_step;
    stepped_from <= at[2:0];
    if (stepped && !may_step) c.head_bytes <= c.head_bytes + 14'({at_gone, at[2:0]} - 5'(stepped_from));
    if (parses && seen_valid && (broken || too_big)) ruined <= 1'b1;
    if (find_valid) looking <= 1'b1;
    found_before <= found_valid;
    if (found_before) looking <= 1'b0;
    if (found_valid) begin
      c.number <= found_function;
      if (!found) begin
        c.route <= ROUTE_NONE;
        if (c.place == AT_KEY) c.place <= AT_QUERY_REST;
      end
    end
    if (begins) begin
      {served, looking, ruined} <= 3'b100;
      c <= '0;
      at <= 23'(from);
      at_gone <= '0;
    end
    if (rst) {served, looking, ruined, found_before} <= '0;
  end

  assign complete = c.place == AT_BODY && !looking;
  assign malformed = ruined;
  assign used = 32'(at) + {27'd0, at_gone, 3'd0};
  assign {method, route, number, keys} = {c.method, c.route, c.number, c.keys};
  assign body_length = c.length;
  assign {http10, close, expect_100, bad, too_long} = {c.http10, c.close, c.expect_100, c.bad, c.too_long};
  assign params = request_call.params;
endmodule
