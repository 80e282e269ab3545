// SHA-256 of the body (FIPS 180-4): 32 bytes, equal to apps/functions/sha256 for one message.
//
// Scalars: none. Parameters: W, stream width in bits (32 or 64).
// Latency: 69 or 70 cycles after the last input beat, or 65 more if the padding needs a block of
// its own. Throughput: 64 bytes in 65 cycles.
module kernel_sha256 #(
    parameter int W = 64
) (
`include "stream_kernel_ports.svh"
);

  localparam int Words = W / 32;

  if (W != 32 && W != 64) $error("W must be 32 or 64");

  logic taking, unused_params;

  assign unused_params = &{1'b0, params};

  kernel_control u_control (
      .s_end (s_valid && s_ready && s_last),
      .m_end (m_valid && m_ready && m_last),
      .*
  );

  // One beat is held and delivered in words of four bytes, the first byte on top.

  logic         beat_full, beat_last, word_taken, beat_done;
  logic [W-1:0] beat;
  logic [W/8-1:0] keep;
  logic [1:0]   words_left;   // of the beat, minus one
  logic [2:0]   bytes;        // of the word
  logic [31:0]  text;         // the word, the bit after its end set, and zeros

  assign s_ready = taking && (!beat_full || beat_done);

  always_comb begin
    bytes = '0;
    text  = 32'h80000000;
    for (int i = 0; i < 4; i++) begin
      if (keep[i]) begin
        bytes = 3'(i + 1);
        text[8*(3-i)+:8] = beat[8*i+:8];
        if (i < 3) text[8*(2-i)+:8] = 8'h80;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (rst || start) beat_full <= 1'b0;
    else if (s_valid && s_ready) beat_full <= 1'b1;
    else if (beat_done) beat_full <= 1'b0;
  end

  always_ff @(posedge clk) begin
    if (s_valid && s_ready) begin
      beat       <= s_data;
      keep       <= s_keep;
      beat_last  <= s_last;
      words_left <= 2'(Words - 1);
    end else if (word_taken) begin
      beat       <= beat >> 32;
      keep       <= keep >> 4;
      words_left <= words_left - 1'b1;
    end
  end

  // The padding: a set bit, zeros up to word 14 of a block, and the length in bits.

  typedef enum logic [2:0] {
    Text,    // words of the body
    Mark,    // the body ended with a full word: the bit is in a separate word
    Zeros,
    Length,  // its lower half
    Hash     // wait for the digest
  } state_t;

  state_t      state;
  logic [60:0] count;
  logic [3:0]  position;
  logic        word_valid, word_ready, word_go, digest_valid;
  logic [31:0] word;
  logic [255:0] digest, digest_bytes;

  always_comb begin
    word_valid = 1'b1;
    word       = '0;
    unique case (state)
      Text: begin
        word_valid = beat_full;
        word       = text;
      end
      Mark:    word = 32'h80000000;
      Zeros:   if (position == 4'd14) word = count[60:29];
      Length:  word = {count[28:0], 3'b000};
      default: word_valid = 1'b0;
    endcase
  end

  assign word_go    = word_valid && word_ready;
  assign word_taken = word_go && state == Text;
  assign beat_done  = word_taken && (words_left == '0 || bytes < 3'd4);

  always_ff @(posedge clk) begin
    if (rst || start) begin
      state <= Text;
      count <= '0;
    end else begin
      if (word_taken) begin
        count <= count + 61'(bytes);
        if (beat_last && bytes < 3'd4) state <= Zeros;
        else if (beat_last && words_left == '0) state <= Mark;
      end
      if (word_go && state == Mark) state <= Zeros;
      if (word_go && state == Zeros && position == 4'd14) state <= Length;
      if (word_go && state == Length) state <= Hash;
    end
  end

  sha256_rounds u_rounds (
      .clk,
      .rst,
      .start,
      .word_valid,
      .word_ready,
      .word,
      .last(state == Length),
      .position,
      .digest_valid,
      .digest
  );

  always_comb begin
    for (int i = 0; i < 32; i++) digest_bytes[8*i+:8] = digest[255-8*i-:8];
  end

  axis_emit #(
      .W    (W),
      .BYTES(32)
  ) u_emit (
      .clk,
      .rst,
      .load (digest_valid),
      .value(digest_bytes),
      .count(6'd32),
      .m_valid,
      .m_ready,
      .m_data,
      .m_keep,
      .m_last
  );

`ifndef SYNTHESIS
  length_is_last_word : assert property (@(posedge clk) disable iff (rst)
      state == Length |-> position == 4'd15);
  digest_follows_length : assert property (@(posedge clk) disable iff (rst)
      digest_valid |-> state == Hash);
  words_have_bytes : assert property (@(posedge clk) disable iff (rst)
      beat_full && !beat_last |-> bytes == 3'd4);
`endif

endmodule
