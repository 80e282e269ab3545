// One step of parsing a request's head (RFC 9110, RFC 9112): from the state of the request and the
// classification of the next bytes (http_look, for the same state) to the next state and the
// position of the next byte. The user counts `head_bytes`.
// Ignored lines are skipped 16 bytes at a time.
//
// Strict where leniency helps request smuggling: no space before a colon, no folded lines, one
// Content-Length, digits only, nothing except an extension after a chunk's size. Percent-encoded
// characters of a path are decoded one per step; those of a function's name are stored outside
// until it is complete. Latency: combinational.
module http_parse
  import http_pkg::*;
  import functions_pkg::*;
#(
    parameter int BODY_BYTES = 1048576,  // the longest body
    parameter int HEAD_BYTES = 8192      // the longest head
) (
    input  request_t       from,
    input  seen_t          seen,
    input  logic   [  2:0] lane,     // of the next byte in its word
    output request_t       to,
    input  name_t          stored,   // at AT_ENCODED: the name so far
    output name_t          word,     // the function's name;
    output logic           word_over,  // its end is at this position
    output logic           id_put,   // the next byte of the request's id, or of a name that is
                                     // encoded:
    output logic [7:0]     id_byte,
    output logic           scalar_put,  // the scalar at `from.key` is now:
    output logic   [ 31:0] scalar,
    output logic   [  4:0] onward,   // position of the next byte, from the first byte of the word
                                     // that contained the previous one
    output logic           moved,    // otherwise more bytes are needed
    output logic           broken,   // malformed
    output logic           other_version,  // unsupported version
    output logic           too_big   // the head
);

  // The user compares lengths with no more bits than the longest body. A length of more than 21
  // bits has no space for another digit (http_look), because it would exceed 24 bits.
  localparam int LengthBits = $clog2(BODY_BYTES + 1);
  localparam int ChunkBits = (LengthBits + 3) / 4 * 4;  // whole digits
  if (LengthBits > 24) $error("BODY_BYTES must be below 2^24");

  logic any, two, full, found;
  logic [4:0] count;
  logic [7:0] b0;
  logic [27:0] value;
  logic [35:0] longer;
  logic [3:0] is_scalar;  // whose name is at this position

  assign count = seen.count;
  assign any = count != '0;
  assign two = |count[4:1];
  assign full = count[4];
  assign b0 = seen.bytes[7:0];
  assign value = seen.digit1 ? seen.length_100 + 28'(seen.two_digits) : seen.length_10 + 28'(b0[3:0]);
  // Without a digit the value is undefined.
  assign longer = (from.digits ? seen.scalar_10 : '0) + 36'(b0[3:0]);
  assign scalar = longer[31:0];

  logic [3:0] word_bytes;
  assign word_bytes = seen.at[AT_NAME] ? seen.stop : from.id_bytes[3:0];
  assign word_over = from.route == ROUTE_FUNCTION && ((seen.at[AT_NAME] && (seen.stop_space || seen.stop_query)) ||
      (seen.at[AT_ENCODED] && seen.target_end0 && b0 inside {"?", " "}));
  assign id_byte = seen.character;

  always_comb begin
    for (int i = 0; i < 16; i++) word[8*i+:8] = 4'(i) >= word_bytes ? 8'd0 : seen.at[AT_NAME] ? seen.bytes[8*i+:8] : stored[8*i+:8];
    for (int k = 0; k < 4; k++) is_scalar[k] = seen.scalar_same[k] && seen.stop == seen.scalar_stop[k];
  end

  // Consumes this number of bytes.
  function automatic logic [4:0] taking(input logic [2:0] from_lane, input logic [4:0] n);
    return 5'(from_lane) + n;
  endfunction

  always_comb begin
    to = from;
    onward = 5'(lane);
    moved = 1'b0;
    broken = 1'b0;
    other_version = 1'b0;
    id_put = 1'b0;
    scalar_put = 1'b0;
    found = 1'b0;

    unique case (1'b1)
      seen.at[AT_START]:
      if (seen.line0) begin
        if (seen.feed0 || two) begin
          // An empty line before a request is ignored (RFC 9112 section 2.2).
          onward = seen.feed0 ? taking(lane, 5'd1) : taking(lane, 5'd2);
          moved = 1'b1;
          if (!seen.feed0 && !seen.end0) broken = 1'b1;
        end
      end else if (seen.post_function) begin
        onward = taking(lane, 5'd15);  // the most frequent request
        moved = 1'b1;
        to.method = METHOD_POST;
        to.route = ROUTE_FUNCTION;
        to.place = AT_NAME;
      end else if (seen.get) begin
        onward = taking(lane, 5'd4);
        moved = 1'b1;
        to.method = METHOD_GET;
        to.place = AT_PATH;
      end else if (seen.post || seen.head) begin
        onward = taking(lane, 5'd5);
        moved = 1'b1;
        to.method = seen.post ? METHOD_POST : METHOD_HEAD;
        to.place = AT_PATH;
      end else if (seen.options) begin
        onward = taking(lane, 5'd8);
        moved = 1'b1;
        to.method = METHOD_OPTIONS;
        to.place = AT_PATH;
      end else if (seen.eight || seen.any_control) begin
        to.method = seen.other_method ? METHOD_OTHER : METHOD_UNKNOWN;
        to.place = AT_METHOD;
        moved = 1'b1;
        if (!seen.token0) broken = 1'b1;
      end

      seen.at[AT_METHOD]: begin
        moved = any;
        if (!seen.stopped) onward = seen.all_at;
        else if (!seen.stop_space) broken = 1'b1;
        else begin
          onward = seen.stop_1;
          to.place = AT_PATH;
        end
      end

      seen.at[AT_PATH]:
      if (seen.ten || seen.any_target_end) begin
        moved = 1'b1;
        to.place = AT_NAME;
        to.digits = 1'b0;
        if (seen.function_) begin
          onward = taking(lane, 5'd10);
          to.route = ROUTE_FUNCTION;
        end else if (seen.system) begin
          onward = taking(lane, 5'd8);
          to.route = ROUTE_SYSTEM;
        end else if (seen.http && !from.digits) begin
          onward = taking(lane, 5'd7);
          to.place = AT_AUTHORITY;
        end else if (seen.server && from.method == METHOD_OPTIONS) begin
          onward = taking(lane, 5'd1);
          to.place = AT_VERSION;
          to.route = ROUTE_SERVER;
        end else if (b0 != "/" && !(from.digits && seen.target_end0)) broken = 1'b1;
      end

      // The absolute form, as sent to a proxy: the authority is skipped. The path after it may be
      // missing; `digits` is set once the authority has characters.
      seen.at[AT_AUTHORITY]: begin
        onward = seen.stopped ? seen.stop_at : seen.all_at;
        moved = any;
        to.digits = from.digits || any;
        if (seen.stopped) begin
          to.place = AT_PATH;
          if (seen.stop_word_end && !seen.stop_space) broken = 1'b1;
        end
        if (any && !from.digits && (seen.stop_first || b0 == ":")) broken = 1'b1;
      end

      seen.at[AT_NAME]: begin
        if (seen.stopped) begin
          moved = 1'b1;
          onward = seen.stop_at;
          case (from.route)
            ROUTE_FUNCTION: ;  // the table determines whether the function exists
            ROUTE_SYSTEM: to.route = seen.functions && seen.stop == 4'd9 ? ROUTE_FUNCTIONS : ROUTE_NONE;
            default: begin
              to.route = ROUTE_NONE;
              if (seen.healthz && seen.stop == 4'd8) to.route = ROUTE_HEALTH;
              if (seen.metrics && seen.stop == 4'd8) to.route = ROUTE_METRICS;
            end
          endcase
          if (seen.stop_query) begin
            onward = seen.stop_1;
            to.place = to.route == ROUTE_FUNCTION ? AT_KEY : AT_QUERY_REST;
          end else if (seen.stop_space) to.place = AT_VERSION;
          else if (seen.stop_percent) begin
            onward = 5'(lane);
            to.place = AT_ENCODED;
            if (from.route != ROUTE_FUNCTION) to.route = ROUTE_NONE;
            to.keys = from.route == ROUTE_SYSTEM ? 4'b0010 : '1;
            to.id_bytes = from.route == ROUTE_SYSTEM ? 6'd8 : '0;
          end else broken = 1'b1;
        end else if (full) begin
          to.route = ROUTE_NONE;
          to.place = AT_PATH_REST;
          moved = 1'b1;
        end
      end

      seen.at[AT_ENCODED]:
      if (seen.target_end0) begin
        moved = 1'b1;
        to.keys = '0;
        to.id_bytes = '0;
        if (from.route != ROUTE_FUNCTION) begin
          if (from.keys[1] && from.id_bytes == 6'd17) to.route = ROUTE_FUNCTIONS;
          if (from.keys[2] && from.id_bytes == 6'd8) to.route = ROUTE_HEALTH;
          if (from.keys[3] && from.id_bytes == 6'd8) to.route = ROUTE_METRICS;
        end
        to.place = AT_VERSION;
        if (b0 == "?") begin
          onward = taking(lane, 5'd1);
          to.place = from.route == ROUTE_FUNCTION ? AT_KEY : AT_QUERY_REST;
        end else if (b0 != " ") broken = 1'b1;
      end else if (any && (!seen.encoded || seen.encoded_there)) begin
        moved = 1'b1;
        onward = seen.encoded ? taking(lane, 5'd3) : taking(lane, 5'd1);
        to.id_bytes = from.id_bytes + 6'd1;
        id_put = from.route == ROUTE_FUNCTION;
        for (int k = 0; k < 4; k++)
        if (from.route != ROUTE_FUNCTION && seen.character != path_at(k, from.id_bytes[4:0])) to.keys[k] = 1'b0;
        if (from.route != ROUTE_FUNCTION && to.keys[0] && from.id_bytes == 6'd9) begin
          to.route = ROUTE_FUNCTION;
          to.id_bytes = '0;
        end
        // There is no resource with this path.
        if ((seen.encoded && !seen.decodes) || (from.route == ROUTE_FUNCTION ? from.id_bytes == 6'd15 : to.keys == '0)) begin
          onward = taking(lane, 5'd1);
          id_put = 1'b0;
          to.route = ROUTE_NONE;
          to.place = AT_PATH_REST;
          to.keys = '0;
          to.id_bytes = '0;
        end
      end

      seen.at[AT_PATH_REST], seen.at[AT_QUERY_REST]: begin
        onward = seen.stopped ? seen.stop_at : seen.all_at;
        moved = any;
        if (seen.stopped) begin
          if (seen.stop_space) to.place = AT_VERSION;
          else broken = 1'b1;
        end
      end

      seen.at[AT_KEY]: begin
        to.digits = 1'b0;
        moved = seen.stopped || full;
        if (any && b0 == "&") begin
          onward = taking(lane, 5'd1);
          moved = 1'b1;
        end else if (seen.stop_equal && !seen.stop_first) begin
          onward = seen.stop_1;
          to.place = AT_VALUE;
          for (int k = 0; k < 4; k++)
          if (is_scalar[k]) begin
            found  = 1'b1;
            to.key = 2'(k);
          end
          if (!found || from.keys[to.key]) begin
            to.bad   = 1'b1;
            to.place = AT_QUERY_REST;
          end else to.keys[to.key] = 1'b1;
        end else if (seen.stop_first && b0 == " ") begin
          to.place = AT_VERSION;
        end else if (seen.stopped || full) begin
          to.bad = 1'b1;
          to.place = AT_QUERY_REST;
        end
      end

      seen.at[AT_VALUE]:
      if (any) begin
        moved = 1'b1;
        if (seen.digit0) begin
          onward = taking(lane, 5'd1);
          to.digits = 1'b1;
          scalar_put = 1'b1;
          if (longer[35:32] != '0) to.bad = 1'b1;
        end else begin
          if (!from.digits) to.bad = 1'b1;
          to.place = AT_QUERY_REST;
          if (b0 == "&") begin
            onward = taking(lane, 5'd1);
            to.place = AT_KEY;
          end else if (b0 != " ") to.bad = 1'b1;
        end
      end

      seen.at[AT_VERSION]:
      if (seen.nine) begin
        moved = 1'b1;
        if (!seen.version) broken = 1'b1;
        if (!seen.version && seen.version_other) other_version = 1'b1;
        to.http10 = seen.version_0;
        to.place  = AT_LINE_END;
        onward = taking(lane, 5'd9);
        if (seen.version_end) begin
          onward = taking(lane, 5'd11);
          to.place = AT_HEADER;
        end
      end else if (seen.any_line) broken = 1'b1;

      seen.at[AT_LINE_END]:
      if (seen.line0 && (seen.feed0 || two)) begin
        onward = b0 == 8'h0a ? taking(lane, 5'd1) : taking(lane, 5'd2);
        moved = 1'b1;
        to.place = AT_HEADER;
        if (!seen.feed0 && !seen.end0) broken = 1'b1;
      end else if (any && !seen.line0) broken = 1'b1;

      seen.at[AT_HEADER]: begin
        to.digits = 1'b0;
        to.number_over = 1'b0;
        if (seen.line0) begin
          if (seen.feed0 || two) begin
            onward = b0 == 8'h0a ? taking(lane, 5'd1) : taking(lane, 5'd2);
            moved = 1'b1;
            to.place = AT_BODY;
            if (!seen.feed0 && !seen.end0) broken = 1'b1;
          end
        end else if (seen.stopped) begin
          onward = seen.stop_1;
          moved = 1'b1;
          to.place = AT_HEADER_VALUE;
          if (!seen.stop_colon || seen.stop_first) broken = 1'b1;
          if (seen.content_length && seen.stop == 4'd14) begin
            to.place = AT_LENGTH;
            if (seen.content_length_space) onward = taking(lane, 5'd16);
            if (from.has_length) broken = 1'b1;
            to.has_length = 1'b1;
          end
          if (seen.host && seen.stop == 4'd4) begin
            if (from.has_host) broken = 1'b1;
            to.has_host = 1'b1;
            to.place = AT_HOST;
            if (seen.host_space) onward = seen.stop_2;
          end
          if (seen.connection && seen.stop == 4'd10) to.place = AT_CONNECTION;
          if (seen.expect_ && seen.stop == 4'd6) to.place = AT_EXPECT;
          if (seen.api_key && seen.stop == 4'd9) begin
            to.place = AT_API_KEY;
            to.authorized = 1'b0;
            to.matched = '0;
          end
          if (seen.request_id && seen.stop == 4'd12) begin
            to.place = AT_REQUEST_ID;
            to.id_bytes = '0;
          end
        end else if (full) begin
          onward = taking(lane, 5'd16);
          moved = 1'b1;
          to.place = seen.coding ? AT_CODING_NAME : AT_HEADER_REST;
        end
      end

      seen.at[AT_HEADER_REST]: begin
        onward = seen.all_at;
        moved = any;
        if (seen.stopped) begin
          onward = seen.stop_1;
          to.place = AT_HEADER_VALUE;
          if (!seen.stop_colon) broken = 1'b1;
        end
      end

      // A host is only checked for its syntax (RFC 9112 section 3.2). `digits`: it has characters,
      // and `number_over`: followed by a blank.
      seen.at[AT_HOST]: begin
        onward = seen.stopped ? seen.stop_at : seen.all_at;
        moved = any;
        if (any && !seen.stop_first) begin
          to.digits = 1'b1;
          if (from.number_over) broken = 1'b1;
        end
        if (seen.stopped) begin
          if (seen.stop_first && seen.space0) begin
            onward = taking(lane, 5'd1);
            to.number_over = from.digits;
          end else if (seen.stop_feed) begin
            onward = seen.stop_1;
            to.place = AT_HEADER;
          end else if (seen.stop_end) begin
            onward = seen.stop_2;
            to.place = AT_HEADER;
            if (seen.stop_end_end) begin
              onward = seen.stop_4;
              to.place = AT_BODY;
              to.digits = 1'b0;
              to.number_over = 1'b0;
            end
          end else if (seen.stop_first) to.place = AT_LINE_END;  // or a forbidden character
        end
      end

      // The rest of Transfer-Encoding. Only a single "chunked" is supported.
      seen.at[AT_CODING_NAME]:
      if (two) begin
        moved = 1'b1;
        to.place = AT_HEADER_REST;
        if (seen.coding_name) begin
          onward = taking(lane, 5'd2);
          to.place = AT_CODING;
        end
      end else if (seen.word_end0) broken = 1'b1;

      seen.at[AT_CODING]:
      if (seen.space0) begin
        onward = taking(lane, 5'd1);
        moved = 1'b1;
      end else if (seen.eight || seen.any_line) begin
        moved = 1'b1;
        to.place = AT_HEADER_VALUE;
        if (seen.chunked && !from.chunked) begin
          onward = taking(lane, 5'd7);
          to.chunked = 1'b1;
          to.place = AT_CODING_END;
        end else to.coded = 1'b1;
      end

      seen.at[AT_CODING_END]:
      if (seen.space0) begin
        onward = taking(lane, 5'd1);
        moved = 1'b1;
      end else if (any) begin
        moved = 1'b1;
        to.place = AT_HEADER_VALUE;
        if (!seen.line0) to.coded = 1'b1;
      end

      // Chunks (RFC 9112 section 7.1): lines must end in CR LF. Extensions may follow a size, but
      // not the blanks that some parsers skip and others do not.
      seen.at[AT_CHUNK_SIZE]:
      if (seen.hexadecimal0) begin
        onward = taking(lane, 5'd1);
        moved = 1'b1;
        to.digits = 1'b1;
        to.chunk = 24'(ChunkBits'({from.chunk[19:0], b0[6] ? b0[3:0] + 4'd9 : b0[3:0]}));
        if (from.chunk[ChunkBits-1-:4] != '0) to.too_long = 1'b1;
      end else if (any && (!seen.line0 || seen.feed0 || two)) begin
        moved = 1'b1;
        to.place = AT_CHUNK_REST;
        if (!from.digits || !(b0 == ";" || seen.end0)) broken = 1'b1;
      end

      seen.at[AT_CHUNK_REST]: begin
        onward = seen.stopped ? seen.stop_at : seen.all_at;
        moved = seen.stopped ? !seen.stop_first || seen.stop_end : any;
        if (!seen.stopped || seen.stop_end) begin
          if (seen.stopped) begin
            onward = seen.stop_2;
            to.place = from.chunk == '0 ? AT_TRAILER : AT_CHUNK;
            to.digits = 1'b0;
          end
        end else if (seen.stop_first && two) broken = 1'b1;
      end

      seen.at[AT_CHUNK_END]:
      if (two) begin
        moved = 1'b1;
        onward = taking(lane, 5'd2);
        if (!seen.end0) broken = 1'b1;
        to.place = AT_CHUNK_SIZE;
        to.chunk = '0;
        to.digits = 1'b0;
      end

      // A field's name, `digits` if it has characters, or the end of the head.
      seen.at[AT_TRAILER]:
      if (seen.end0 && !from.digits) begin
        moved = 1'b1;
        onward = taking(lane, 5'd2);
        to.place = AT_BODY;
        to.together = 1'b1;
      end else if (seen.stopped) begin
        if (!seen.stop_first || two || !seen.line0) begin
          moved = 1'b1;
          onward = seen.stop_1;
          to.place = AT_TRAILER_REST;
          to.digits = 1'b0;
          if (!seen.stop_colon || (seen.stop_first && !from.digits)) broken = 1'b1;
        end
      end else begin
        moved = any;
        onward = seen.all_at;
        to.digits = from.digits || any;
      end

      seen.at[AT_TRAILER_REST]: begin
        onward = seen.stopped ? seen.stop_at : seen.all_at;
        moved = seen.stopped ? !seen.stop_first || seen.stop_end : any;
        if (seen.stopped && seen.stop_end) begin
          onward = seen.stop_2;
          to.place = AT_TRAILER;
        end else if (seen.stop_first && two) broken = 1'b1;
      end

      seen.at[AT_HEADER_VALUE]: begin
        onward = seen.stopped ? seen.stop_at : seen.all_at;
        moved = any;
        if (seen.stopped) begin
          to.place = AT_LINE_END;
          // The common ends at once: of a line, of the head.
          if (seen.stop_feed) begin
            onward = seen.stop_1;
            to.place = AT_HEADER;
          end else if (seen.stop_end) begin
            onward = seen.stop_2;
            to.place = AT_HEADER;
            if (seen.stop_end_end) begin
              onward = seen.stop_4;
              to.place = AT_BODY;
              to.digits = 1'b0;  // the same for all ends of the head
              to.number_over = 1'b0;
            end
          end
        end
      end

      seen.at[AT_LENGTH]:
      if (any) begin
        moved = 1'b1;
        if (seen.digit0 && !from.number_over) begin
          to.digits = 1'b1;
          if (!from.too_long) to.length = 24'(value[LengthBits-1:0]);
          if (value[27:LengthBits] != '0 || (LengthBits > 21 && from.length[23:21] != '0)) to.too_long = 1'b1;
          // Two digits at a time, with the common end of a line, and of the head.
          onward = seen.digit1 ? taking(lane, 5'd2) : taking(lane, 5'd1);
          if (seen.digit1 ? seen.end_at[1] : seen.end_at[0]) begin
            onward = seen.digit1 ? taking(lane, 5'd4) : taking(lane, 5'd3);
            to.place = AT_HEADER;
            if (seen.digit1 ? seen.end_at[3] : seen.end_at[2]) begin
              onward = seen.digit1 ? taking(lane, 5'd6) : taking(lane, 5'd5);
              to.place = AT_BODY;
              to.digits = 1'b0;
            end
          end
        end else if (seen.space0) begin
          onward = taking(lane, 5'd1);
          to.number_over = from.digits;
        end else if (seen.line0 && from.digits) to.place = AT_LINE_END;
        else broken = 1'b1;
      end

      seen.at[AT_CONNECTION]: begin
        moved = seen.space0 || seen.comma0 || seen.stopped || full;
        if (seen.space0 || seen.comma0) onward = taking(lane, 5'd1);
        else if (seen.line0) begin
          to.place = AT_LINE_END;
        end else if (seen.stopped || full) begin
          to.place = AT_TOKEN_REST;
          if (seen.stop_first) broken = 1'b1;
          if (seen.close && seen.stopped && seen.stop == 4'd5) to.close = 1'b1;
          if (seen.keep_alive && seen.stopped && seen.stop == 4'd10) to.keep = 1'b1;
        end
      end

      seen.at[AT_TOKEN_REST]: begin
        onward = seen.stopped ? seen.stop_at : seen.all_at;
        moved = any;
        if (seen.stopped) begin
          to.place = AT_CONNECTION;
        end
      end

      // One character per step, whichever is wrong, so that the time reveals nothing.
      seen.at[AT_API_KEY]:
      if (any) begin
        moved = 1'b1;
        if (seen.line0) begin
          to.authorized = from.digits && from.matched <= 6'(KEY_BYTES) && seen.key_ends;
          to.place = AT_HEADER_VALUE;
        end else begin
          onward = taking(lane, 5'd1);
          if (seen.control0) broken = 1'b1;
          if (seen.space0) to.number_over = from.digits;
          else begin
            to.digits = 1'b1;
            to.matched = !from.number_over && from.matched < 6'(KEY_BYTES) && seen.key_same ? from.matched + 6'd1 : '1;
          end
        end
      end

      seen.at[AT_REQUEST_ID]:
      if (any) begin
        moved = 1'b1;
        if (seen.space0 && from.id_bytes == '0) onward = taking(lane, 5'd1);
        else if (seen.word_end0 || from.id_bytes == 6'(ID_BYTES)) begin
          // The end, or more characters than are stored.
          if (!seen.line0) to.id_bytes = '0;
          to.place = AT_HEADER_VALUE;
        end else begin
          onward = taking(lane, 5'd1);
          id_put = 1'b1;
          to.id_bytes = from.id_bytes + 6'd1;
        end
      end

      seen.at[AT_EXPECT]: begin
        moved = seen.space0 || seen.stopped || full;
        if (seen.space0) onward = taking(lane, 5'd1);
        else if (seen.stopped || full) begin
          to.place = AT_HEADER_VALUE;
          if (seen.continue_ && seen.stopped && seen.stop == 4'd12) begin
            onward = seen.stop_at;
            to.place = AT_EXPECT_END;
            to.expect_100 = !from.http10;  // HTTP/1.0 has no 100 (RFC 9110 section 10.1.1)
          end else if (!seen.line0) to.unexpected = !from.http10;
        end
      end

      seen.at[AT_EXPECT_END]:
      if (seen.space0) begin
        onward = taking(lane, 5'd1);
        moved = 1'b1;
      end else if (any) begin
        moved = 1'b1;
        to.place = AT_HEADER_VALUE;
        if (!seen.line0) to.unexpected = !from.http10;
      end

      default: ;
    endcase
  end

  assign too_big = from.head_bytes >= 14'(HEAD_BYTES);

endmodule
