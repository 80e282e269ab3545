// Types of the HTTP side.
package http_pkg;

  typedef enum logic [1:0] {
    METHOD_GET,
    METHOD_HEAD,
    METHOD_POST,
    METHOD_OTHER
  } method_t;

  typedef enum logic [2:0] {
    ROUTE_NONE,
    ROUTE_FUNCTION,
    ROUTE_SYSTEM,     // below /system/, name not seen yet
    ROUTE_HEALTH,
    ROUTE_METRICS,
    ROUTE_FUNCTIONS
  } route_t;

  // Where in a request the next byte is (RFC 9112).
  typedef enum logic [4:0] {
    AT_START,
    AT_METHOD,
    AT_PATH,
    AT_AUTHORITY,
    AT_NAME,
    AT_PATH_REST,
    AT_KEY,
    AT_VALUE,
    AT_QUERY_REST,
    AT_VERSION,
    AT_LINE_END,
    AT_HEADER,
    AT_HEADER_REST,
    AT_HEADER_VALUE,
    AT_LENGTH,
    AT_CONNECTION,
    AT_TOKEN_REST,
    AT_EXPECT,
    AT_BODY,        // the head is complete
    AT_DISCARD,     // a body that nobody wants
    AT_END          // everything that still comes is dropped
  } place_t;

  // All that is known of a request. Saved when the bytes that have come are used up.
  typedef struct packed {
    place_t       place;
    method_t      method;
    route_t       route;
    logic [3:0]   number;         // of the function
    logic         http10;
    logic         close, keep;    // Connection:
    logic         expect_100;
    logic         continued;      // 100 has been sent
    logic         chunked;        // any Transfer-Encoding
    logic         bad;            // a query that the function does not know
    logic         has_length;
    logic         has_host;
    logic         digits;         // at least one digit of a number has come
    logic         number_over;    // and the number has ended
    logic         too_long;
    logic [23:0]  length;         // of the body
    logic [13:0]  head_bytes;
    logic [1:0]   key;
    logic [3:0]   keys;           // seen
    logic [127:0] params;
  } request_t;

  typedef enum logic [4:0] {
    TEXT_OK,             // up to the length, which follows
    TEXT_END,
    TEXT_END_CLOSE,
    TEXT_END_KEEP,
    TEXT_CONTINUE,
    TEXT_HEALTH,
    TEXT_FUNCTIONS,
    TEXT_METRICS,
    TEXT_400,
    TEXT_404,
    TEXT_405_GET,
    TEXT_405_POST,
    TEXT_411,
    TEXT_413,
    TEXT_431,
    TEXT_500,
    TEXT_503,
    TEXT_COUNT
  } text_t;

  // Bytes of a kernel's answer before its body: TEXT_OK, eight digits and the end.
  function automatic logic [31:0] ok_head_bytes(input text_t ending);
    case (ending)
      TEXT_END_CLOSE: return 32'd64;
      TEXT_END_KEEP: return 32'd69;
      default: return 32'd45;
    endcase
  endfunction

endpackage
