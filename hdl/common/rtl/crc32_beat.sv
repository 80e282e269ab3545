// One step of the CRC-32 of IEEE 802.3 (clause 3.2.9), over the bytes of one stream beat.
//
// Reflected, polynomial 0x04C11DB7; the caller starts from 0xFFFFFFFF and inverts the result. Bytes
// without `keep` are skipped; `keep` is contiguous from bit 0.
//
// Parameters: W, beat width in bits. Latency: combinational.
module crc32_beat #(
    parameter int W = 64
) (
    input  logic [31:0]    crc,
    input  logic [W-1:0]   data,
    input  logic [W/8-1:0] keep,
    output logic [31:0]    next
);

  localparam int B = W / 8;
  localparam int CountBits = $clog2(B + 1);

  function automatic logic [31:0] step(input logic [31:0] from, input logic [7:0] data_byte);
    logic [31:0] c;
    c = from ^ {24'd0, data_byte};
    for (int i = 0; i < 8; i++) c = (c >> 1) ^ (c[0] ? 32'hEDB88320 : 32'd0);
    return c;
  endfunction

  // The contribution of each bit of a beat to the result: the CRC is linear.
  function automatic logic [W-1:0][31:0] contributions();
    for (int bit_at = 0; bit_at < W; bit_at++) begin
      logic [31:0] c;
      c = '0;
      for (int i = 0; i < B; i++) c = step(c, i == bit_at / 8 ? 8'd1 << (bit_at % 8) : 8'd0);
      contributions[bit_at] = c;
    end
  endfunction

  localparam logic [W-1:0][31:0] Contributions = contributions();

  // The old state is added to the first bytes. Fewer bytes than a beat are moved to its end, after
  // zeros, which have no effect; the part of the state beyond their length is only shifted.
  logic [CountBits-1:0] count;
  logic [W-1:0]         masked, moved;
  logic [31:0]          rest;
  logic [31:0]          sums[W];

  always_comb begin
    count = '0;
    for (int i = 0; i < B; i++) if (keep[i]) count = CountBits'(i + 1);
    masked = W'(crc);
    for (int i = 0; i < B; i++) if (keep[i]) masked[8*i+:8] = masked[8*i+:8] ^ data[8*i+:8];
    moved = W'({{W{1'b0}}, masked} << {CountBits'(B) - count, 3'b000});
    rest  = 32'({32'd0, crc} >> {count, 3'b000});
    // The sum is an explicit tree, because synthesis keeps a chain.
    for (int i = 0; i < W; i++) sums[i] = moved[i] ? Contributions[i] : '0;
    for (int half = W / 2; half > 0; half = half / 2)
      for (int i = 0; i < half; i++) sums[i] = sums[i] ^ sums[i+half];
    next = sums[0] ^ rest;
  end

endmodule
