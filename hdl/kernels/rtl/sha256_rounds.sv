// SHA-256's compression function (FIPS 180-4, section 6.2): words in, digest out,
// one round per cycle.
//
// The sixteen words of each block come over a handshake; the words of rounds 16 to 63 are computed
// here, while the input waits. With the last word of a block the caller sets `last` if the
// message ends with it; then `digest_valid` is high for one cycle. `start` begins a new message.
//
// Parameters: none. Latency: 67 cycles from a block's first word. Throughput:
// one block per 65 cycles.
module sha256_rounds (
    input  logic         clk,
    input  logic         rst,
    input  logic         start,
    input  logic         word_valid,
    output logic         word_ready,
    input  logic [31:0]  word,
    input  logic         last,         // with word 15: the message ends here
    output logic [3:0]   position,     // number of the next word of the block
    output logic         digest_valid,
    output logic [255:0] digest        // the first word of the hash in bits 255:224
);

  // The fractional parts of the cube roots of the first 64 primes, and of the square roots of 8.
  localparam logic [31:0] RoundConstants[64] = '{
      32'h428a2f98, 32'h71374491, 32'hb5c0fbcf, 32'he9b5dba5, 32'h3956c25b, 32'h59f111f1, 32'h923f82a4, 32'hab1c5ed5,
      32'hd807aa98, 32'h12835b01, 32'h243185be, 32'h550c7dc3, 32'h72be5d74, 32'h80deb1fe, 32'h9bdc06a7, 32'hc19bf174,
      32'he49b69c1, 32'hefbe4786, 32'h0fc19dc6, 32'h240ca1cc, 32'h2de92c6f, 32'h4a7484aa, 32'h5cb0a9dc, 32'h76f988da,
      32'h983e5152, 32'ha831c66d, 32'hb00327c8, 32'hbf597fc7, 32'hc6e00bf3, 32'hd5a79147, 32'h06ca6351, 32'h14292967,
      32'h27b70a85, 32'h2e1b2138, 32'h4d2c6dfc, 32'h53380d13, 32'h650a7354, 32'h766a0abb, 32'h81c2c92e, 32'h92722c85,
      32'ha2bfe8a1, 32'ha81a664b, 32'hc24b8b70, 32'hc76c51a3, 32'hd192e819, 32'hd6990624, 32'hf40e3585, 32'h106aa070,
      32'h19a4c116, 32'h1e376c08, 32'h2748774c, 32'h34b0bcb5, 32'h391c0cb3, 32'h4ed8aa4a, 32'h5b9cca4f, 32'h682e6ff3,
      32'h748f82ee, 32'h78a5636f, 32'h84c87814, 32'h8cc70208, 32'h90befffa, 32'ha4506ceb, 32'hbef9a3f7, 32'hc67178f2
  };
  localparam logic [31:0] Initial[8] = '{
      32'h6a09e667, 32'hbb67ae85, 32'h3c6ef372, 32'ha54ff53a, 32'h510e527f, 32'h9b05688c, 32'h1f83d9ab, 32'h5be0cd19
  };

  function automatic logic [31:0] rotated(input logic [31:0] x, input int by);
    return (x >> by) | (x << (32 - by));
  endfunction

  // Issue: round 0 to 63, then one cycle in which the block's result is added to the hash.

  logic [6:0]  round;
  logic        issue, ends;
  logic [31:0] schedule[16];   // the last 16 words, the newest at 15
  logic [31:0] next_word;

  assign word_ready = round < 7'd16;
  assign position   = round[3:0];
  assign issue      = !word_ready || word_valid;

  always_comb begin
    next_word = word;
    if (!word_ready)
      next_word = (rotated(schedule[14], 17) ^ rotated(schedule[14], 19) ^ (schedule[14] >> 10)) + schedule[9]
          + (rotated(schedule[1], 7) ^ rotated(schedule[1], 18) ^ (schedule[1] >> 3)) + schedule[0];
  end

  always_ff @(posedge clk) begin
    if (rst || start) round <= '0;
    else if (issue) round <= round[6] ? '0 : round + 1'b1;
  end

  always_ff @(posedge clk) begin
    if (issue && !round[6]) begin
      for (int i = 0; i < 15; i++) schedule[i] <= schedule[i+1];
      schedule[15] <= next_word;
    end
    if (word_valid && round == 7'd15) ends <= last;
  end

  // Two steps after the issue: the constant is added to the word, and then the round is computed.

  typedef struct packed {
    logic valid;
    logic fold;   // no round: the block's result is added to the hash
    logic last;
  } step_t;

  step_t       word_step, sum_step;
  logic [5:0]  word_round;
  logic [31:0] sum;

  always_ff @(posedge clk) begin
    word_round <= round[5:0];
    sum        <= schedule[15] + RoundConstants[word_round];
    if (rst || start) begin
      word_step <= '0;
      sum_step  <= '0;
    end else begin
      word_step <= '{valid: issue, fold: round[6], last: ends};
      sum_step  <= word_step;
    end
  end

  logic [31:0] a, b, c, d, e, f, g, h, t1, t2;
  logic [31:0] hash[8];
  logic [31:0] folded[8];

  assign t1 = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) + sum;
  assign t2 = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));

  assign folded[0] = hash[0] + a;
  assign folded[1] = hash[1] + b;
  assign folded[2] = hash[2] + c;
  assign folded[3] = hash[3] + d;
  assign folded[4] = hash[4] + e;
  assign folded[5] = hash[5] + f;
  assign folded[6] = hash[6] + g;
  assign folded[7] = hash[7] + h;

  always_ff @(posedge clk) begin
    if (start) begin
      hash <= Initial;
      {a, b, c, d} <= {Initial[0], Initial[1], Initial[2], Initial[3]};
      {e, f, g, h} <= {Initial[4], Initial[5], Initial[6], Initial[7]};
    end else if (sum_step.valid && sum_step.fold) begin
      hash <= folded;
      {a, b, c, d} <= {folded[0], folded[1], folded[2], folded[3]};
      {e, f, g, h} <= {folded[4], folded[5], folded[6], folded[7]};
    end else if (sum_step.valid) begin
      {a, b, c, d} <= {t1 + t2, a, b, c};
      {e, f, g, h} <= {d + t1, e, f, g};
    end
  end

  always_ff @(posedge clk) begin
    if (rst || start) digest_valid <= 1'b0;
    else digest_valid <= sum_step.valid && sum_step.fold && sum_step.last;
  end

  assign digest = {hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]};

`ifndef SYNTHESIS
  rounds_are_64 : assert property (@(posedge clk) disable iff (rst) round <= 7'd64);
  last_with_last_word : assert property (@(posedge clk) disable iff (rst)
      word_valid && last |-> position == 4'd15);
  digest_for_a_cycle : assert property (@(posedge clk) disable iff (rst)
      digest_valid |=> !digest_valid);
`endif

endmodule
