// The texts of all answers, in words of 8 bytes. Each answer has a head, up to its length, and a
// body; the length is worked out here.
//
// Parameters: REGIONS; METRICS, how many numbers /metrics has: eight, and two of each region. Latency: combinational.
module http_text
  import http_pkg::*;
  import functions_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter int METRICS = 8 + 2 * REGIONS
) (
    input  text_t       text,
    input  logic        want_body,  // else the head
    input  logic [ 7:0] word,
    output logic [63:0] data,
    output logic [ 3:0] length,     // bytes of this word
    output logic        last,
    output logic        empty,      // there is no such part
    input  logic [ 4:0] metric      // which line of /metrics
);

  localparam int TEXTS = int'(TEXT_COUNT);
  localparam int PARTS = 2 * TEXTS + METRICS;
  localparam int WORDS = 512;

  logic [63:0] rom[WORDS];
  logic [8:0] start[PARTS];
  logic [11:0] size[PARTS];
  int fill;

  // "\n" in a head stands for CR LF.
  task automatic put(input int part, input string content, input logic head);
    int n;
    n = 0;
    start[part] = 9'(fill);
    for (int i = 0; i < content.len(); i++) begin
      if (head && content[i] == 8'h0a) begin
        rom[fill+n/8][8*(n%8)+:8] = 8'h0d;
        n++;
      end
      rom[fill+n/8][8*(n%8)+:8] = content[i];
      n++;
    end
    size[part] = 12'(n);
    fill += (n + 7) / 8;
  endtask

  task automatic answer(input text_t which, input string status, input string body);
    put(2 * int'(which), $sformatf("HTTP/1.1 %s\nContent-Length: %0d", status, body.len()), 1'b1);
    put(2 * int'(which) + 1, body, 1'b0);
  endtask

  task automatic metric_line(input int i, input string kind, input string name);
    put(2 * TEXTS + i, $sformatf("# TYPE baltra_board_%s %s\nbaltra_board_%s ", name, kind, name), 1'b0);
  endtask

  // A counter of which each region has one, from line `first` on.
  task automatic region_lines(input int first, input string name);
    for (int r = 0; r < REGIONS; r++)
    put(2 * TEXTS + first + r, $sformatf("%sbaltra_board_%s{region=\"%0d\"} ", r == 0 ?
        $sformatf("# TYPE baltra_board_%s counter\n", name) : "", name, r), 1'b0);
  endtask

  initial begin
    int total;
    for (int i = 0; i < WORDS; i++) rom[i] = '0;
    for (int i = 0; i < PARTS; i++) begin
      start[i] = '0;
      size[i]  = '0;
    end
    fill = 0;
    // The list's length follows, eight digits (http_engine); what a function answers, http_call writes.
    put(2 * int'(TEXT_FUNCTIONS), "HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: ", 1'b1);
    put(2 * int'(TEXT_END), "\n\n", 1'b1);
    put(2 * int'(TEXT_END_CLOSE), "\nConnection: close\n\n", 1'b1);
    put(2 * int'(TEXT_END_KEEP), "\nConnection: keep-alive\n\n", 1'b1);
    put(2 * int'(TEXT_CONTINUE), "HTTP/1.1 100 Continue\n\n", 1'b1);
    answer(TEXT_HEALTH, "200 OK\nContent-Type: text/plain", "ok\n");
    answer(TEXT_400, "400 Bad Request", "bad request\n");
    answer(TEXT_404, "404 Not Found", "not found\n");
    answer(TEXT_405_GET, "405 Method Not Allowed\nAllow: GET, HEAD", "method not allowed\n");
    answer(TEXT_405_POST, "405 Method Not Allowed\nAllow: POST", "method not allowed\n");
    answer(TEXT_411, "411 Length Required", "length required\n");
    answer(TEXT_413, "413 Content Too Large", "content too large\n");
    answer(TEXT_431, "431 Request Header Fields Too Large", "request header too large\n");
    answer(TEXT_500, "500 Internal Server Error", "the kernel did not keep to its contract\n");
    answer(TEXT_500_IMAGE, "500 Internal Server Error", "the function's image was refused\n");
    answer(TEXT_503, "503 Service Unavailable", "the kernel did not answer in time\n");
    answer(TEXT_503_CHANGED, "503 Service Unavailable", "the functions have just changed\n");
    metric_line(0, "counter", "requests_total");
    metric_line(1, "counter", "errors_total");
    metric_line(2, "counter", "kernel_busy_cycles_total");
    metric_line(3, "counter", "connections_total");
    metric_line(4, "gauge", "connections");
    metric_line(5, "counter", "segments_retransmitted_total");
    metric_line(6, "counter", "connections_reset_total");
    metric_line(7, "counter", "cycles_total");
    region_lines(8, "cold_starts_total");
    region_lines(8 + REGIONS, "busy_cycles_total");
    total = 0;
    // Each number takes ten characters and a line's end.
    for (int i = 0; i < METRICS; i++) total += int'(size[2*TEXTS+i]) + 11;
    put(2 * int'(TEXT_METRICS), $sformatf(
        "HTTP/1.1 200 OK\nContent-Type: text/plain; version=0.0.4\nContent-Length: %0d", total), 1'b1);
  end

  logic [5:0] part;
  logic [11:0] passed;
  assign part = text == TEXT_METRICS && want_body ? 6'(2 * TEXTS) + 6'(metric) : {text, want_body};
  assign passed = {1'b0, word, 3'b000};
  assign data = rom[start[part]+9'(word)];
  assign last = passed + 12'd8 >= size[part];
  assign length = last ? 4'(size[part] - passed) : 4'd8;
  assign empty = size[part] == '0;

endmodule
