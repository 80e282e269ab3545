// One step of the CRC-32 of IEEE 802.3 (clause 3.2.9), over the bytes of one stream beat.
//
// Reflected, polynomial 0x04C11DB7; the caller starts from 0xFFFFFFFF and inverts the end. Bytes
// without `keep` are passed over; `keep` is contiguous from bit 0.
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

  function automatic logic [31:0] step(input logic [31:0] from, input logic [7:0] data_byte);
    logic [31:0] c;
    c = from ^ {24'd0, data_byte};
    for (int i = 0; i < 8; i++) c = (c >> 1) ^ (c[0] ? 32'hEDB88320 : 32'd0);
    return c;
  endfunction

  // The states after each count of bytes are XOR trees of their own, of which `keep` picks one: the
  // path is one tree and one multiplexer, not a chain of both.
  logic [31:0] state;

  always_comb begin
    state = crc;
    next  = crc;
    for (int i = 0; i < B; i++) begin
      state = step(state, data[8*i+:8]);
      if (keep[i]) next = state;
    end
  end

endmodule
