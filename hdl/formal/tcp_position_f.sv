// Proof harness: net_pkg::position_bits bits of positions are sufficient to decide whether a
// segment fits its ring: for a session whose stream is at most a ring ahead of the read position, a
// segment that begins near the stream's end, as tcp_rx accepts them, and any length that it
// accepts. The proof of tcp_rx uses positions of 32 bits.
module tcp_position_f
  import net_pkg::*;
(
    input logic        clk,
    input logic        rst,
    input logic [31:0] wanted,   // the stream's end
    input logic [31:0] read_to,
    input logic [31:0] seq,
    input logic [15:0] length
);

  localparam int Rings[5] = '{6, 12, 16, 21, 24};

  for (genvar i = 0; i < 5; i++) begin : g_ring
    localparam int RingBits = Rings[i];
    localparam int NearBits = near_bits(RingBits);
    localparam int P = position_bits(RingBits);
    localparam logic [31:0] Ring = 32'(1 << RingBits);
    logic [31:0] from_wanted, used;
    assign from_wanted = seq - wanted;
    assign used = seq + 32'(length) - read_to;

    always_comb
      if (wanted - read_to <= Ring + 32'd1 && ((&from_wanted[31:NearBits]) || !(|from_wanted[31:NearBits])) && length < 16'h3f00)
        assert ((P'(used) <= P'(Ring)) == (used <= Ring));
  end

endmodule
