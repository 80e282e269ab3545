// Looks at the next bytes of a stream for a parser that stands at `from`: everything that http_parse decides by, so that
// it can be in registers by then. Words are compared 16 bytes at a time, and where a part ends is found in all 16.
//
// Latency: combinational.
module http_look
  import http_pkg::*;
(
    input  request_t              from,
    input  logic [8*KEY_BYTES-1:0] api_key,   // the first character in bits 7:0, zeros behind
    input  logic [3:0][63:0]      scalars,   // the query parameters that the function knows
    input  logic [31:0]           scalar,    // what the one at `from.key` has come to
    input  logic [127:0]          bytes,
    input  logic [4:0]            count,
    input  logic [2:0]            lane,      // of the first byte in its word
    input  logic                  active,    // else nothing of it is looked at
    output seen_t                 seen
);

  function automatic logic digit(input logic [7:0] b);
    return b >= "0" && b <= "9";
  endfunction

  // The first bytes are those of a literal of `n` characters.
  function automatic logic starts(input logic [127:0] with_bytes, input logic [127:0] literal, input int n);
    starts = 1'b1;
    for (int i = 0; i < 16; i++)
    if (i < n && with_bytes[8*i+:8] != literal[8*(n-1-i)+:8]) starts = 1'b0;
  endfunction

  logic [15:0] valid, is_space, is_line, is_end, is_colon, is_query, is_comma, is_equal, is_and, is_slash, is_control;
  logic [15:0] stops, fours, before_stop;
  logic [127:0] lower;
  logic [7:0] b, b0, b1, key_next;

  always_comb begin
    {lower, is_space, is_line, is_colon, is_query, is_comma, is_equal, is_and, is_slash, is_control, is_end, stops, fours, before_stop, b} = 'x;
    if (active) begin
      for (int i = 0; i < 16; i++) begin
        b = bytes[8*i+:8];
        lower[8*i+:8] = b >= "A" && b <= "Z" ? b | 8'h20 : b;
        is_space[i] = b == " " || b == 8'h09;
        is_line[i] = valid[i] && (b == 8'h0d || b == 8'h0a);
        is_colon[i] = b == ":";
        is_query[i] = b == "?";
        is_comma[i] = b == ",";
        is_equal[i] = b == "=";
        is_and[i] = b == "&";
        is_slash[i] = b == "/";
        is_control[i] = b < 8'h21 || b > 8'h7e;  // no part of a word
      end
      // CR LF.
      for (int i = 0; i < 16; i++)
      is_end[i] = i < 15 && is_line[i] && !bytes[8*i+1] && is_line[(i+1)%16] && bytes[8*((i+1)%16)+1];

      // What the current part ends at: one of a set of characters, by the place.
      stops = from.place inside {AT_METHOD, AT_PATH_REST, AT_QUERY_REST, AT_AUTHORITY, AT_NAME, AT_KEY, AT_HEADER, AT_HEADER_REST} ?
          is_control : is_line;
      if (from.place == AT_AUTHORITY) stops |= is_slash;
      if (from.place == AT_NAME) stops |= is_query;
      if (from.place == AT_KEY) stops |= is_equal | is_and;
      if (from.place inside {AT_HEADER, AT_HEADER_REST}) stops |= is_colon;
      if (from.place == AT_CONNECTION) stops |= is_space;
      if (from.place inside {AT_CONNECTION, AT_TOKEN_REST}) stops |= is_comma;
      stops &= valid;
      // Which bytes are before that: no stop in these four, nor in the fours before.
      for (int i = 0; i < 16; i++) begin
        fours[i] = 1'b0;
        for (int j = 0; j < 4; j++) if (i >= j && stops[(i-j)&15]) fours[i] = 1'b1;
      end
      for (int i = 0; i < 16; i++) begin
        before_stop[i] = 1'b1;
        for (int j = 0; j < 16; j += 4) if (i >= j && fours[(i-j)&15]) before_stop[i] = 1'b0;
      end
    end
  end

  // The first stop and what it is: of each four bytes, then of those.
  typedef struct packed {
    logic [4:0] at, at_1, at_2, at_4;
    logic [1:0] gone, gone_1, gone_2, gone_4;
    logic is_space, is_feed, is_end, is_end_end, is_colon, is_query, is_equal, is_control;
  } stop_t;
  stop_t stop, stop_of[4], stop_at[16];

  always_comb begin
    stop = 'x;
    for (int i = 0; i < 16; i++) stop_at[i] = 'x;
    for (int g = 0; g < 4; g++) stop_of[g] = 'x;
    if (active) begin
      for (int i = 0; i < 16; i++) begin
        stop_at[i].at   = 5'(i);
        stop_at[i].at_1 = 5'(i + 1);
        stop_at[i].at_2 = 5'(i + 2);
        stop_at[i].at_4 = 5'(i + 4);
        stop_at[i].gone   = words_used(lane, 5'(i));
        stop_at[i].gone_1 = words_used(lane, 5'(i + 1));
        stop_at[i].gone_2 = words_used(lane, 5'(i + 2));
        stop_at[i].gone_4 = words_used(lane, 5'(i + 4));
        // Of the two blanks one bit tells which, as of the two that end a line.
        stop_at[i].is_space = is_space[i] && bytes[8*i+5];
        stop_at[i].is_feed = is_line[i] && bytes[8*i+1];
        stop_at[i].is_end = is_end[i];
        stop_at[i].is_end_end = is_end[i] && i < 14 && is_end[(i+2)%16];
        stop_at[i].is_colon = is_colon[i];
        stop_at[i].is_query = is_query[i];
        stop_at[i].is_equal = is_equal[i];
        stop_at[i].is_control = is_control[i];
      end
      for (int g = 0; g < 4; g++) begin
        stop_of[g] = '0;
        for (int i = 3; i >= 0; i--) if (stops[4*g+i]) stop_of[g] = stop_at[4*g+i];
      end
      stop = stop_of[3];
      for (int g = 2; g >= 0; g--) if (stops[4*g+:4] != '0) stop = stop_of[g];
    end
  end

  assign valid = count[4] ? '1 : ~(16'hffff << count[3:0]);
  assign b0 = bytes[7:0];
  assign b1 = bytes[15:8];
  assign key_next = from.matched < 6'(KEY_BYTES) ? api_key[8*from.matched[4:0]+:8] : 8'd0;

  always_comb begin
    seen = 'x;
    if (active) begin
      seen.before_stop = before_stop;
      seen.at = PLACES'(1) << from.place;
      seen.bytes = bytes;
      seen.count = count;
      {seen.ten, seen.nine, seen.eight, seen.five} = {valid[9], valid[8], valid[7], valid[4]};
      seen.digit0 = valid[0] && digit(b0);
      seen.digit1 = valid[1] && digit(b1);
      seen.hexadecimal0 = valid[0] && (digit(b0) || (lower[7:0] >= "a" && lower[7:0] <= "f"));
      seen.space0 = valid[0] && is_space[0];
      seen.line0 = is_line[0];
      seen.feed0 = is_line[0] && b0[1];
      seen.comma0 = valid[0] && is_comma[0];
      seen.control0 = valid[0] && is_control[0];
      seen.end0 = is_end[0];
      seen.end_at = is_end[4:1];
      seen.any_line = |is_line;
      seen.any_control = |(valid & is_control);
      seen.any_target_end = |(valid & (is_control | is_query));

      seen.stopped = stops != '0;
      seen.stop = seen.stopped ? stop.at : 5'd16;
      {seen.stop_1, seen.stop_2, seen.stop_4} = {stop.at_1, stop.at_2, stop.at_4};
      seen.lane = lane;
      {seen.gone, seen.gone_1, seen.gone_2, seen.gone_4} = {stop.gone, stop.gone_1, stop.gone_2, stop.gone_4};
      seen.gone_count = words_used(lane, count);
      seen.stop_first = stops[0];
      seen.stop_space = stop.is_space;
      seen.stop_feed = stop.is_feed;
      seen.stop_end = stop.is_end;
      seen.stop_end_end = stop.is_end_end;
      seen.stop_colon = stop.is_colon;
      seen.stop_query = stop.is_query;
      seen.stop_equal = stop.is_equal;
      seen.stop_control = stop.is_control;

      seen.post_function = valid[14] && starts(bytes, "POST /function/", 15);
      seen.get = valid[3] && starts(bytes, "GET ", 4);
      seen.post = valid[4] && starts(bytes, "POST ", 5);
      seen.head = valid[4] && starts(bytes, "HEAD ", 5);
      seen.function_ = valid[9] && starts(bytes, "/function/", 10);
      seen.system = valid[7] && starts(bytes, "/system/", 8);
      seen.http = valid[6] && starts(lower, "http://", 7);
      seen.functions = starts(bytes, "functions", 9);
      seen.healthz = starts(bytes, "/healthz", 8);
      seen.metrics = starts(bytes, "/metrics", 8);
      seen.version = starts(bytes, " HTTP/1.", 8) && digit(bytes[71:64]);
      seen.version_0 = bytes[71:64] == "0";
      seen.version_end = is_end[9];
      seen.content_length = starts(lower, "content-length", 14);
      seen.content_length_space = valid[15] && is_space[15];
      seen.host = starts(lower, "host", 4);
      seen.connection = starts(lower, "connection", 10);
      seen.expect_ = starts(lower, "expect", 6);
      seen.api_key = starts(lower, "x-api-key", 9);
      seen.request_id = starts(lower, "x-request-id", 12);
      seen.coding = starts(lower, "transfer-encodin", 16);
      seen.coding_name = lower[7:0] == "g" && b1 == ":";
      seen.chunked = valid[7] && starts(lower, "chunked", 7) && (is_line[7] || is_space[7]);
      seen.close = starts(lower, "close", 5);
      seen.keep_alive = starts(lower, "keep-alive", 10);
      seen.continue_ = starts(lower, "100-continue", 12);
      for (int k = 0; k < 4; k++) begin
        seen.scalar_same[k] = 1'b1;
        seen.scalar_stop[k] = '0;
        for (int i = 0; i < 8; i++)
        if (scalars[k][8*i+:8] != '0) begin
          if (bytes[8*i+:8] != scalars[k][8*i+:8]) seen.scalar_same[k] = 1'b0;
          seen.scalar_stop[k] = 4'(i + 1);
        end
      end

      // With more than 21 bits so far, the length becomes too long (http_parse).
      seen.length_10 = {4'd0, from.length[20:0], 3'd0} + {6'd0, from.length[20:0], 1'd0};
      seen.length_100 = {1'd0, from.length[20:0], 6'd0} + {2'd0, from.length[20:0], 5'd0} + {5'd0, from.length[20:0], 2'd0};
      seen.two_digits = {b0[3:0], 3'd0} + {2'd0, b0[3:0], 1'd0} + {3'd0, b1[3:0]};
      seen.scalar_10 = {1'd0, scalar, 3'd0} + {3'd0, scalar, 1'd0};
      seen.key_same = key_next == b0;
      seen.key_ends = key_next == 8'd0;
    end
  end

endmodule
