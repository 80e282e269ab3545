// Bytes that the parser skips: of a chunk, of a discarded body, after the end of a stream. The bytes of chunks are
// written to the body that is assembled of them, in the same ring.
//
// Eight bytes move per cycle while enough remain, both visible and of their part. Otherwise a step takes two cycles,
// like the parser's.
//
// Parameters: RX_RING_BITS; BODY_BYTES, the longest body. Latency: two cycles.
module http_chunks
  import http_pkg::*;
#(
    parameter  int RX_RING_BITS = 21,
    parameter  int BODY_BYTES = 1048576,
    localparam int RxP = net_pkg::position_bits(RX_RING_BITS)
) (
    input  logic           clk,
    input  logic           rst,
    input  logic           parses,       // a request is being parsed,
    input  logic           reader_start, // from the next cycle on
    input  request_t       c,            // this one
    input  logic [4:0]     count,        // visible bytes
    input  logic [RxP-1:0] used,         // bytes of the ring used for the body,
    input  logic           used_known,   // unless some are not counted yet
    input  logic           fill_ready,   // the ring's memory accepts a word
    input  logic           chunks_wait,  // replies are written first
    output pass_t          pass,         // the visible bytes,
    output pass_t          seen_pass,    // and those of the previous cycle
    output logic           passes,       // the parser skips bytes,
    output logic           moves,        // in this cycle,
    output logic           plenty,       // eight of them
    output logic           in_chunks,    // the parser is in a chunked body,
    output logic           chunk_moves,  // bytes of a chunk move,
    output logic           over,         // the body is longer than allowed
    output logic           fill_start,   // the writer continues at the body's end,
    output logic           fill_flush,   // writes out the rest of its bytes,
    output logic           fill_dirty,   // if it has some
    output logic           own_turn      // bytes are written in this cycle
);

  // Maximum bytes of chunks in the ring.
  localparam int RawMost = (1 << RX_RING_BITS) - (1 << (RX_RING_BITS - 3));

  logic many, eight, raw_known;
  logic [RxP-1:0] raw;  // bytes of the ring used for it, a cycle ago, if known

  assign own_turn = (c.place == AT_CHUNK || fill_dirty) && !chunks_wait;
  assign passes = c.place inside {AT_CHUNK, AT_DISCARD, AT_END};
  assign plenty = many && count[4];
  assign pass = plenty ? '{valid: 1'b1, all: 1'b0, take: 4'd8} : seen_pass;
  assign moves = parses && !reader_start && passes && (c.place != AT_CHUNK || (fill_ready && own_turn)) && pass.valid && pass.take != '0;
  assign eight = |count[4:3];

  always_ff @(posedge clk) begin
    // Also valid with eight less.
    many <= parses && !reader_start && (c.place == AT_END || c.chunk[23:5] != '0);
    seen_pass.valid <= parses && !reader_start && passes && !moves;
    seen_pass.all <= c.place != AT_END && c.chunk[23:4] == '0 &&
        (c.chunk[3] ? eight && c.chunk[2:0] == '0 : eight || c.chunk[2:0] <= count[2:0]);
    seen_pass.take <= c.place != AT_END && c.chunk[23:3] == '0 && (eight || c.chunk[2:0] <= count[2:0]) ? {1'b0, c.chunk[2:0]} :
        eight ? 4'd8 : {1'b0, count[2:0]};
  end

  assign in_chunks = c.place inside {AT_CHUNK_SIZE, AT_CHUNK_REST, AT_CHUNK, AT_CHUNK_END, AT_TRAILER, AT_TRAILER_REST};
  // Bytes left in the writer are written out when no more follow at once, and before other work.
  assign fill_start = parses && !fill_dirty && (reader_start || c.place == AT_CHUNK_SIZE);
  assign fill_flush = parses && fill_dirty && !chunk_moves && fill_ready && own_turn;
  assign chunk_moves = moves && c.place == AT_CHUNK;

  always_ff @(posedge clk) begin
    raw <= used;
    raw_known <= parses && in_chunks && used_known;
    over <= in_chunks && (c.too_long || (raw_known && raw > RxP'(RawMost)) || 25'(c.length) + 25'(c.chunk) > 25'(BODY_BYTES));
    if (chunk_moves) fill_dirty <= 1'b1;
    else if (fill_flush) fill_dirty <= 1'b0;
    if (rst) fill_dirty <= 1'b0;
  end

`ifndef SYNTHESIS
  // No more bytes move than remain of the chunk or of the discarded body.
  moved_bytes_remain : assert property (@(posedge clk) disable iff (rst)
      moves && c.place != AT_END |-> 24'(pass.take) <= c.chunk);
  moved_bytes_are_visible : assert property (@(posedge clk) disable iff (rst)
      moves |-> {1'b0, pass.take} <= count);
  chunks_move_when_written : assert property (@(posedge clk) disable iff (rst)
      chunk_moves |-> fill_ready && own_turn);
  flushes_have_bytes : assert property (@(posedge clk) disable iff (rst)
      fill_flush |-> fill_dirty && !chunk_moves);
`endif

endmodule
