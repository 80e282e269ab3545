// The texts of all replies, in words of 8 bytes. Each reply has a head, up to its length, and a
// body; the length is computed here at elaboration.
//
// Parameters: REGIONS; METRICS, the number of values of /metrics: eight, and two per region.
// Latency: 2 cycles from another part, or from `wanted`, to its first word. Throughput: one word
// per cycle. Words are read from block RAM before they are requested.
module http_text
  import http_pkg::*;
  import functions_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter int METRICS = 8 + 2 * REGIONS
) (
    input  logic        clk,
    input  text_t       text,
    input  logic        want_body,  // otherwise the head; or, in its place,
    input  logic        want_tag,   // the prefix of a request's id,
    input  logic        want_end,   // the end of the head:
    input  text_t       ending,
    input  logic        wanted,     // a part begins with its first word when this rises
    input  logic        same,       // the part is that of the previous cycle
    input  logic        next,       // the word was accepted
    output logic        ready,      // the other outputs belong to this part
    output logic [63:0] data,
    output logic [ 3:0] length,     // bytes of this word
    output logic        last,
    output logic        empty,      // the part does not exist
    input  logic [ 4:0] metric      // number of the line of /metrics
);

  localparam int TEXTS = int'(TEXT_COUNT);
  localparam int PARTS = 2 * TEXTS + METRICS;
  localparam int WORDS = 512;

  // A literal of up to 96 characters, the first on top of the others, zeros above them.
  typedef logic [8*96-1:0] literal_t;

  typedef struct packed {
    logic [WORDS-1:0][63:0] words;
    logic [PARTS-1:0][8:0]  start;   // the part's first word
    logic [PARTS-1:0][11:0] size;    // in bytes
    logic [9:0]             fill;
  } texts_t;

  function automatic int characters(input literal_t literal);
    characters = 0;
    for (int i = 0; i < 96; i++) if (literal[8*i+:8] != 8'd0) characters = i + 1;
  endfunction

  function automatic texts_t begun(input texts_t from, input int part);
    begun = from;
    begun.start[part] = from.fill[8:0];
  endfunction

  // Appends to a part. In a head, "\n" means CR LF.
  function automatic texts_t put(input texts_t from, input int part, input literal_t literal, input logic head);
    logic [11:0] n;
    put = from;
    n   = from.size[part];
    for (int i = 95; i >= 0; i--) begin
      if (literal[8*i+:8] != 8'd0) begin
        if (head && literal[8*i+:8] == 8'h0a) begin
          put.words[put.start[part]+n[11:3]][8*n[2:0]+:8] = 8'h0d;
          n = n + 12'd1;
        end
        put.words[put.start[part]+n[11:3]][8*n[2:0]+:8] = literal[8*i+:8];
        n = n + 12'd1;
      end
    end
    put.size[part] = n;
    put.fill = 10'(put.start[part]) + 10'((n + 12'd7) >> 3);
  endfunction

  // Appends a number of up to four digits.
  function automatic texts_t put_number(input texts_t from, input int part, input int number);
    int unit;
    logic [7:0] digit;
    put_number = from;
    unit = 1000;
    for (int i = 0; i < 4; i++) begin
      digit = 8'(48 + number / unit % 10);
      if (number >= unit || unit == 1) put_number = put(put_number, part, literal_t'(digit), 1'b1);
      unit = unit / 10;
    end
  endfunction

  function automatic texts_t headed(input texts_t from, input text_t which, input literal_t status, input int body);
    headed = begun(from, 2 * int'(which));
    headed = put(headed, 2 * int'(which), "HTTP/1.1 ", 1'b1);
    headed = put(headed, 2 * int'(which), status, 1'b1);
    headed = put(headed, 2 * int'(which), "\nContent-Length: ", 1'b1);
    headed = put_number(headed, 2 * int'(which), body);
  endfunction

  function automatic texts_t bodied(input texts_t from, input text_t which, input literal_t body);
    bodied = begun(from, 2 * int'(which) + 1);
    bodied = put(bodied, 2 * int'(which) + 1, body, 1'b0);
  endfunction

  function automatic texts_t answer(input texts_t from, input text_t which, input literal_t status, input literal_t body);
    answer = headed(from, which, status, characters(body));
    answer = bodied(answer, which, body);
  endfunction

  function automatic texts_t piece(input texts_t from, input text_t which, input literal_t head);
    piece = begun(from, 2 * int'(which));
    piece = put(piece, 2 * int'(which), head, 1'b1);
  endfunction

  function automatic texts_t metric_line(input texts_t from, input int i, input literal_t kind, input literal_t name);
    metric_line = begun(from, 2 * TEXTS + i);
    metric_line = put(metric_line, 2 * TEXTS + i, "# TYPE baltra_board_", 1'b0);
    metric_line = put(metric_line, 2 * TEXTS + i, name, 1'b0);
    metric_line = put(metric_line, 2 * TEXTS + i, " ", 1'b0);
    metric_line = put(metric_line, 2 * TEXTS + i, kind, 1'b0);
    metric_line = put(metric_line, 2 * TEXTS + i, "\nbaltra_board_", 1'b0);
    metric_line = put(metric_line, 2 * TEXTS + i, name, 1'b0);
    metric_line = put(metric_line, 2 * TEXTS + i, " ", 1'b0);
  endfunction

  // A counter with one value per region, from line `first` on.
  function automatic texts_t region_lines(input texts_t from, input int first, input literal_t name);
    region_lines = from;
    for (int r = 0; r < REGIONS; r++) begin
      region_lines = begun(region_lines, 2 * TEXTS + first + r);
      if (r == 0) begin
        region_lines = put(region_lines, 2 * TEXTS + first, "# TYPE baltra_board_", 1'b0);
        region_lines = put(region_lines, 2 * TEXTS + first, name, 1'b0);
        region_lines = put(region_lines, 2 * TEXTS + first, " counter\n", 1'b0);
      end
      region_lines = put(region_lines, 2 * TEXTS + first + r, "baltra_board_", 1'b0);
      region_lines = put(region_lines, 2 * TEXTS + first + r, name, 1'b0);
      region_lines = put(region_lines, 2 * TEXTS + first + r, "{region=\"", 1'b0);
      region_lines = put_number(region_lines, 2 * TEXTS + first + r, r);
      region_lines = put(region_lines, 2 * TEXTS + first + r, "\"} ", 1'b0);
    end
  endfunction

  function automatic texts_t all_texts();
    texts_t t;
    int total;
    for (int i = 0; i < WORDS; i++) t.words[i] = '0;
    t.start = '0;
    t.size = '0;
    t.fill = '0;
    // The list's length follows, eight digits (http_engine);
    // http_call writes the replies of functions.
    t = piece(t, TEXT_FUNCTIONS, "HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: ");
    t = piece(t, TEXT_END, "\n\n");
    t = piece(t, TEXT_END_CLOSE, "\nConnection: close\n\n");
    t = piece(t, TEXT_END_KEEP, "\nConnection: keep-alive\n\n");
    t = piece(t, TEXT_TAG, "\nX-Request-Id: ");
    t = piece(t, TEXT_CONTINUE, "HTTP/1.1 100 Continue\n\n");
    t = answer(t, TEXT_HEALTH, "200 OK\nContent-Type: text/plain", "ok\n");
    t = answer(t, TEXT_400, "400 Bad Request", "bad request\n");
    t = answer(t, TEXT_401, "401 Unauthorized\nWWW-Authenticate: X-API-Key", "no API key, or another one\n");
    t = answer(t, TEXT_404, "404 Not Found", "not found\n");
    t = answer(t, TEXT_OPTIONS, "200 OK\nAllow: GET, HEAD, POST, OPTIONS", "");
    t = answer(t, TEXT_OPTIONS_GET, "200 OK\nAllow: GET, HEAD, OPTIONS", "");
    t = answer(t, TEXT_OPTIONS_POST, "200 OK\nAllow: POST, OPTIONS", "");
    t = answer(t, TEXT_405_GET, "405 Method Not Allowed\nAllow: GET, HEAD, OPTIONS", "method not allowed\n");
    t = answer(t, TEXT_405_POST, "405 Method Not Allowed\nAllow: POST, OPTIONS", "method not allowed\n");
    t = answer(t, TEXT_413, "413 Content Too Large", "content too large\n");
    t = answer(t, TEXT_431, "431 Request Header Fields Too Large", "request header too large\n");
    t = answer(t, TEXT_500_LONG, "500 Internal Server Error", "the answer does not fit its ring\n");
    t = answer(t, TEXT_500_IMAGE, "500 Internal Server Error", "the function's image was refused\n");
    t = answer(t, TEXT_500_KERNEL, "500 Internal Server Error", "the kernel accessed memory outside of its buffers, or failed\n");
    t = answer(t, TEXT_400_KERNEL, "400 Bad Request", "the function takes no such body and scalars\n");
    t = answer(t, TEXT_503_CHANGED, "503 Service Unavailable", "the functions have just changed\n");
    t = answer(t, TEXT_502, "502 Bad Gateway", "the store has no such image, or not the whole of it\n");
    t = answer(t, TEXT_504, "504 Gateway Timeout", "the store of images did not answer\n");
    t = answer(t, TEXT_501, "501 Not Implemented", "no such transfer coding\n");
    t = answer(t, TEXT_501_METHOD, "501 Not Implemented", "no such method\n");
    t = answer(t, TEXT_417, "417 Expectation Failed", "no such expectation\n");
    t = answer(t, TEXT_505, "505 HTTP Version Not Supported", "HTTP/1.1 or HTTP/1.0\n");
    t = answer(t, TEXT_503, "503 Service Unavailable", "the kernel did not answer in time\n");
    t = metric_line(t, 0, "counter", "requests_total");
    t = metric_line(t, 1, "counter", "errors_total");
    t = metric_line(t, 2, "counter", "kernel_busy_cycles_total");
    t = metric_line(t, 3, "counter", "connections_total");
    t = metric_line(t, 4, "gauge", "connections");
    t = metric_line(t, 5, "counter", "segments_retransmitted_total");
    t = metric_line(t, 6, "counter", "connections_reset_total");
    t = metric_line(t, 7, "counter", "cycles_total");
    t = region_lines(t, 8, "cold_starts_total");
    t = region_lines(t, 8 + REGIONS, "busy_cycles_total");
    total = 0;
    // Each number takes twenty characters and a newline.
    for (int i = 0; i < METRICS; i++) total = total + int'(t.size[2*TEXTS+i]) + 21;
    t = headed(t, TEXT_METRICS, "200 OK\nContent-Type: text/plain; version=0.0.4", total);
    return t;
  endfunction

  localparam texts_t ALL = all_texts();

  if (ALL.fill > 10'(WORDS)) $error("the texts need more words");
  (* rom_style = "block", ram_style = "block" *) logic [63:0] rom[WORDS];
  initial for (int i = 0; i < WORDS; i++) rom[i] = ALL.words[i];

  logic [6:0] own_part, end_part, part, part_before;
  logic [8:0] from, at, at_next;
  logic [11:0] bytes, left;
  logic loaded;

  assign own_part = text == TEXT_METRICS && want_body ? 7'(2 * TEXTS) + 7'(metric) : 7'({text, want_body});
  assign end_part = 7'({ending, 1'b0});
  assign part = want_end ? end_part : want_tag ? 7'({TEXT_TAG, 1'b0}) : own_part;
  // The selected part is known late, unlike the fact that it has not changed.
  assign ready = loaded && same;
  assign at_next = !ready ? from : next ? at + 1'b1 : at;

  always_ff @(posedge clk) begin
    part_before <= part;
    from <= ALL.start[part];
    bytes <= ALL.size[part];
    // The second cycle: the start of the part is known, and its first word is read.
    loaded <= wanted && (ready || part_before == part);
    at <= at_next;
    data <= rom[at_next];
    left <= !ready ? bytes : next ? left - 12'd8 : left;
  end

  assign last = left <= 12'd8;
  assign length = last ? left[3:0] : 4'd8;
  assign empty = left == '0;

`ifndef SYNTHESIS
  accepted_words_are_ready : assert property (@(posedge clk) next |-> ready);
  words_have_bytes : assert property (@(posedge clk)
      ready && !empty |-> length inside {[4'd1:4'd8]});
  parts_end : assert property (@(posedge clk) next && (last || empty) |=> !ready);
`endif

endmodule
