// Types shared by the message modules: beats, commands of kernels, and outcomes.
package msg_pkg;

  // A beat of a packet. The first one is the envelope,
  // whose SIZE is the number of bytes that follow.
  typedef struct packed {
    logic        last;
    logic [63:0] data;
  } beat_t;

  // A message's tag occupies two fields of the envelope.
  typedef logic [11:0] tag_t;

  function automatic tag_t tag_of(input hum_envelope_pkg::hum_envelope_t head);
    return {head.tag_high, head.tag};
  endfunction

  // Send `size` bytes. `eager`: without waiting for CLEAR.
  typedef struct packed {
    logic [7:0]  dest;
    logic        collective;
    tag_t        tag;
    logic [3:0]  dtype;
    logic [23:0] size;
    logic        eager;
  } send_t;

  // Receive a message of at most `room` bytes. `once`: only if it has begun to arrive; otherwise
  // the outcome is FaultNothing.
  typedef struct packed {
    logic        once;
    logic        any_source;
    logic [7:0]  source;
    logic        collective;
    logic        any_tag;
    tag_t        tag;
    logic [3:0]  dtype;
    logic [23:0] room;
  } receive_t;

  localparam logic [7:0] FaultNothing = 8'd255;

  // The outcome of a receive; `fault` is one of the envelope's, or FaultNothing.
  typedef struct packed {
    logic [7:0]  fault;
    logic [7:0]  source;
    tag_t        tag;
    logic [23:0] size;
  } outcome_t;

  localparam logic [23:0] PacketBytes = 24'(hum_envelope_pkg::LimitPacketBytes);

  // The first bytes of a session with a board: HUMFAB, from the lowest byte on, and the version; a
  // station's number follows.
  localparam logic [55:0] Greeting = 56'h01_4241464d5548;

  // Whether SIZE bytes follow the envelope.
  function automatic logic has_payload(input logic [3:0] kind);
    return kind == hum_envelope_pkg::PacketData || kind == hum_envelope_pkg::PacketEager || kind == hum_envelope_pkg::PacketStream;
  endfunction

  // Beats that hold this number of bytes of a packet.
  function automatic logic [7:0] beats(input logic [10:0] bytes);
    return 8'((12'(bytes) + 12'd7) >> 3);
  endfunction

endpackage
