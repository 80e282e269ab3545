// The parser as used by the engine: one step from the visible bytes, here in one cycle. The
// engine's operations between steps for a chunked body: `begin_chunks`, after its head; `passing`,
// the number of consumed bytes of a chunk.
module http_parse_top
  import http_pkg::*;
  import functions_pkg::*;
(
    input  request_t         from,
    input  logic [8*KEY_BYTES-1:0] api_key,
    input  logic [127:0]     bytes,
    input  logic [4:0]       count,
    input  logic [2:0]       lane,
    input  logic [95:0]      around,      // kinds of the bytes that are not visible
    input  logic [3:0][63:0] scalars,
    input  logic [3:0][31:0] values,      // of those scalars, before
    output logic [3:0][31:0] values_now,  // and after
    input  logic             begin_chunks,
    input  logic [4:0]       passing,
    output request_t         to,
    output logic [23:0]      length,
    output logic [23:0]      chunk,
    output logic             too_long,
    output logic             at_body,
    output logic             at_chunk,
    output logic             chunked,
    output logic             together,
    output logic [2:0]       method,
    output logic [2:0]       route,
    output logic [3:0]       keys,
    output logic             http10,
    output logic             expect_100,
    output logic [9:0]       refusal,     // the status, if a complete head is refused; otherwise 0
    input  name_t            stored,
    output name_t            word,
    output logic             word_over,
    output logic             id_put,
    output logic [7:0]       id_byte,
    output logic [4:0]       take,
    output logic             moved,
    output logic             broken,
    output logic             other_version,
    output logic             too_big
);

  request_t stepped;
  logic [4:0] onward;
  seen_t seen;
  kind_t [23:0] kinds;
  logic [23:0] there;
  logic scalar_put;
  logic [31:0] scalar;

  always_comb begin
    values_now = values;
    if (scalar_put) values_now[from.key] = scalar;
  end

  always_comb
    for (int i = 0; i < 24; i++)
    begin
      kinds[i] = i >= 32'(lane) && i - 32'(lane) < 32'(count) ? kind_of(bytes[8*(i-32'(lane))+:8]) : kind_t'(around[4*i+:4]);
      there[i] = i - 32'(lane) < 32'(count) || i < 32'(lane) || count[4];
    end

  http_look u_look (
      .active(1'b1),
      .scalar(values[from.key]),
      .*
  );

  assign length = to.length;
  assign chunk = to.chunk;
  assign too_long = to.too_long;
  assign at_body = to.place == AT_BODY;
  assign at_chunk = to.place == AT_CHUNK;
  assign chunked = to.chunked;
  assign together = to.together;
  assign method = to.method;
  assign route = to.route;
  assign keys = to.keys;
  assign http10 = to.http10;
  assign expect_100 = to.expect_100;

  always_comb
    case (refusal_of(to, to.chunked && !to.together, to.length > 24'(12 << 20)))
      TEXT_END: refusal = 10'd0;
      TEXT_413: refusal = 10'd413;
      TEXT_417: refusal = 10'd417;
      TEXT_501, TEXT_501_METHOD: refusal = 10'd501;
      default: refusal = 10'd400;
    endcase

  http_parse #(
      .BODY_BYTES(12 << 20)
  ) u_parse (
      .to(stepped),
      .*
  );

  always_comb begin
    to = stepped;
    take = onward - 5'(lane);
    to.head_bytes = from.head_bytes + 14'(take);
    if (begin_chunks) begin
      to = from;
      to.place = AT_CHUNK_SIZE;
      to.length = '0;
      to.chunk = '0;
      to.digits = 1'b0;
      to.head_bytes = '0;
    end
    if (passing != '0) begin
      to = from;
      to.length = from.length + 24'(passing);
      to.chunk = from.chunk - 24'(passing);
      if (to.chunk == '0) begin
        to.place = AT_CHUNK_END;
        to.head_bytes = '0;
      end
    end
  end

endmodule
