// CRC-32 of the body (IEEE 802.3; the checksum of gzip, PNG and zlib).
//
// Scalars: 0, form of the reply: 0 is four bytes, least significant first (as in a gzip trailer);
// any other value is eight hexadecimal digits in lower case, most significant first.
// Parameters: W, stream width in bits (32 or 64).
// Latency: 2 cycles from the last input beat to the first output beat. Throughput:
// W / 8 bytes per cycle.
module kernel_checksum #(
    parameter int W = 64
) (
`include "stream_kernel_ports.svh"
);

  if (W != 32 && W != 64) $error("W must be 32 or 64");

  logic        taking, load, accepted;
  logic [31:0] crc, crc_next, sum;
  logic [63:0] digits;
  logic        hex;
  logic        unused_params;

  assign unused_params = &{1'b0, params[127:32]};
  assign hex = params[31:0] != 32'd0;

  kernel_control u_control (
      .clk,
      .rst,
      .start,
      .s_end (accepted && s_last),
      .m_end (m_valid && m_ready && m_last),
      .taking,
      .done
  );

  assign s_ready  = taking;
  assign accepted = s_valid && s_ready;

  crc32_beat #(
      .W(W)
  ) u_crc (
      .crc,
      .data(s_data),
      .keep(s_keep),
      .next(crc_next)
  );

  always_ff @(posedge clk) begin
    if (rst) load <= 1'b0;
    else load <= accepted && s_last;
  end

  always_ff @(posedge clk) begin
    if (start) crc <= '1;
    else if (accepted) crc <= crc_next;
  end

  assign sum = ~crc;

  function automatic logic [7:0] digit(input logic [3:0] value);
    return value < 4'd10 ? 8'h30 + {4'd0, value} : 8'h57 + {4'd0, value};
  endfunction

  always_comb begin
    for (int i = 0; i < 8; i++) digits[8*i+:8] = digit(sum[28-4*i+:4]);
  end

  axis_emit #(
      .W    (W),
      .BYTES(8)
  ) u_emit (
      .clk,
      .rst,
      .load,
      .value(hex ? digits : {32'd0, sum}),
      .count(hex ? 4'd8 : 4'd4),
      .m_valid,
      .m_ready,
      .m_data,
      .m_keep,
      .m_last
  );

`ifndef SYNTHESIS
  sums_after_the_end : assert property (@(posedge clk) disable iff (rst) load |-> !taking);
  keep_is_contiguous : assert property (@(posedge clk) disable iff (rst)
      accepted |-> (s_keep & (s_keep + 1'b1)) == '0);
`endif

endmodule
