// The parser as the engine uses it: a step from the bytes that show, here in one cycle.
module http_parse_top
  import http_pkg::*;
  import functions_pkg::*;
(
    input  request_t         from,
    input  logic [8*KEY_BYTES-1:0] api_key,
    input  logic [127:0]     bytes,
    input  logic [4:0]       count,
    input  logic [2:0]       lane,
    input  logic [95:0]      around,      // kinds of the bytes that do not show
    input  logic [3:0][63:0] scalars,
    input  logic [3:0][31:0] values,      // of those scalars, before
    output logic [3:0][31:0] values_now,  // and after
    output request_t         to,
    output logic [23:0]      length,
    output logic             too_long,
    output name_t            word,
    output logic             id_put,
    output logic [4:0]       take,
    output logic             moved,
    output logic             broken,
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
  assign too_long = to.too_long;

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
  end

endmodule
