// Types and constants of the network modules. Numbers are in host order: the first byte on the wire
// is the most significant byte of a field. A beat's byte 0 is data[7:0].
package net_pkg;

  typedef struct packed {
    logic [63:0] data;
    logic [7:0]  keep;  // contiguous from bit 0; full on every beat except the last
    logic        last;
  } beat_t;

  localparam logic [15:0] ETHERTYPE_IPV4 = 16'h0800;  // IEEE 802 numbers, IANA
  localparam logic [15:0] ETHERTYPE_ARP = 16'h0806;
  localparam logic [7:0] PROTOCOL_ICMP = 8'd1;  // IANA protocol numbers
  localparam logic [7:0] PROTOCOL_TCP = 8'd6;
  localparam logic [7:0] PROTOCOL_UDP = 8'd17;

  // TCP flags, RFC 9293 section 3.1.
  localparam int FIN = 0;
  localparam int SYN = 1;
  localparam int RST = 2;
  localparam int PSH = 3;
  localparam int ACK = 4;

  // The fields of a received frame that other modules use.
  typedef struct packed {
    logic [47:0] mac;       // the sender's
    logic [31:0] ip;        // the sender's
    logic [15:0] port;      // the sender's
    logic [15:0] own_port;
    logic [31:0] seq;
    logic [31:0] ack;
    logic [15:0] window;
    logic [7:0]  flags;
    logic [15:0] length;    // of the TCP or UDP payload, in bytes
    logic [15:0] mss;       // the MSS option, otherwise 0
    logic        scaled;    // the window scale option is present
    logic [3:0]  scale;     // its value (RFC 7323), at most 14
  } head_t;

  typedef enum logic [2:0] {
    FRAME_OTHER,
    FRAME_ARP,        // a request
    FRAME_ARP_REPLY,
    FRAME_ICMP,
    FRAME_TCP,
    FRAME_UDP
  } frame_kind_t;

  // Result of an attempt to open a connection.
  typedef enum logic [2:0] {
    CONNECT_OK,
    CONNECT_REFUSED,
    CONNECT_TIMED_OUT,
    CONNECT_UNREACHABLE,  // no reply to ARP for the address
    CONNECT_FULL          // there is no free session
  } connect_result_t;

  // A UDP datagram: the address of the other end, and the length of its payload.
  typedef struct packed {
    logic [47:0] mac;
    logic [31:0] ip;
    logic [15:0] port;
    logic [15:0] own_port;
    logic [15:0] length;
  } datagram_t;

  // One segment for tcp_tx to send.
  typedef struct packed {
    logic [47:0] mac;
    logic [31:0] ip;
    logic [15:0] port;      // the peer's
    logic [15:0] own_port;
    logic [31:0] seq;
    logic [31:0] ack;
    logic [15:0] window;
    logic [7:0]  flags;
    logic        with_mss;  // carries the MSS option (a SYN)
    logic        with_scale;  // carries the window scale option; only with with_mss
    logic [15:0] length;    // of the payload, which starts at `seq` in the session's ring
  } segment_t;

  // ---- notifications about sessions, between net_stack and its applications ----

  typedef logic [9:0] session_t;  // at most 1,024 sessions

  // A session is opened, with its first positions.
  typedef struct packed {
    logic        valid;
    logic        active;   // by the board
    session_t    session;
    logic [31:0] next;     // the peer's first byte
    logic [31:0] una;      // our first byte
  } opened_t;

  // The peer's stream has reached this position.
  typedef struct packed {
    logic        valid;
    session_t    session;
    logic [31:0] next;
    logic        ended;
    logic        arrived;  // by received data, not by opening
  } received_t;

  // Other changes of a session.
  typedef struct packed {
    logic        valid;
    session_t    session;
    logic [31:0] una;      // acknowledged by the peer
    logic        dead;     // the session has ended: release it
    logic        shut;     // no more data can be sent
    logic        wake;     // the application may wait for this change
  } session_change_t;

  // Progress of the application in a session.
  typedef struct packed {
    logic        valid;
    session_t    session;
    logic [31:0] read_to;
    logic [31:0] written_to;
    logic        finish;   // no more data will be written
  } progress_t;

  // The application no longer uses a session that has ended.
  typedef struct packed {
    logic        valid;
    session_t    session;
  } release_t;

  // A read and a write of a ring's memory, in words of 8 bytes; memories use the bits that they have.
  // A read's note comes back with its word. Words come in the order of the reads, and are
  // taken at once.
  typedef struct packed {
    logic [7:0] reader;
    logic [3:0] detail;
  } ring_note_t;

  typedef struct packed {
    logic        valid;
    logic [31:0] address;
    ring_note_t  note;
  } ring_read_t;

  typedef struct packed {
    logic        valid;
    ring_note_t  note;
    logic [63:0] data;
  } ring_word_t;

  typedef struct packed {
    logic        valid;
    logic [31:0] address;
    logic [63:0] data;
    logic [7:0]  keep;
  } ring_write_t;

  // Words that net_stack still writes after its `rx_write_ready` falls: those of the beats in
  // net_parse and tcp_rx.
  localparam int RX_WRITES_LATE = 24;

  // The counters of net_stack.
  typedef struct packed {
    logic [31:0] opened;
    logic [31:0] retransmitted;
    logic [31:0] reset;
    logic [10:0] open;     // now
  } net_counts_t;

  // A client that opens connections, and shares stack and rings with others: from the client, and to it.
  typedef struct packed {
    logic        connect;   // with the client's own address and port, until `connect_done`
    session_t    session;   // its session,
    logic        working;   // which waits for the peer, and is not idle
    progress_t   progress;  // until `progress_ready`
    release_t    released;  // until `release_ready`
    logic        rx_wants;  // a read in the next cycle, if `rx_may`
    ring_read_t  rx_read;
    ring_write_t tx_write;  // only with `tx_may`
  } client_t;

  typedef struct packed {
    logic            connect_done;
    connect_result_t connect_result;
    opened_t         opened;      // by this client
    received_t       received;    // of any session
    session_change_t change;
    logic            progress_ready;
    logic            release_ready;
    logic            rx_may;
    ring_word_t      rx_word;  // of its own reads
    logic            tx_may;
  } client_reply_t;

  function automatic logic [15:0] swap16(input logic [15:0] v);
    return {v[7:0], v[15:8]};
  endfunction

  function automatic logic [31:0] swap32(input logic [31:0] v);
    return {v[7:0], v[15:8], v[23:16], v[31:24]};
  endfunction

  function automatic logic [47:0] swap48(input logic [47:0] v);
    return {swap16(v[15:0]), swap32(v[47:16])};
  endfunction

  // Big-endian 16-bit word `i` of a beat.
  function automatic logic [15:0] word(input logic [63:0] data, input int i);
    return {data[16*i+:8], data[16*i+8+:8]};
  endfunction

  // A beat rotated so that byte `by` is byte 0: in three steps,
  // which is less logic than a choice of eight for each byte.
  function automatic logic [63:0] turned_by(input logic [63:0] data, input logic [2:0] by);
    turned_by = by[0] ? {data[55:0], data[63:56]} : data;
    turned_by = by[1] ? {turned_by[47:0], turned_by[63:48]} : turned_by;
    turned_by = by[2] ? {turned_by[31:0], turned_by[63:32]} : turned_by;
  endfunction

  // The bytes of a beat selected by `keep`.
  function automatic logic [63:0] masked(input logic [63:0] data, input logic [7:0] keep);
    for (int i = 0; i < 8; i++) masked[8*i+:8] = keep[i] ? data[8*i+:8] : 8'd0;
  endfunction

  // The four words of a beat, added for the Internet checksum (RFC 1071).
  function automatic logic [17:0] sum_beat(input logic [63:0] data);
    return (18'(word(data, 0)) + 18'(word(data, 1))) + (18'(word(data, 2)) + 18'(word(data, 3)));
  endfunction

  function automatic logic [15:0] fold(input logic [31:0] sum);
    logic [16:0] once;
    once = 17'(sum[15:0]) + 17'(sum[31:16]);
    return once[15:0] + 16'(once[16]);
  endfunction

  // Positions near a stream's end are within this number of bits: the reach of a window,
  // scaled or not.
  function automatic int near_bits(input int ring_bits);
    return ring_bits > 16 ? ring_bits : 16;
  endfunction

  // Width of the stream positions that TCP and the application exchange. The distance between
  // received data and the read position is bounded by the ring, the reach of a window (tcp_rx),
  // and a frame.
  function automatic int position_bits(input int ring_bits);
    return near_bits(ring_bits) + 2;
  endfunction

  // Sequence numbers wrap: a before b (RFC 9293 section 3.4).
  function automatic logic precedes(input logic [31:0] a, input logic [31:0] b);
    logic [31:0] difference;
    difference = a - b;
    return difference[31];
  endfunction

endpackage
