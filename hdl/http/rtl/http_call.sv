// One call of a function: moves a request's body from its session's receive ring into a region, and
// the reply into the transmit ring. There is one instance for each region,
// so that regions run in parallel.
//
// The reply's head is written first, with blanks for the length, while the body's first bytes are
// read from memory; the length is filled in at the end. The reply counts as written only at
// `taken`. The unit that aligns the reply's beats to words of the ring (http_writer) is shared,
// like the ring's port.
//
// Parameters: SESSION_BITS; the rings' bits; MEMORY_LATENCY as in http_ahead.
// Latency: 3 cycles from `start` to the body's first beat if it was prefetched, otherwise 5 and the
// memory's; 4 from the reply's last beat to `complete`. Throughput: 8 bytes per cycle in each
// direction, if the rings' ports are free.
module http_call
  import http_pkg::*;
#(
    parameter int SESSION_BITS = 4,
    parameter int RX_RING_BITS = 21,
    parameter int TX_RING_BITS = 21,
    parameter int MEMORY_LATENCY = 4,
    parameter int RX_POSITION_BITS = RX_RING_BITS + 2,
    parameter int TX_POSITION_BITS = TX_RING_BITS + 2
) (
`include "http_call_ports.svh"
    // The reply's beats (http_writer).
    output logic                                   tx_wants,
    input  logic                                   tx_may,
    output logic                                   tx_valid,
    output logic                                   tx_flush,
    output logic [63:0]                            tx_data,
    output logic [3:0]                             tx_length,
    output logic                                   tx_start,
    output logic [TX_POSITION_BITS-1:0]            tx_from,
    output logic [SESSION_BITS-1:0]                tx_session,
    input  logic [TX_POSITION_BITS-1:0]            tx_position,
`include "http_call_region_ports.svh"
);

  logic own_clk;  // gated while no state changes

  typedef enum logic [2:0] {
    Idle,
    Head,
    Body,
    Rewind,   // writes out the last bytes, and moves the writer back to the length
    Length,
    Flush,
    Over
  } state_t;

  // The head as text, its first character on top, with blanks in place of the length. The last
  // blank begins the next part, so that the first part consists of full words.
  localparam logic [15:0] Line = 16'h0d0a;
  localparam logic [40*8-1:0] Front = {"HTTP/1.1 200 OK", Line, "Content-Length: ", {7{8'h20}}};
  localparam logic [17*8-1:0] Tag = {8'h20, Line, "X-Request-Id: "};
  localparam int LengthAt = 33;
  localparam logic [4*8-1:0] End = {Line, Line};
  localparam logic [23*8-1:0] EndClose = {Line, "Connection: close", Line, Line};
  localparam logic [28*8-1:0] EndKeep = {Line, "Connection: keep-alive", Line, Line};
  localparam int RoomBits = TX_RING_BITS < 23 ? TX_RING_BITS + 1 : 24;
  localparam int BodyBits = RX_RING_BITS < 23 ? RX_RING_BITS + 1 : 24;
  localparam int PartBytes = 40;
  localparam int HeadBytes = 40 + 17 + ID_BYTES + 28 + 3;  // at most

  state_t state;
  logic [SESSION_BITS-1:0] s;
  logic [RX_POSITION_BITS-1:0] end_at;
  logic [TX_POSITION_BITS-1:0] from;
  logic [31:0] digits;
  logic [RoomBits-1:0] limit, given;
  logic [BodyBits-1:0] left;  // bytes of the body that the kernel has not received
  logic [3:0] in_length;   // of the kernel's next beat
  logic in_last;
  logic feeding, no_room;
  text_t tail;

  typedef enum logic [1:0] {
    PartFront,
    PartTag,
    PartId,
    PartEnd
  } part_t;

  // The head's next word is selected while the previous one is written.
  typedef struct packed {
    logic [63:0] data;
    logic [3:0]  length;
    logic        part_over, head_over;
  } word_t;

  part_t part, next_part;
  logic [2:0] word, next_word;
  logic [5:0] tag_bytes;
  logic has_tag;  // the id has bytes
  word_t shown;

  function automatic word_t word_of(input part_t which, input logic [2:0] at, input text_t tail_text, input logic with_tag,
                                    input logic [5:0] with_tag_bytes);
    logic [8*PartBytes-1:0] text;
    logic [5:0] bytes, rest;
    case (tail_text)
      TEXT_END_CLOSE: begin
        text = {8'h20, EndClose, 128'd0};
        bytes = 6'd24;
      end
      TEXT_END_KEEP: begin
        text = {8'h20, EndKeep, 88'd0};
        bytes = 6'd29;
      end
      default: begin
        text = {8'h20, End, 280'd0};
        bytes = 6'd5;
      end
    endcase
    // The blank was written before the id.
    if (with_tag) begin
      text = text << 8;
      bytes = bytes - 6'd1;
    end
    if (which == PartFront) begin
      text = Front;
      bytes = 6'd40;
    end
    if (which == PartTag) begin
      text = {Tag, 184'd0};
      bytes = 6'd17;
    end
    if (which == PartId) bytes = with_tag_bytes;
    rest = bytes - {at, 3'b000};
    word_of.length = rest > 6'd8 ? 4'd8 : rest[3:0];
    word_of.part_over = rest <= 6'd8;
    word_of.head_over = which == PartEnd && rest <= 6'd8;
    word_of.data = '0;
    for (int w = 0; w < PartBytes / 8; w++)
    if (at == 3'(w)) for (int i = 0; i < 8; i++) word_of.data[8*i+:8] = text[8*(PartBytes-1-8*w-i)+:8];
  endfunction

  assign next_word = shown.part_over ? '0 : word + 1'b1;
  assign next_part = !shown.part_over ? part : part == PartTag ? PartId :
      part == PartFront && has_tag ? PartTag : PartEnd;

  // The id's words are read from memory two cycles before they are written, into the output
  // register: `id_data` is the next word, if there is one.
  logic moves_on;
  assign moves_on = state == Head && tx_may;
  assign id_read = state == Head;
  assign id_session = s;
  assign id_word = part == PartId ? word + 3'd1 + 3'(moves_on) : 3'(moves_on && next_part == PartId);

  // ---- the body ----
  logic [63:0] bytes;
  logic [4:0] count;
  logic [3:0] out_length, counted;
  logic enough, reads;
  logic unused_drained;
  http_pkg::kind_t [15:0] unused_kinds;
  logic [15:0] unused_there;
  logic [2:0] lane;

  http_ahead #(
      .SESSION_BITS  (SESSION_BITS),
      .RING_BITS     (RX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .SHOWN         (8),
      .WHOLE         (1)
  ) u_reader (
      .clk(own_clk),
      .rst,
      .start,
      .session,
      .from         (32'(body_at)),
      .up_to        (32'(end_at)),
      .pause        (1'b0),
      .ahead,
      .ahead_session,
      .ahead_from   (32'(ahead_body_at)),
      .ahead_up_to  (32'(ahead_body_at) + 32'(ahead_body_bytes)),
      .drop         (1'b0),
      .drop_session ('0),
      .wants        (rx_wants),
      .may          (rx_may),
      .read         (rx_read),
      .read_address (rx_read_address),
      .read_note    (rx_read_note),
      .word_valid   (rx_word_valid),
      .word_note    (rx_word_note),
      .word_data    (rx_word_data),
      .bytes,
      .kinds        (unused_kinds),
      .there        (unused_there),
      .count,
      .drained      (unused_drained),
      .lane,
      .onward       ({1'b0, k_valid && k_ready, lane}),  // no bytes are consumed after the last
                                                         // beat
      .busy         (reads)
  );

  always_comb begin
    // At least the bytes of the beat, which are eight or fewer.
    enough = 1'b1;
    for (int i = 0; i < 3; i++) if (count[i] != in_length[i]) enough = count[i];
    if (in_length[3] || count[3]) enough = count[3];
  end
  assign k_valid = feeding && enough;
  assign k_data = bytes;
  assign k_keep = 8'((9'd1 << in_length) - 9'd1);
  assign k_last = in_last;

  // ---- the reply ----
  logic rewound;
  // In the next cycle.
  always_ff @(posedge own_clk) begin
    tx_start <= start || (state == Rewind && tx_may);
    rewound  <= state == Rewind && tx_may && !rst;
  end
  assign tx_session = s;
  assign tx_from = from + (rewound ? TX_POSITION_BITS'(LengthAt) : '0);

  assign r_ready = state == Body && tx_may;
  // Not in the cycle in which its last part is written: this is on a critical path,
  // and the write grant is late.
  assign complete = state == Over;
  assign over = no_room;

  always_comb begin
    out_length = '0;
    for (int i = 0; i < 8; i++) if (r_keep[i]) out_length = 4'(i + 1);
    tx_wants = state inside {Head, Rewind, Length, Flush};
    tx_valid = 1'b0;
    tx_data = r_data;
    tx_length = out_length;
    tx_flush = state inside {Rewind, Flush} && tx_may;
    case (state)
      Head: begin
        tx_valid = tx_may;
        tx_data = shown.data;
        tx_length = shown.length;
      end
      Body: begin
        tx_wants = r_valid;
        tx_valid = r_valid && r_ready && !no_room;
      end
      Length: begin
        tx_valid = tx_may;
        tx_data = decimal_text(digits);
        tx_length = 4'd8;
      end
      default: ;
    endcase
  end

  always_ff @(posedge own_clk) begin
    if (rst) begin
      state <= Idle;
      feeding <= 1'b0;
    end else begin
      if (start) feeding <= 1'b1;
      else if (k_valid && k_ready && k_last) feeding <= 1'b0;
      case (state)
        Idle: if (start) state <= Head;
        Head: if (tx_may && shown.head_over) state <= Body;
        Body: if (r_valid && r_ready && r_last) state <= Rewind;
        Rewind: if (tx_may) state <= Length;
        Length: if (tx_may) state <= Flush;
        Flush: if (tx_may) state <= Over;
        default: if (taken) state <= Idle;
      endcase
    end
  end

  always_ff @(posedge own_clk) begin
    // Two cycles pass from the last beat to the use of the digits.
    counted <= r_valid && r_ready ? out_length : '0;
    if (start) begin
      s <= session;
      end_at <= body_at + RX_POSITION_BITS'(body_bytes);
      left <= BodyBits'(body_bytes);
      in_length <= body_bytes >= 24'd8 ? 4'd8 : body_bytes[3:0];
      in_last <= body_bytes <= 24'd8;
      from <= answer_at;
      limit <= RoomBits'(room) - RoomBits'(HeadBytes + 16);
      tail <= ending;
      tag_bytes <= id_bytes;
      has_tag <= id_bytes != '0;
      part <= PartFront;
      word <= '0;
      shown <= word_of(PartFront, '0, TEXT_END, 1'b0, '0);
      given <= '0;
      digits <= '0;
      no_room <= room < 24'(HeadBytes + 16);
    end else begin
      digits <= add_decimal(digits, counted);
      if (k_valid && k_ready) begin
        // Eight bytes less, and the rest for the beat after this one.
        left <= left - BodyBits'(8);
        in_length <= left >= BodyBits'(16) ? 4'd8 : {1'b0, left[2:0]};
        in_last <= left <= BodyBits'(16);
      end
      if (state == Head && tx_may) begin
        word  <= next_word;
        part  <= next_part;
        shown <= word_of(next_part, next_word, tail, has_tag, tag_bytes);
        if (next_part == PartId) shown.data <= id_data;
      end
      if (r_valid && r_ready) begin
        given  <= given + RoomBits'(out_length);
        if (given > limit) no_room <= 1'b1;
      end
      if (rewound) answer_to <= tx_position;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || start || ahead || state != Idle || feeding || reads || tx_start),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  starts_when_idle : assert property (@(posedge clk) disable iff (rst) start |-> state == Idle);
  takes_complete_calls : assert property (@(posedge clk) disable iff (rst) taken |-> complete);
  body_stays : assert property (@(posedge clk) disable iff (rst)
      k_valid && !k_ready |=> k_valid && $stable({k_data, k_keep, k_last}));
  writes_are_granted : assert property (@(posedge clk) disable iff (rst)
      tx_valid || tx_flush |-> tx_may);
  head_is_complete : assert property (@(posedge clk) disable iff (rst) r_ready |-> state == Body);
  // The body ends with its last byte.
  last_beat_has_the_rest : assert property (@(posedge clk) disable iff (rst)
      k_valid && k_last |-> 32'(in_length) == 32'(left));
`endif

endmodule
