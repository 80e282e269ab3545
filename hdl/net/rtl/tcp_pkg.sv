// Types and constants of tcp_engine and its parts. Types whose widths depend on the rings are in tcp_types.svh.
package tcp_pkg;

  localparam int RTO_FIRST_MS = 1000;  // RFC 6298 section 2
  localparam int RTO_LEAST_MS = 200;
  localparam int RTO_LOST_SYN_MS = 3000;  // section 5.7
  localparam int RTO_MOST_MS = 60000;
  localparam int RETRIES = 7;
  localparam int CONNECT_RETRIES = 3;  // 15 s
  localparam int CONNECT_TRIES = 3;    // ports
  localparam int PROGRESS_BITS = 12;   // log2 of the bytes that count as progress

  typedef enum logic [2:0] {
    DEAD,
    OPEN,
    TIME_WAIT,
    SYN_SENT,
    SYN_RECEIVED
  } state_t;

  typedef enum logic [4:0] {
    IDLE,
    LOAD,      // the record and the other modules' state of the session
    COMPARE,   // differences between these and the segment
    STEP,      // the record after the event
    ENDS,      // timers, and the end of the session
    LENGTH,    // the amount of data to send
    FLAGS,
    SEND,      // sends the segment, writes the record back
    BEGIN,     // the peer's stream begins
    STRANGER,  // a segment without a session
    COOKIE,
    CHECK,
    PORT,      // chooses the port of a connection that the board opens
    NUMBER,    // its initial sequence number
    EVICT,     // evicts a session,
    WAIT_SLOT, // waits until the application releases it
    ADD,       // adds a session's key to the lookup
    BIRTH
  } phase_t;
  typedef enum logic [1:0] {
    EVENT_SEGMENT,
    EVENT_APP,
    EVENT_TICK
  } event_t;

  // What an event was found to be, beside the record after it.
  typedef struct packed {
    logic ack;         // send an acknowledgment now
    logic again;       // retransmit the oldest segment
    logic probe;       // send one byte into a closed window
    logic die;         // the session ends,
    logic reset;       // with a reset
    logic wake;        // the application may wait for the change
    logic progress;    // new data was acknowledged,
    logic sampled;     // among it the timed segment,
    logic whole;       // or all data in flight
    logic syn;         // send the own SYN
    logic begins;      // the peer's stream has begun
    logic establishes; // a connection that the board opens is open
  } effect_t;

  // The peer's addresses, constant for the lifetime of a session.
  typedef struct packed {
    logic [47:0] mac;
    logic [31:0] ip;
    logic [15:0] port, own_port;
  } peer_t;

  // The state reported by tcp_rx.
  typedef struct packed {
    logic        ended;
    logic [31:0] next;
  } stream_t;

  // Idle time is counted in units of 64 ms.
  function automatic logic [9:0] slow(input int ms);
    return 10'((ms + 63) / 64);
  endfunction

  function automatic logic [22:0] unscaled(input logic [15:0] window, input logic [1:0] scaling);
    case (scaling)
      2'd3: return {window, 7'd0};
      2'd2: return {3'd0, window, 4'd0};
      default: return {7'd0, window};
    endcase
  endfunction

  function automatic logic [1:0] scaling_of(input logic scaled, input logic [3:0] shift);
    if (!scaled) return 2'd0;
    return shift >= 4'd7 ? 2'd3 : shift >= 4'd4 ? 2'd2 : 2'd1;
  endfunction

  // The initial window, unscaled, of at most a number of bytes.
  function automatic logic [15:0] first_offer(input int window);
    return window > 32'h0000_ffff ? 16'hffff : 16'(window);
  endfunction

endpackage
