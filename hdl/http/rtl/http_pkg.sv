// Types of the HTTP modules.
package http_pkg;

  typedef enum logic [2:0] {
    METHOD_GET,
    METHOD_HEAD,
    METHOD_POST,
    METHOD_OPTIONS,
    METHOD_OTHER,     // a standard method that no resource allows
    METHOD_UNKNOWN
  } method_t;

  typedef enum logic [2:0] {
    ROUTE_NONE,
    ROUTE_FUNCTION,
    ROUTE_SYSTEM,     // below /system/, name not parsed yet
    ROUTE_HEALTH,
    ROUTE_METRICS,
    ROUTE_FUNCTIONS,
    ROUTE_SERVER      // the target is "*"
  } route_t;

  // State of the parser: the position of the next byte in a request (RFC 9112). For states in which
  // a part ends at a byte of certain kinds (kind_t), the bits encode these kinds for http_look: a
  // blank, a line's end or a byte outside of words, if bit 4 is set; a mark, if bit 3 is set: a
  // COMMA without bit 4, and blanks if bit 2 is set; with bit 4, by bits 2 to 0, bytes outside of
  // tokens (x01), the end of a host (x00), of a name (010) or of a query's key (110). A line's end
  // and a control character end every part. Bit 5 only distinguishes states.
  // The other states use the remaining numbers.
  localparam int PLACES = 64;
  typedef enum logic [5:0] {
    AT_START        = 6'b0_00_000,  // of a request: the state after reset
    AT_CHUNK_REST   = 6'b0_00_001,  // lines
    AT_TRAILER_REST = 6'b0_00_010,
    AT_HEADER_VALUE = 6'b0_00_011,
    AT_PATH         = 6'b0_00_101,
    AT_VALUE        = 6'b0_00_110,
    AT_VERSION      = 6'b0_00_111,
    AT_EXPECT_END   = 6'b0_00_100,
    AT_TOKEN_REST   = 6'b0_01_000,  // ended by commas and blanks
    AT_CONNECTION   = 6'b0_01_100,
    AT_EXPECT       = 6'b1_01_100,
    AT_LINE_END     = 6'b0_01_001,
    AT_LENGTH       = 6'b0_01_010,
    AT_API_KEY      = 6'b0_01_011,
    AT_REQUEST_ID   = 6'b0_01_101,
    AT_CODING_NAME  = 6'b0_01_110,
    AT_CODING       = 6'b0_01_111,
    AT_ENCODED      = 6'b0_10_000,  // words: a path with percent-encoded characters, one at a time
    AT_PATH_REST    = 6'b0_10_001,
    AT_QUERY_REST   = 6'b0_10_010,
    AT_CODING_END   = 6'b0_10_011,
    AT_CHUNK_SIZE   = 6'b0_10_100,
    AT_CHUNK        = 6'b0_10_101,  // bytes of a chunk
    AT_CHUNK_END    = 6'b0_10_110,
    AT_HEADER       = 6'b0_11_001,  // words, up to a mark
    AT_HEADER_REST  = 6'b0_11_101,
    AT_METHOD       = 6'b1_11_001,
    AT_TRAILER      = 6'b1_11_101,
    AT_NAME         = 6'b0_11_010,
    AT_AUTHORITY    = 6'b0_11_100,
    AT_HOST         = 6'b1_11_100,
    AT_KEY          = 6'b0_11_110,
    AT_BODY         = 6'b0_11_000,  // the head is complete, and a chunked body assembled
    AT_DISCARD      = 6'b0_11_011,  // a discarded body
    AT_END          = 6'b0_11_111   // all further data is dropped
  } place_t;

  // States of http_engine, which serves one session at a time.
  typedef enum logic [4:0] {
    PICK,
    LOAD,
    PARSE,
    CHUNKS,    // a chunked body begins
    DECIDE,
    CALL,      // a call is requested
    LIST,      // the list of functions, first only for its length
    HEAD,
    LENGTH,
    TAG,       // the request's id
    TAG_ID,
    HEAD_END,
    BODY,
    NUMBER,
    DIGITS,
    FLUSH,
    COMMIT,
    SAVE
  } state_t;

  localparam int KEY_BYTES = 32;  // maximum of an API key
  localparam int ID_BYTES = 40;   // maximum of an X-Request-Id; longer ones are ignored

  // The kind of a byte for the parser, computed when it is read from memory. Kinds without bit 3
  // may be part of a target. Tokens (RFC 9110 section 5.6.2) consist of PLAIN, PERCENT and HASH;
  // hosts (RFC 3986) of kinds without bit 3, except SLASH and QUERY.
  typedef enum logic [3:0] {
    KIND_PLAIN   = 4'b0000,
    KIND_COLON   = 4'b0001,
    KIND_QUERY   = 4'b0010,
    KIND_COMMA   = 4'b0011,
    KIND_SLASH   = 4'b0100,  // and other bytes of neither tokens nor hosts
    KIND_BRACKET = 4'b0101,  // allowed in hosts, but not in tokens
    KIND_EQUAL   = 4'b0110,
    KIND_PERCENT = 4'b0111,
    KIND_CONTROL = 4'b1000,  // forbidden in heads (RFC 9110 section 5.5)
    KIND_OTHER   = 4'b1001,  // not ASCII
    KIND_SPACE   = 4'b1010,
    KIND_TAB     = 4'b1011,
    KIND_CR      = 4'b1100,
    KIND_LF      = 4'b1101,
    KIND_HASH    = 4'b1110   // allowed in tokens, but neither in targets nor in hosts
  } kind_t;

  function automatic kind_t kind_of(input logic [7:0] b);
    case (b)
      ":": kind_of = KIND_COLON;
      "?": kind_of = KIND_QUERY;
      ",": kind_of = KIND_COMMA;
      "/", 8'h22, "<", ">", "@", 8'h5c, "{", "}": kind_of = KIND_SLASH;
      "(", ")", ";", "[", "]": kind_of = KIND_BRACKET;
      "=": kind_of = KIND_EQUAL;
      "%": kind_of = KIND_PERCENT;
      "#", "^", "`", "|": kind_of = KIND_HASH;
      " ": kind_of = KIND_SPACE;
      8'h09: kind_of = KIND_TAB;
      8'h0d: kind_of = KIND_CR;
      8'h0a: kind_of = KIND_LF;
      default: kind_of = b[7] ? KIND_OTHER : b < 8'h21 || b == 8'h7f ? KIND_CONTROL : KIND_PLAIN;
    endcase
  endfunction

  // Fixed paths of requests; for functions, the name follows.
  localparam int PATH_BYTES = 17;
  localparam logic [3:0][8*PATH_BYTES-1:0] PATHS = {{"/metrics", 72'd0}, {"/healthz", 72'd0}, "/system/functions", {"/function/", 56'd0}};

  // The path that matches up to this character, if there is one.
  function automatic logic [7:0] path_at(input int path, input logic [4:0] at);
    path_at = '0;
    for (int i = 0; i < PATH_BYTES; i++) if (at == 5'(i)) path_at = PATHS[path][8*(PATH_BYTES-1-i)+:8];
  endfunction

  // The state of a request. Saved when the received bytes are used up.
  typedef struct packed {
    place_t       place;
    method_t      method;
    route_t       route;
    logic [5:0]   number;         // of the function
    logic         http10;
    logic         close, keep;    // Connection:
    logic         expect_100;
    logic         unexpected;     // Expect: something else
    logic         continued;      // 100 has been sent
    logic         chunked;
    logic         coded;          // with an unsupported transfer coding
    logic         together;       // the chunks are assembled: `length` is their sum
    logic [23:0]  chunk;          // remaining bytes of a chunk, or of a discarded body
    logic         bad;            // a query parameter that the function lacks
    logic         has_length;
    logic         has_host;
    logic         digits;         // at least one digit of a number was read
    logic         number_over;    // and the number has ended
    logic         too_long;
    logic [23:0]  length;         // of the body
    logic [13:0]  head_bytes;
    logic [1:0]   key;
    logic [3:0]   keys;           // read so far; in an encoded path, the candidates of PATHS
    logic         authorized;     // the API key was right
    logic [5:0]   matched;        // matched characters of it; all ones: mismatch
    logic [5:0]   id_bytes;       // of X-Request-Id, and before that, of an encoded path
  } request_t;

  // A request whose numbers have no more bits than those of the longest body.
  function automatic request_t bounded(input request_t r, input int length_bits);
    bounded = r;
    bounded.length = r.length & 24'((1 << length_bits) - 1);
    bounded.chunk = r.chunk & 24'((1 << (length_bits + 3) / 4 * 4) - 1);
  endfunction

  // The classification of the next bytes for a state of the parser, computed a cycle before the
  // decision (http_look). `stop` is the end of the current part, if `stopped`.
  typedef struct packed {
    logic [PLACES-1:0] at;                                 // the state, one-hot, because the
                                                           // longest paths begin here
    logic [127:0] bytes;
    logic [4:0]   count;
    logic         eight, nine, ten;                        // at least that many bytes are valid
    logic         digit0, digit1, hexadecimal0, space0, line0, feed0, comma0, word_end0, token0, control0, target_end0;  // of the first bytes, if valid
    logic         end0;                                    // the first two are CR LF,
    logic [3:0]   end_at;                                  // and those from byte 1 to 4 on
    logic         any_line, any_control, any_target_end;
    logic [3:0]   stop;
    // Positions from the first byte of the word that contains the next byte: of the stop, and one,
    // two, four bytes after it; after all visible bytes.
    logic [4:0]   stop_at, stop_1, stop_2, stop_4, all_at;
    logic         stopped, stop_first;                     // it is visible; it is the first byte
    logic         stop_space, stop_feed, stop_end, stop_colon, stop_query, stop_equal, stop_percent, stop_word_end;
    logic         stop_end_end;                            // CR LF CR LF is at the stop
    // Words that are completely visible. Words of a whole part match only if the part ends there.
    logic         post_function, get, post, head, options, other_method, server, function_, system, http, functions, healthz, metrics;
    logic         version, version_0, version_end;         // " HTTP/1." and a digit; that is 0; a
                                                           // line's end behind it
    logic         version_other;                           // " HTTP/", and two digits with a point
                                                           // between them
    logic         content_length, content_length_space, host, host_space, connection, expect_, api_key, request_id, coding, coding_name;
    logic         chunked, close, keep_alive, continue_;
    logic [3:0]   scalar_same;                             // each of the function's scalars: its
                                                           // name is at this position
    logic [3:0][3:0] scalar_stop;                          // if the part ends there
    logic         encoded, encoded_there, decodes;         // "%"; two more bytes are visible; they
                                                           // encode an unreserved character
    logic [7:0]   character;                               // the first byte, or the character
                                                           // encoded there
    // Of the request so far: its numbers after further digits.
    logic [27:0]  length_10, length_100;
    logic [6:0]   two_digits;
    logic [35:0]  scalar_10;
    logic         key_same, key_ends;                      // the first byte continues the API key;
                                                           // the key ends
  } seen_t;

  typedef enum logic [4:0] {
    TEXT_END,
    TEXT_END_CLOSE,
    TEXT_END_KEEP,
    TEXT_TAG,            // prefix of a request's id
    TEXT_CONTINUE,
    TEXT_HEALTH,
    TEXT_FUNCTIONS,
    TEXT_METRICS,
    TEXT_OPTIONS,
    TEXT_OPTIONS_GET,
    TEXT_OPTIONS_POST,
    TEXT_400,
    TEXT_401,
    TEXT_404,
    TEXT_405_GET,
    TEXT_405_POST,
    TEXT_413,
    TEXT_417,
    TEXT_431,
    TEXT_500_LONG,
    TEXT_501,
    TEXT_501_METHOD,
    TEXT_500_IMAGE,
    TEXT_500_KERNEL,
    TEXT_400_KERNEL,
    TEXT_503,
    TEXT_503_CHANGED,
    TEXT_502,
    TEXT_504,
    TEXT_505,
    TEXT_COUNT
  } text_t;

  // The reason for refusing a request with a complete head before it is routed; TEXT_END: none.
  // `pending`: its body is chunked, and not assembled yet. With a length and chunks, a parser that
  // uses only one of them would read another request (RFC 9112 section 6.3).
  // The connection ends after the first three.
  function automatic text_t refusal_of(input request_t r, input logic pending, input logic length_over);
    if (r.coded) return TEXT_501;
    if (r.too_long || length_over) return TEXT_413;
    if (pending && (r.http10 || r.has_length)) return TEXT_400;
    if (r.bad || (!r.http10 && !r.has_host)) return TEXT_400;
    if (r.unexpected) return TEXT_417;
    if (r.method == METHOD_UNKNOWN) return TEXT_501_METHOD;
    return TEXT_END;
  endfunction

  // Adds 0 to 8 to eight decimal digits.
  function automatic logic [31:0] add_decimal(input logic [31:0] to, input logic [3:0] n);
    logic carry, nines;  // into the second digit, and on from there
    // In four bits, for which synthesis builds no carry chain.
    carry = n > 4'd9 - to[3:0];
    nines = 1'b1;
    add_decimal[3:0] = to[3:0] + (carry ? n + 4'd6 : n);
    for (int i = 1; i < 8; i++) begin
      add_decimal[4*i+:4] = !(carry && nines) ? to[4*i+:4] : to[4*i+:4] == 4'd9 ? 4'd0 : to[4*i+:4] + 4'd1;
      nines = nines && to[4*i+:4] == 4'd9;
    end
  endfunction

  // Eight digits as text, the first one first, blanks for leading zeros.
  function automatic logic [63:0] decimal_text(input logic [31:0] v);
    logic seen;
    seen = 1'b0;
    for (int i = 0; i < 8; i++) begin
      seen = seen || v[28-4*i+:4] != '0 || i == 7;
      decimal_text[8*i+:8] = seen ? 8'h30 + 8'(v[28-4*i+:4]) : 8'h20;
    end
  endfunction

  // The decision about a request with a complete head: the next state, and for a reply, its parts.
  typedef struct packed {
    state_t next;
    logic   replies;      // with:
    text_t  text;
    text_t  ending;       // of its header
    logic   with_length;  // its length is counted first
    logic   with_body;
    logic   closing;      // the connection ends with it
    logic   listing;      // the reply is the list of functions
    logic   continues;    // the reply is 100
    logic   ends;         // the request can never be completed
  } decision_t;

  function automatic logic persists(input request_t r);
    return !r.close && (!r.http10 || r.keep);
  endfunction

  function automatic text_t ending_of(input request_t r);
    return !persists(r) ? TEXT_END_CLOSE : r.http10 ? TEXT_END_KEEP : TEXT_END;
  endfunction

  // Bytes of a chunk or of a discarded body that are skipped at once.
  typedef struct packed {
    logic       valid;
    logic       all;  // these are the last ones:
    logic [3:0] take;
  } pass_t;

endpackage
