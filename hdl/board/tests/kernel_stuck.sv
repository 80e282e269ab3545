// A kernel that never ends: it consumes its body and sends no reply.
// For tests of the board's timeout.
//
// Scalars: 0, if not zero, it does not consume its body. Parameters: W, stream width in bits.
module kernel_stuck #(
    parameter int W = 64
) (
`include "stream_kernel_ports.svh"
);

  logic unused_signals;
  assign unused_signals = &{1'b0, params, s_data, s_keep, m_ready};

  assign done    = 1'b0;
  assign m_valid = 1'b0;
  assign m_data  = '0;
  assign m_keep  = '0;
  assign m_last  = 1'b0;

  always_ff @(posedge clk) begin
    if (rst) s_ready <= 1'b0;
    else if (start) s_ready <= params[31:0] == '0;
    else if (s_valid && s_ready && s_last) s_ready <= 1'b0;
  end

endmodule
