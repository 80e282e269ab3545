// http_chunks for its bench, its structs signal by signal.
module http_chunks_top
  import http_pkg::*;
#(
    localparam int RX_RING_BITS = 12,
    localparam int BODY_BYTES = 3000,
    localparam int RxP = net_pkg::position_bits(RX_RING_BITS)
) (
    input  logic           clk,
    input  logic           rst,
    input  logic           parses,
    input  logic           reader_start,
    input  logic           at_chunk,     // where the parser is: in a chunk,
    input  logic           at_size,      // at a chunk's size,
    input  logic           at_discard,   // in a discarded body,
    input  logic           at_end,       // after the end of a stream, or in a head
    input  logic [23:0]    chunk,
    input  logic [23:0]    body_length,
    input  logic           too_long,
    input  logic [4:0]     count,
    input  logic [RxP-1:0] used,
    input  logic           used_known,
    input  logic           fill_ready,
    input  logic           chunks_wait,
    output logic           pass_all,
    output logic [3:0]     pass_take,
    output logic           seen_valid,
    output logic [3:0]     seen_take,
    output logic           passes, moves, plenty, in_chunks, chunk_moves, over,
    output logic           fill_start, fill_flush, fill_dirty, own_turn
);
  request_t c;
  pass_t pass, seen_pass;

  always_comb begin
    c = '0;
    c.place = at_chunk ? AT_CHUNK : at_size ? AT_CHUNK_SIZE : at_discard ? AT_DISCARD : at_end ? AT_END : AT_HEADER;
    {c.chunk, c.length, c.too_long} = {chunk, body_length, too_long};
  end
  assign {pass_all, pass_take} = {pass.all, pass.take};
  assign {seen_valid, seen_take} = {seen_pass.valid, seen_pass.take};

  http_chunks #(
      .RX_RING_BITS(RX_RING_BITS),
      .BODY_BYTES  (BODY_BYTES)
  ) u_chunks (
      .*
  );

  // Bytes are written only in the engine's turn.
  chunks_are_written_in_turn : assert property (@(posedge clk) disable iff (rst) chunk_moves || fill_flush |-> own_turn && fill_ready);
  // Only one of both is written in a cycle.
  one_write : assert property (@(posedge clk) disable iff (rst) !(chunk_moves && fill_flush));
endmodule
