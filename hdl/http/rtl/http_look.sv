// Classifies the next bytes of a stream for the state `from` of the parser: all inputs of
// http_parse's decisions, so that they can be registered. Words are compared 16 bytes at a time,
// and the end of a part is searched in all 16.
//
// Latency: combinational.
module http_look
  import http_pkg::*;
(
    input  request_t              from,
    input  logic [8*KEY_BYTES-1:0] api_key,   // the first character in bits 7:0, padded with zeros
    input  logic [3:0][63:0]      scalars,   // names of the function's query parameters
    input  logic [31:0]           scalar,    // present value of the one at `from.key`
    input  logic [127:0]          bytes,
    input  kind_t [23:0]          kinds,     // of these, and of the other bytes in their words,
    input  logic [23:0]           there,     // and which of them are valid
    input  logic [4:0]            count,
    input  logic [2:0]            lane,      // of the first byte in its word
    input  logic                  active,    // otherwise the inputs are ignored
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

  // The same without regard to case.
  function automatic logic named(input logic [127:0] with_bytes, input logic [127:0] literal, input int n);
    named = 1'b1;
    for (int i = 0; i < 16; i++)
    if (i < n && (with_bytes[8*i+:8] | (literal[8*(n-1-i)+6] ? 8'h20 : 8'h00)) != literal[8*(n-1-i)+:8]) named = 1'b0;
  endfunction

  logic [15:0] valid;
  logic [7:0] b0, b1, key_next;

  // ---- stops: bytes that end the current part ----
  // Selected by the state's bits (http_pkg::place_t).
  logic by_control, by_mark, by_blank;
  logic [2:0] mark;
  assign {by_control, by_mark} = from.place[4:3];
  assign by_blank = !by_control && by_mark && from.place[2];
  assign mark = by_control ? from.place[2:0] : KIND_COMMA[2:0];

  function automatic logic is_mark(input logic [2:0] kind, input logic [2:0] wanted);
    case (wanted[1:0])
      2'b01: is_mark = !(kind inside {KIND_PLAIN[2:0], KIND_PERCENT[2:0]});
      2'b10: is_mark = wanted[2] ? kind == KIND_EQUAL[2:0] : kind inside {KIND_QUERY[2:0], KIND_PERCENT[2:0]};
      2'b00: is_mark = kind inside {KIND_SLASH[2:0], KIND_QUERY[2:0]};
      default: is_mark = kind == KIND_COMMA[2:0];
    endcase
  endfunction

  // Stops selected with bit 3.
  logic by_token;
  assign by_token = by_control && by_mark && mark[1:0] == 2'b01;

  function automatic logic is_end(input kind_t kind, input logic control, input logic token, input logic blank);
    case (kind)
      KIND_CONTROL, KIND_CR, KIND_LF: is_end = 1'b1;
      KIND_SPACE, KIND_TAB: is_end = control || blank;
      KIND_HASH: is_end = control && !token;
      default: is_end = control;
    endcase
  endfunction

  function automatic logic is_blank(input kind_t kind);
    return kind inside {KIND_SPACE, KIND_TAB};
  endfunction

  function automatic logic is_line(input kind_t kind);
    return kind inside {KIND_CR, KIND_LF};
  endfunction

  function automatic logic hexadecimal(input logic [7:0] b);
    return digit(b) || (b[7:6] == 2'b01 && b[4:3] == '0 && !(b[2:0] inside {3'd0, 3'd7}));
  endfunction

  function automatic logic [3:0] nibble(input logic [7:0] b);
    return b[6] ? b[3:0] + 4'd9 : b[3:0];
  endfunction

  // ---- the first stop, and its kind ----
  // Searched in place, in the three words that contain the visible bytes, because aligning them is
  // as long a path as the search, and only the found position needs alignment. First within each
  // four bytes, then among those.
  localparam int Near = 24, Fours = Near / 4;
  typedef struct packed {
    logic [4:0] at, at_1, at_2, at_4;  // from the first byte of the first word; and that many bytes
                                       // after it
    // Its kind, computed for each byte in parallel with the search.
    logic is_space, is_feed, is_end, is_end_end, is_colon, is_query, is_equal, is_percent, is_word_end;
  } stop_t;
  stop_t stop, stop_of[Fours], stop_at[Near];
  logic [Near-1:0] stops, ends, shows;
  logic [Fours-1:0] some;

  always_comb begin
    {stop, stops, ends, shows, some} = 'x;
    for (int i = 0; i < Near; i++) stop_at[i] = 'x;
    for (int g = 0; g < Fours; g++) stop_of[g] = 'x;
    if (active) begin
      for (int i = 0; i < Near; i++) shows[i] = there[i] && (i < 8 ? 3'(i) >= lane : i < 16 || 3'(i) < lane);
      for (int i = 0; i < Near; i++) begin
        stops[i] = shows[i] && (kinds[i][3] ? is_end(kinds[i], by_control, by_token, by_blank) :
            by_mark && is_mark(kinds[i][2:0], mark));
        ends[i] = i < Near - 1 && kinds[i] == KIND_CR && kinds[(i+1)%Near] == KIND_LF &&
            (i < 15 ? there[i+1] : shows[(i+1)%Near]);
      end
      for (int i = 0; i < Near; i++) begin
        stop_at[i].at   = 5'(i);
        stop_at[i].at_1 = 5'(i + 1);
        stop_at[i].at_2 = 5'(i + 2);
        stop_at[i].at_4 = 5'(i + 4);
        stop_at[i].is_space = kinds[i] == KIND_SPACE;
        stop_at[i].is_feed = kinds[i] == KIND_LF;
        stop_at[i].is_colon = kinds[i] == KIND_COLON;
        stop_at[i].is_query = kinds[i] == KIND_QUERY;
        stop_at[i].is_equal = kinds[i] == KIND_EQUAL;
        stop_at[i].is_percent = kinds[i] == KIND_PERCENT;
        stop_at[i].is_word_end = kinds[i][3];
        stop_at[i].is_end = ends[i];
        stop_at[i].is_end_end = ends[i] && i < Near - 2 && ends[(i+2)%Near];
      end
      for (int g = 0; g < Fours; g++) begin
        some[g] = stops[4*g+:4] != '0;
        stop_of[g] = '0;
        for (int i = 3; i >= 0; i--) if (stops[4*g+i]) stop_of[g] = stop_at[4*g+i];
      end
      stop = '0;
      for (int g = Fours - 1; g >= 0; g--) if (some[g]) stop = stop_of[g];
    end
  end

  assign valid = count[4] ? '1 : ~(16'hffff << count[3:0]);
  assign b0 = bytes[7:0];
  assign b1 = bytes[15:8];
  assign key_next = from.matched < 6'(KEY_BYTES) ? api_key[8*from.matched[4:0]+:8] : 8'd0;

  // Kinds at fixed positions, and line ends.
  kind_t kind0, kind5, kind7, kind15;
  logic [9:0] ends_here;

  always_comb begin
    {seen, kind0, kind5, kind7, kind15, ends_here} = 'x;
    seen.at = PLACES'(1) << from.place;  // one-hot even if it is ignored (http_parse)
    if (active) begin
      kind0 = kinds[5'(lane)];
      kind5 = kinds[5'(lane)+5'd5];
      kind7 = kinds[5'(lane)+5'd7];
      kind15 = kinds[5'(lane)+5'd15];
      ends_here = 10'(ends >> lane);
      seen.bytes = bytes;
      seen.count = count;
      {seen.ten, seen.nine, seen.eight} = {valid[9], valid[8], valid[7]};
      seen.digit0 = valid[0] && digit(b0);
      seen.digit1 = valid[1] && digit(b1);
      seen.hexadecimal0 = valid[0] && hexadecimal(b0);
      seen.space0 = valid[0] && is_blank(kind0);
      seen.line0 = valid[0] && is_line(kind0);
      seen.feed0 = valid[0] && kind0 == KIND_LF;
      seen.comma0 = valid[0] && kind0 == KIND_COMMA;
      seen.word_end0 = valid[0] && kind0[3] && kind0 != KIND_HASH;
      seen.token0 = kind0 inside {KIND_PLAIN, KIND_PERCENT, KIND_HASH};
      seen.control0 = valid[0] && kind0 == KIND_CONTROL;
      seen.target_end0 = valid[0] && (kind0[3] || kind0 == KIND_QUERY);
      seen.end0 = ends_here[0];
      seen.end_at = ends_here[4:1];
      {seen.any_line, seen.any_control, seen.any_target_end} = '0;
      for (int i = 0; i < Near; i++)
      if (shows[i]) begin
        if (kinds[i][3]) seen.any_control = 1'b1;
        if (is_line(kinds[i])) seen.any_line = 1'b1;
        if (kinds[i][3] || kinds[i] == KIND_QUERY) seen.any_target_end = 1'b1;
      end

      seen.stopped = some != '0;
      seen.stop = stop.at[3:0] - 4'(lane);
      {seen.stop_at, seen.stop_1, seen.stop_2, seen.stop_4} = {stop.at, stop.at_1, stop.at_2, stop.at_4};
      seen.all_at = 5'(lane) + count;
      seen.stop_first = 1'b0;
      for (int i = 0; i < 8; i++) if (stops[i] && lane == 3'(i)) seen.stop_first = 1'b1;
      seen.stop_space = stop.is_space;
      seen.stop_feed = stop.is_feed;
      seen.stop_end = stop.is_end;
      seen.stop_end_end = stop.is_end_end;
      seen.stop_colon = stop.is_colon;
      seen.stop_query = stop.is_query;
      seen.stop_equal = stop.is_equal;
      seen.stop_percent = stop.is_percent;
      seen.stop_word_end = stop.is_word_end;

      seen.post_function = valid[14] && starts(bytes, "POST /function/", 15);
      seen.get = valid[3] && starts(bytes, "GET ", 4);
      seen.post = valid[4] && starts(bytes, "POST ", 5);
      seen.head = valid[4] && starts(bytes, "HEAD ", 5);
      seen.options = valid[7] && starts(bytes, "OPTIONS ", 8);
      seen.other_method = (valid[3] && starts(bytes, "PUT ", 4)) || (valid[6] && starts(bytes, "DELETE ", 7)) ||
          (valid[5] && starts(bytes, "PATCH ", 6));
      seen.server = valid[1] && starts(bytes, "* ", 2);
      seen.function_ = valid[9] && starts(bytes, "/function/", 10);
      seen.system = valid[7] && starts(bytes, "/system/", 8);
      seen.http = valid[6] && named(bytes, "http://", 7);
      seen.functions = starts(bytes, "functions", 9);
      seen.healthz = starts(bytes, "/healthz", 8);
      seen.metrics = starts(bytes, "/metrics", 8);
      seen.version = starts(bytes, " HTTP/1.", 8) && digit(bytes[71:64]);
      seen.version_0 = bytes[71:64] == "0";
      seen.version_other = starts(bytes, " HTTP/", 6) && digit(bytes[55:48]) && bytes[63:56] == "." && digit(bytes[71:64]);
      seen.version_end = ends_here[9];
      seen.content_length = named(bytes, "content-length", 14);
      seen.content_length_space = valid[15] && is_blank(kind15);
      seen.host = named(bytes, "host", 4);
      seen.host_space = valid[5] && is_blank(kind5);
      seen.connection = named(bytes, "connection", 10);
      seen.expect_ = named(bytes, "expect", 6);
      seen.api_key = named(bytes, "x-api-key", 9);
      seen.request_id = named(bytes, "x-request-id", 12);
      seen.coding = named(bytes, "transfer-encodin", 16);
      seen.coding_name = named(bytes, "g", 1) && b1 == ":";
      seen.chunked = valid[7] && named(bytes, "chunked", 7) && (is_blank(kind7) || is_line(kind7));
      seen.close = named(bytes, "close", 5);
      seen.keep_alive = named(bytes, "keep-alive", 10);
      seen.continue_ = named(bytes, "100-continue", 12);
      for (int k = 0; k < 4; k++) begin
        seen.scalar_same[k] = 1'b1;
        seen.scalar_stop[k] = '0;
        for (int i = 0; i < 8; i++)
        if (scalars[k][8*i+:8] != '0) begin
          if (bytes[8*i+:8] != scalars[k][8*i+:8]) seen.scalar_same[k] = 1'b0;
          seen.scalar_stop[k] = 4'(i + 1);
        end
      end

      // Encoded characters other than the unreserved ones have a different meaning (RFC 3986
      // section 2.2).
      seen.encoded = b0 == "%";
      seen.encoded_there = valid[2];
      seen.character = seen.encoded ? {nibble(b1), nibble(bytes[23:16])} : b0;
      seen.decodes = hexadecimal(b1) && hexadecimal(bytes[23:16]) && (digit(seen.character) ||
          (seen.character[7:6] == 2'b01 && seen.character[4:0] inside {[5'd1 : 5'd26]}) || seen.character inside {"-", ".", "_", "~"});

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
