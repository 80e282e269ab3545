// A kernel whose reply exceeds a ring: 20 MB of zeros. For tests of replies that do not fit.
//
// Scalars: none. Parameters: W, stream width in bits.
module kernel_flood #(
    parameter int W = 64
) (
`include "stream_kernel_ports.svh"
);

  localparam int Beats = (20 << 20) / (W / 8);

  logic        taking;
  logic [31:0] left;
  logic        unused_signals;
  assign unused_signals = &{1'b0, params, s_data, s_keep};

  assign s_ready = taking;
  assign m_valid = left != '0;
  assign m_data  = '0;
  assign m_keep  = '1;
  assign m_last  = left == 32'd1;

  always_ff @(posedge clk) begin
    done <= m_valid && m_ready && m_last && !rst;
    if (rst) begin
      taking <= 1'b0;
      left   <= '0;
    end else begin
      if (start) taking <= 1'b1;
      if (s_valid && s_ready && s_last) begin
        taking <= 1'b0;
        left   <= 32'(Beats);
      end
      if (m_valid && m_ready) left <= left - 32'd1;
    end
  end

endmodule
