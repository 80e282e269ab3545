// One step of parsing a request's head (RFC 9110, RFC 9112): from where the request stands and the
// next bytes, to where it stands then and how many bytes that used. Words that are looked for are
// compared 16 bytes at a time, lines that nobody reads are passed over 16 bytes at a time.
//
// Strict where leniency helps request smuggling: no space before a colon, no folded lines, one
// Content-Length, digits only. Latency: combinational.
module http_parse
  import http_pkg::*;
  import functions_pkg::*;
#(
    parameter int BODY_BYTES = 1048576,  // the longest body
    parameter int HEAD_BYTES = 8192      // the longest head
) (
    input  request_t       from,
    input  logic   [8*KEY_BYTES-1:0] api_key,  // the first character in bits 7:0, zeros behind
    input  seen_t          seen,
    input  logic [3:0][63:0] scalars,  // the query parameters that the function knows
    output request_t       to,
    output name_t          word,     // at AT_NAME: the name that stands there
    output logic           id_put,   // the first byte is the request id's next one
    output logic   [  4:0] take,
    output logic           moved,    // else more bytes are needed
    output logic           broken,   // cannot be parsed
    output logic           too_big   // the head
);

  logic [15:0] valid, is_space, is_line, is_end, is_colon, is_query, is_comma, is_equal, is_and, is_control;
  logic [127:0] bytes, lower, name;
  logic [4:0] count;
  logic [7:0] b0, b1;

  function automatic logic digit(input logic [7:0] b);
    return b >= "0" && b <= "9";
  endfunction

  function automatic logic hexadecimal(input logic [7:0] b);
    return digit(b) || (b >= "a" && b <= "f") || (b >= "A" && b <= "F");
  endfunction

  function automatic logic [3:0] hex_value(input logic [7:0] b);
    return digit(b) ? b[3:0] : b[3:0] + 4'd9;
  endfunction

  function automatic logic blank(input logic [7:0] b);
    return b == " " || b == 8'h09;
  endfunction

  // The first bytes are those of a literal of `n` characters.
  function automatic logic starts(input logic [127:0] with_bytes, input logic [127:0] literal, input int n);
    starts = 1'b1;
    for (int i = 0; i < 16; i++)
    if (i < n && with_bytes[8*i+:8] != literal[8*(n-1-i)+:8]) starts = 1'b0;
  endfunction

  assign {bytes, count} = {seen.bytes, seen.count};
  assign {is_space, is_line, is_colon, is_query, is_comma, is_equal, is_and, is_control} = {
      seen.is_space, seen.is_line, seen.is_colon, seen.is_query, seen.is_comma, seen.is_equal, seen.is_and, seen.is_control};

  always_comb begin
    for (int i = 0; i < 16; i++) begin
      valid[i] = 5'(i) < count;
      lower[8*i+:8] = bytes[8*i+:8] >= "A" && bytes[8*i+:8] <= "Z" ? bytes[8*i+:8] | 8'h20 : bytes[8*i+:8];
    end
    // CR LF.
    for (int i = 0; i < 16; i++)
    is_end[i] = i < 15 && is_line[i] && !bytes[8*i+1] && is_line[(i+1)%16] && bytes[8*((i+1)%16)+1];
  end

  assign b0 = bytes[7:0];
  assign b1 = bytes[15:8];

  // What the current part ends at: one of a set of characters, by the place.
  logic [15:0] stops, first_stop, leading;
  logic [4:0] stop;
  logic stop_space, stop_line_feed, stop_end, stop_colon, stop_query, stop_equal, stop_control;
  logic full, found, two;

  always_comb begin
    case (from.place)
      AT_METHOD, AT_PATH_REST, AT_QUERY_REST: stops = is_control;
      AT_AUTHORITY: begin
        stops = is_control;
        for (int i = 0; i < 16; i++) if (valid[i] && bytes[8*i+:8] == "/") stops[i] = 1'b1;
      end
      AT_NAME: stops = is_control | is_query;
      AT_KEY: stops = is_control | is_equal | is_and;
      AT_HEADER, AT_HEADER_REST: stops = is_control | is_colon;
      AT_CONNECTION: stops = is_space | is_line | is_comma;
      AT_TOKEN_REST: stops = is_line | is_comma;
      default: stops = is_line;
    endcase
    stop = 5'd16;
    for (int i = 15; i >= 0; i--) if (stops[i]) stop = 5'(i);
    first_stop = stops & (~stops + 1'b1);
    // What is before that, with zeros behind: a name, where one stands.
    for (int i = 0; i < 16; i++) leading[i] = (stops << (15 - i)) == '0;
    for (int i = 0; i < 16; i++) name[8*i+:8] = leading[i] ? bytes[8*i+:8] : 8'd0;
    stop_space = 1'b0;
    stop_line_feed = 1'b0;
    for (int i = 0; i < 16; i++) begin
      // Of the two blanks and of the two that end a line, one bit tells which.
      if (first_stop[i] && is_space[i] && bytes[8*i+5]) stop_space = 1'b1;
      if (first_stop[i] && is_line[i] && bytes[8*i+1]) stop_line_feed = 1'b1;
    end
    stop_end = |(first_stop & is_end);
    stop_colon = |(first_stop & is_colon);
    stop_query = |(first_stop & is_query);
    stop_equal = |(first_stop & is_equal);
    stop_control = |(first_stop & is_control);
  end

  // As long as it is not too long, the length so far has no more bits than that of the longest body.
  localparam int LengthBits = $clog2(BODY_BYTES + 1);
  logic [LengthBits+6:0] tens, value;
  logic [7:0] key_next;
  logic [35:0] scalar;

  assign full = count == 5'd16;

  always_comb begin
    to = from;
    take = '0;
    moved = 1'b0;
    broken = 1'b0;
    id_put = 1'b0;
    found = 1'b0;
    key_next = from.matched < 6'(KEY_BYTES) ? api_key[8*from.matched[4:0]+:8] : 8'd0;
    two = valid[1] && digit(b1);
    tens = (LengthBits + 7)'({from.length[LengthBits-1:0], 3'b000}) + (LengthBits + 7)'({from.length[LengthBits-1:0], 1'b0}) +
        (LengthBits + 7)'(b0[3:0]);
    value = two ? (LengthBits + 7)'({tens, 3'b000}) + (LengthBits + 7)'({tens, 1'b0}) + (LengthBits + 7)'(b1[3:0]) : tens;
    // Without a digit so far it is whatever stood there.
    scalar = (from.digits ? 36'(from.params[32*from.key+:32]) * 36'd10 : '0) + 36'(b0[3:0]);

    case (from.place)
      AT_START:
      if (is_line[0]) begin
        take  = 5'd1;  // an empty line before a request is nothing (RFC 9112 section 2.2)
        moved = 1'b1;
      end else if (count >= 5'd15 && starts(bytes, "POST /function/", 15)) begin
        take = 5'd15;  // what is asked most
        to.method = METHOD_POST;
        to.route = ROUTE_FUNCTION;
        to.place = AT_NAME;
      end else if (count >= 5'd4 && starts(bytes, "GET ", 4)) begin
        take = 5'd4;
        to.method = METHOD_GET;
        to.place = AT_PATH;
      end else if (count >= 5'd5 && (starts(bytes, "POST ", 5) || starts(bytes, "HEAD ", 5))) begin
        take = 5'd5;
        to.method = b0 == "P" ? METHOD_POST : METHOD_HEAD;
        to.place = AT_PATH;
      end else if (count >= 5'd5 || |is_control) begin
        to.method = METHOD_OTHER;
        to.place = AT_METHOD;
        moved = 1'b1;
      end

      AT_METHOD: begin
        if (stop == 5'd16) take = count;
        else if (!stop_space) broken = 1'b1;
        else begin
          take = stop + 5'd1;
          to.place = AT_PATH;
        end
      end

      AT_PATH:
      if (count >= 5'd10 || |(is_control | is_query)) begin
        moved = 1'b1;
        to.place = AT_NAME;
        if (count >= 5'd10 && starts(bytes, "/function/", 10)) begin
          take = 5'd10;
          to.route = ROUTE_FUNCTION;
        end else if (count >= 5'd8 && starts(bytes, "/system/", 8)) begin
          take = 5'd8;
          to.route = ROUTE_SYSTEM;
        end else if (count >= 5'd7 && starts(lower, "http://", 7)) begin
          take = 5'd7;
          to.place = AT_AUTHORITY;
        end
      end

      // The absolute form, as a proxy would be asked: the authority is passed over.
      AT_AUTHORITY:
      if (stop_control) broken = 1'b1;
      else if (stop != 5'd16) begin
        take = stop;
        to.place = AT_PATH;
        moved = 1'b1;
      end else take = count;

      AT_NAME: begin
        if (stop != 5'd16) begin
          moved = 1'b1;
          take  = stop;
          case (from.route)
            ROUTE_FUNCTION: ;  // the table says whether there is one of that name
            ROUTE_SYSTEM: to.route = name == named("functions") ? ROUTE_FUNCTIONS : ROUTE_NONE;
            default: begin
              to.route = ROUTE_NONE;
              if (name == named("/healthz")) to.route = ROUTE_HEALTH;
              if (name == named("/metrics")) to.route = ROUTE_METRICS;
            end
          endcase
          if (stop_query) begin
            take = stop + 5'd1;
            to.place = to.route == ROUTE_FUNCTION ? AT_KEY : AT_QUERY_REST;
          end else if (stop_space) to.place = AT_VERSION;
          else broken = 1'b1;
        end else if (full) begin
          to.route = ROUTE_NONE;
          to.place = AT_PATH_REST;
          moved = 1'b1;
        end
      end

      AT_PATH_REST, AT_QUERY_REST: begin
        take = stop == 5'd16 ? count : stop;
        if (stop != 5'd16) begin
          moved = 1'b1;
          if (stop_space) to.place = AT_VERSION;
          else broken = 1'b1;
        end
      end

      AT_KEY: begin
        to.digits = 1'b0;
        if (stop_equal && stop != '0) begin
          take = stop + 5'd1;
          to.place = AT_VALUE;
          for (int k = 0; k < 4; k++)
          if (scalars[k] != '0 && name == 128'(scalars[k])) begin
            found  = 1'b1;
            to.key = 2'(k);
          end
          if (!found || from.keys[to.key]) begin
            to.bad   = 1'b1;
            to.place = AT_QUERY_REST;
          end else to.keys[to.key] = 1'b1;
        end else if (stop == '0 && b0 == "&") take = 5'd1;
        else if (stop == '0 && b0 == " ") begin
          to.place = AT_VERSION;
          moved = 1'b1;
        end else if (stop != 5'd16 || full) begin
          to.bad = 1'b1;
          to.place = AT_QUERY_REST;
          moved = 1'b1;
        end
      end

      AT_VALUE:
      if (count != '0) begin
        moved = 1'b1;
        if (digit(b0)) begin
          take = 5'd1;
          to.digits = 1'b1;
          to.params[32*from.key+:32] = scalar[31:0];
          if (scalar[35:32] != '0) to.bad = 1'b1;
        end else begin
          if (!from.digits) to.bad = 1'b1;
          to.place = AT_QUERY_REST;
          if (b0 == "&") begin
            take = 5'd1;
            to.place = AT_KEY;
          end else if (b0 != " ") to.bad = 1'b1;
        end
      end

      AT_VERSION:
      if (count >= 5'd9) begin
        moved = 1'b1;
        if (!starts(bytes, " HTTP/1.", 8) || !digit(bytes[71:64])) broken = 1'b1;
        to.http10 = bytes[71:64] == "0";
        to.place  = AT_LINE_END;
        take = 5'd9;
        if (count >= 5'd11 && bytes[87:72] == 16'h0a0d) begin
          take = 5'd11;
          to.place = AT_HEADER;
        end
      end else if (|is_line) broken = 1'b1;

      AT_LINE_END:
      if (is_line[0] && (b0 == 8'h0a || count >= 5'd2)) begin
        take = b0 == 8'h0a ? 5'd1 : 5'd2;
        to.place = AT_HEADER;
        if (b0 == 8'h0d && b1 != 8'h0a) broken = 1'b1;
      end else if (valid[0] && !is_line[0]) broken = 1'b1;

      AT_HEADER: begin
        to.digits = 1'b0;
        to.number_over = 1'b0;
        if (is_line[0]) begin
          if (b0 == 8'h0a || count >= 5'd2) begin
            take = b0 == 8'h0a ? 5'd1 : 5'd2;
            to.place = AT_BODY;
            if (b0 == 8'h0d && b1 != 8'h0a) broken = 1'b1;
          end
        end else if (stop != 5'd16) begin
          take = stop + 5'd1;
          to.place = AT_HEADER_VALUE;
          if (!stop_colon || stop == '0) broken = 1'b1;
          if (stop == 5'd14 && starts(lower, "content-length", 14)) begin
            to.place = AT_LENGTH;
            if (is_space[15]) take = 5'd16;
            if (from.has_length) broken = 1'b1;
            to.has_length = 1'b1;
          end
          if (stop == 5'd4 && starts(lower, "host", 4)) begin
            if (from.has_host) broken = 1'b1;
            to.has_host = 1'b1;
          end
          if (stop == 5'd10 && starts(lower, "connection", 10)) to.place = AT_CONNECTION;
          if (stop == 5'd6 && starts(lower, "expect", 6)) to.place = AT_EXPECT;
          if (stop == 5'd9 && starts(lower, "x-api-key", 9)) begin
            to.place = AT_API_KEY;
            to.authorized = 1'b0;
            to.matched = '0;
          end
          if (stop == 5'd12 && starts(lower, "x-request-id", 12)) begin
            to.place = AT_REQUEST_ID;
            to.id_bytes = '0;
          end
        end else if (full) begin
          take = 5'd16;
          to.place = starts(lower, "transfer-encodin", 16) ? AT_CODING_NAME : AT_HEADER_REST;
        end
      end

      AT_HEADER_REST: begin
        take = count;
        if (stop != 5'd16) begin
          take = stop + 5'd1;
          to.place = AT_HEADER_VALUE;
          if (!stop_colon) broken = 1'b1;
        end
      end

      // The rest of Transfer-Encoding. Only "chunked" is known, once.
      AT_CODING_NAME:
      if (count >= 5'd2) begin
        moved = 1'b1;
        to.place = AT_HEADER_REST;
        if (lower[7:0] == "g" && b1 == ":") begin
          take = 5'd2;
          to.place = AT_CODING;
        end
      end else if (is_control[0]) broken = 1'b1;

      AT_CODING:
      if (is_space[0]) take = 5'd1;
      else if (count >= 5'd8 || |is_line) begin
        moved = 1'b1;
        to.place = AT_HEADER_VALUE;
        if (count >= 5'd8 && starts(lower, "chunked", 7) && (is_line[7] || is_space[7]) && !from.chunked) begin
          take = 5'd7;
          to.chunked = 1'b1;
          to.place = AT_CODING_END;
        end else to.coded = 1'b1;
      end

      AT_CODING_END:
      if (is_space[0]) take = 5'd1;
      else if (valid[0]) begin
        moved = 1'b1;
        to.place = AT_HEADER_VALUE;
        if (!is_line[0]) to.coded = 1'b1;
      end

      // Chunks (RFC 9112 section 7.1): lines end in CR LF here, and nothing else.
      AT_CHUNK_SIZE:
      if (hexadecimal(b0) && valid[0]) begin
        take = 5'd1;
        to.digits = 1'b1;
        to.chunk = {from.chunk[19:0], hex_value(b0)};
        if (from.chunk[23:20] != '0) to.too_long = 1'b1;
      end else if (valid[0] && (!is_line[0] || b0 == 8'h0a || count >= 5'd2)) begin
        moved = 1'b1;
        to.place = AT_CHUNK_REST;
        if (!from.digits || (is_line[0] && !is_end[0])) broken = 1'b1;
      end

      AT_CHUNK_REST: begin
        take = stop == 5'd16 ? count : stop;
        if (stop == 5'd16 || stop_end) begin
          if (stop != 5'd16) begin
            take = stop + 5'd2;
            to.place = from.chunk == '0 ? AT_TRAILER : AT_CHUNK;
          end
        end else if (stop == '0 && count >= 5'd2) broken = 1'b1;
      end

      AT_CHUNK_END:
      if (count >= 5'd2) begin
        moved = 1'b1;
        take = 5'd2;
        if (!is_end[0]) broken = 1'b1;
        to.place = AT_CHUNK_SIZE;
        to.chunk = '0;
        to.digits = 1'b0;
      end

      AT_TRAILER:
      if (count >= 5'd2) begin
        moved = 1'b1;
        to.place = AT_TRAILER_REST;
        if (is_end[0]) begin
          take = 5'd2;
          to.place = AT_BODY;
          to.together = 1'b1;
        end
      end

      AT_TRAILER_REST: begin
        take = stop == 5'd16 ? count : stop;
        if (stop != 5'd16 && stop_end) begin
          take = stop + 5'd2;
          to.place = AT_TRAILER;
        end else if (stop == '0 && count >= 5'd2) broken = 1'b1;
      end

      AT_HEADER_VALUE: begin
        take = stop == 5'd16 ? count : stop;
        if (stop != 5'd16) begin
          to.place = AT_LINE_END;
          moved = 1'b1;
          // The usual ends at once: of a line, of the head.
          if (stop_line_feed) begin
            take = stop + 5'd1;
            to.place = AT_HEADER;
          end else if (stop_end) begin
            take = stop + 5'd2;
            to.place = AT_HEADER;
            if (stop < 5'd13 && is_end[4'(stop+5'd2)]) begin
              take = stop + 5'd4;
              to.place = AT_BODY;
            end
          end
        end
      end

      AT_LENGTH:
      if (count != '0) begin
        moved = 1'b1;
        if (digit(b0) && !from.number_over) begin
          to.digits = 1'b1;
          if (!from.too_long) to.length = 24'(value);
          if (32'(value) > 32'(BODY_BYTES)) to.too_long = 1'b1;
          // Two digits at a time, with the usual end of a line, and of the head.
          take = {3'd0, two, !two};
          if (is_end[{2'd0, two, !two}]) begin
            take = 5'd3 + 5'(two);
            to.place = AT_HEADER;
            if (is_end[4'd3+4'(two)]) begin
              take = 5'd5 + 5'(two);
              to.place = AT_BODY;
            end
          end
        end else if (blank(b0)) begin
          take = 5'd1;
          to.number_over = from.digits;
        end else if (is_line[0] && from.digits) to.place = AT_LINE_END;
        else broken = 1'b1;
      end

      AT_CONNECTION: begin
        if (is_space[0] || is_comma[0]) take = 5'd1;
        else if (is_line[0]) begin
          to.place = AT_LINE_END;
          moved = 1'b1;
        end else if (stop != 5'd16 || full) begin
          to.place = AT_TOKEN_REST;
          moved = 1'b1;
          if (stop == 5'd5 && starts(lower, "close", 5)) to.close = 1'b1;
          if (stop == 5'd10 && starts(lower, "keep-alive", 10)) to.keep = 1'b1;
        end
      end

      AT_TOKEN_REST: begin
        take = stop == 5'd16 ? count : stop;
        if (stop != 5'd16) begin
          to.place = AT_CONNECTION;
          moved = 1'b1;
        end
      end

      // One character a step, whichever of them is wrong: the time does not tell.
      AT_API_KEY:
      if (valid[0]) begin
        if (is_line[0]) begin
          to.authorized = from.digits && from.matched <= 6'(KEY_BYTES) && key_next == 8'd0;
          to.place = AT_HEADER_VALUE;
          moved = 1'b1;
        end else begin
          take = 5'd1;
          if (is_space[0]) to.number_over = from.digits;
          else begin
            to.digits = 1'b1;
            to.matched = !from.number_over && from.matched < 6'(KEY_BYTES) && key_next == b0 ? from.matched + 6'd1 : '1;
          end
        end
      end

      AT_REQUEST_ID:
      if (valid[0]) begin
        if (is_space[0] && from.id_bytes == '0) take = 5'd1;
        else if (is_control[0] || from.id_bytes == 6'(ID_BYTES)) begin
          // The end, or more than is carried.
          if (!is_line[0]) to.id_bytes = '0;
          to.place = AT_HEADER_VALUE;
          moved = 1'b1;
        end else begin
          take = 5'd1;
          id_put = 1'b1;
          to.id_bytes = from.id_bytes + 6'd1;
        end
      end

      AT_EXPECT: begin
        if (is_space[0]) take = 5'd1;
        else if (stop != 5'd16 || full) begin
          if (starts(lower, "100-continue", 12)) to.expect_100 = 1'b1;
          to.place = AT_HEADER_VALUE;
          moved = 1'b1;
        end
      end

      default: ;
    endcase

    // The same however the head's end has come.
    if (to.place == AT_BODY) begin
      to.digits = 1'b0;
      to.number_over = 1'b0;
    end
    if (take != '0) moved = 1'b1;
    to.head_bytes = from.head_bytes + 14'(take);
  end

  assign word = name;
  assign too_big = from.head_bytes >= 14'(HEAD_BYTES);

endmodule
