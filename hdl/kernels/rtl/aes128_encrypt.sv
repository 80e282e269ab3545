// AES-128 encryption of one block (FIPS 197), one round per cycle,
// with round keys computed alongside.
//
// Byte 0 of key and blocks is in bits 7:0. `start` samples `block`; `valid` is high for one cycle
// when `result` is ready, and `result` stays until the next `start`.
//
// Parameters: none. Latency: 11 cycles. Throughput: one block per 11 cycles (`start` with `valid`).
module aes128_encrypt (
    input  logic         clk,
    input  logic         rst,
    input  logic [127:0] key,
    input  logic         start,
    input  logic [127:0] block,
    output logic         valid,
    output logic [127:0] result
);

  logic         busy;
  logic [3:0]   round;
  logic [7:0]   rcon;
  logic [127:0] round_key, next_key, substituted, shifted, mixed;
  logic [31:0]  turned, key_substituted, key_word;

  function automatic logic [7:0] doubled(input logic [7:0] x);
    return {x[6:0], 1'b0} ^ (x[7] ? 8'h1b : 8'h00);
  endfunction

  // Byte r + 4c is row r of column c.

  for (genvar i = 0; i < 16; i++) begin : g_state
    aes_sbox u_sbox (
        .from(result[8*i+:8]),
        .to  (substituted[8*i+:8])
    );
    // Row r is rotated left by r columns.
    assign shifted[8*i+:8] = substituted[8*((i+4*(i%4))%16)+:8];
  end

  always_comb begin
    for (int c = 0; c < 4; c++) begin
      for (int r = 0; r < 4; r++) begin
        mixed[8*(4*c+r)+:8] = doubled(shifted[8*(4*c+r)+:8] ^ shifted[8*(4*c+(r+1)%4)+:8])
            ^ shifted[8*(4*c+(r+1)%4)+:8] ^ shifted[8*(4*c+(r+2)%4)+:8] ^ shifted[8*(4*c+(r+3)%4)+:8];
      end
    end
  end

  // The next round key: its first word uses the last one, rotated by a byte and substituted.

  assign turned = {round_key[103:96], round_key[127:104]};

  for (genvar i = 0; i < 4; i++) begin : g_key
    aes_sbox u_sbox (
        .from(turned[8*i+:8]),
        .to  (key_substituted[8*i+:8])
    );
  end

  always_comb begin
    key_word = key_substituted ^ {24'd0, rcon};
    for (int i = 0; i < 4; i++) begin
      key_word = key_word ^ round_key[32*i+:32];
      next_key[32*i+:32] = key_word;
    end
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      busy  <= 1'b0;
      valid <= 1'b0;
    end else begin
      valid <= busy && round == 4'd10;
      if (start) busy <= 1'b1;
      else if (round == 4'd10) busy <= 1'b0;
    end
  end

  // `round_key` is the last round's key; each round derives its own from it.
  always_ff @(posedge clk) begin
    if (start) begin
      round     <= 4'd1;
      rcon      <= 8'h01;
      round_key <= key;
      result    <= block ^ key;
    end else if (busy) begin
      round     <= round + 1'b1;
      rcon      <= doubled(rcon);
      round_key <= next_key;
      result    <= (round == 4'd10 ? shifted : mixed) ^ next_key;
    end
  end

`ifndef SYNTHESIS
  starts_when_idle : assert property (@(posedge clk) disable iff (rst) start |-> !busy);
  rounds_are_ten : assert property (@(posedge clk) disable iff (rst)
      busy |-> round inside {[4'd1:4'd10]});
  result_stays : assert property (@(posedge clk) disable iff (rst)
      !start && !busy |=> $stable(result));
  valid_for_a_cycle : assert property (@(posedge clk) disable iff (rst) valid |=> !valid);
`endif

endmodule
