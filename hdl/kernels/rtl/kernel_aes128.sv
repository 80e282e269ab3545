// AES-128 in counter mode (FIPS 197; NIST SP 800-38A, section 6.5).
//
// The body is the first counter block (16 bytes, incremented as one number, most significant byte
// first) followed by any number of bytes; the reply is the same counter block and the encrypted
// bytes. A call with a reply as its body therefore decrypts it.
// The reply to a body of less than 16 bytes is empty.
//
// Scalars: 0 to 3, the key, its first byte in bits 7:0 of scalar 0. Parameters: W,
// stream width in bits.
// Latency: 2 cycles to the counter block, 12 more to the first encrypted beat. Throughput: 16 bytes
// in 11 cycles.
module kernel_aes128 #(
    parameter int W = 64
) (
`include "stream_kernel_ports.svh"
);

  localparam int B = W / 8;
  localparam int Beats = 128 / W;                 // of a block
  localparam int IndexBits = $clog2(Beats);

  if (W != 32 && W != 64) $error("W must be 32 or 64");

  typedef struct packed {
    logic [W-1:0] data;
    logic [B-1:0] keep;
    logic         last;
  } beat_t;

  logic taking;

  kernel_control u_control (
      .s_end (s_valid && s_ready && s_last),
      .m_end (m_valid && m_ready && m_last),
      .*
  );

  typedef enum logic [1:0] {
    Collect,  // receives the counter block
    Repeat,   // sends it
    Short,    // no counter block: an empty reply
    Text
  } state_t;

  state_t               state;
  logic [IndexBits-1:0] index;      // beat of the block
  logic                 index_last, accepted, sent, skid_ready, head_last;
  logic [127:0]         head;
  beat_t                beat;
  logic                 beat_valid;

  // The key stream: one block of it is used while the next is computed.

  function automatic logic [127:0] reversed(input logic [127:0] x);
    for (int i = 0; i < 16; i++) reversed[8*i+:8] = x[8*(15-i)+:8];
  endfunction

  logic         cipher_start, cipher_valid, cipher_busy, made, made_before, move, stream_full, armed;
  logic [127:0] counter, result, stream;

  aes128_encrypt u_cipher (
      .clk,
      .rst  (rst || start),
      .key  (params),
      .start(cipher_start),
      .block(reversed(counter)),
      .valid(cipher_valid),
      .result
  );

  assign made         = cipher_valid || made_before;
  assign move         = made && (!stream_full || (sent && state == Text && index_last));
  assign cipher_start = armed && (!cipher_busy || cipher_valid) && (!made || move);

  always_ff @(posedge clk) begin
    if (rst || start) begin
      cipher_busy <= 1'b0;
      made_before <= 1'b0;
      stream_full <= 1'b0;
    end else begin
      if (cipher_start) cipher_busy <= 1'b1;
      else if (cipher_valid) cipher_busy <= 1'b0;
      made_before <= made && !move;
      if (move) stream_full <= 1'b1;
      else if (sent && state == Text && index_last) stream_full <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (move) stream <= result;
    else if (sent && state == Text) stream <= stream >> W;
  end

  // Beats in and out.

  always_comb begin
    beat_valid = 1'b0;
    s_ready    = 1'b0;
    beat       = '{data: s_data ^ stream[W-1:0], keep: s_keep, last: s_last};
    unique case (state)
      Collect: s_ready = taking;
      Repeat: begin
        beat_valid = 1'b1;
        beat       = '{data: head[W-1:0], keep: '1, last: head_last && index_last};
      end
      Short: begin
        beat_valid = 1'b1;
        beat       = '{data: '0, keep: '0, last: 1'b1};
      end
      default: begin
        beat_valid = taking && s_valid && stream_full;
        s_ready    = taking && skid_ready && stream_full;
      end
    endcase
  end

  assign index_last = index == IndexBits'(Beats - 1);
  assign accepted   = s_valid && s_ready;
  assign sent       = beat_valid && skid_ready;

  always_ff @(posedge clk) begin
    if (rst || start) begin
      state <= Collect;
      index <= '0;
      armed <= 1'b0;
    end else begin
      if (sent || accepted) index <= index + 1'b1;
      if (state == Collect && accepted) begin
        if (index_last && &s_keep) begin
          state <= Repeat;
          armed <= !s_last;
        end else if (s_last) begin
          state <= Short;
        end
      end
      // The counter block, and an empty reply, are followed by Text, if any.
      if ((state == Repeat && sent && index_last) || (state == Short && sent)) state <= Text;
    end
  end

  always_ff @(posedge clk) begin
    if (state == Collect && accepted) begin
      head      <= {s_data, head[127:W]};
      head_last <= s_last;
    end else if (state == Repeat && sent) begin
      head <= head >> W;
    end
    if (state == Collect && accepted) counter <= reversed({s_data, head[127:W]});
    else if (cipher_start) counter <= counter + 1'b1;
  end

  kernel_output #(
      .W(W)
  ) u_output (
      .s_valid(beat_valid),
      .s_ready(skid_ready),
      .s_data (beat.data),
      .s_keep (beat.keep),
      .s_last (beat.last),
      .*
  );

`ifndef SYNTHESIS
  text_has_key_stream : assert property (@(posedge clk) disable iff (rst)
      state == Text && sent |-> stream_full);
  // The cipher waits until its last block has been taken.
  blocks_are_not_lost : assert property (@(posedge clk) disable iff (rst)
      cipher_valid |-> !made_before);
  blocks_wait_for_text : assert property (@(posedge clk) disable iff (rst)
      made_before |-> stream_full);
  input_while_taking : assert property (@(posedge clk) disable iff (rst) s_ready |-> taking);
`endif

endmodule
