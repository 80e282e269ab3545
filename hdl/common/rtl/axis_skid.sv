// Skid buffer: a stream register that breaks every combinational path, at full throughput.
//
// Two entries, so that `s_ready` is a register and does not depend on `m_ready`.
//
// Parameters: T, the payload's type. Latency: 1 cycle. Throughput: 1 beat per cycle.
module axis_skid #(
    parameter type T = logic [7:0]
) (
`include "payload_ports.svh"
);

  T     spare;
  logic spare_full;

  assign s_ready = !spare_full;

  always_ff @(posedge clk) begin
    if (rst) begin
      m_valid    <= 1'b0;
      spare_full <= 1'b0;
    end else if (!m_valid || m_ready) begin
      m_valid    <= s_valid || spare_full;
      spare_full <= 1'b0;
    end else if (s_valid) begin
      spare_full <= 1'b1;
    end
  end

  always_ff @(posedge clk) begin
    if (!m_valid || m_ready) m_payload <= spare_full ? spare : s_payload;
    if (s_ready) spare <= s_payload;
  end

`ifndef SYNTHESIS
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_payload));
  spare_is_second : assert property (@(posedge clk) disable iff (rst) spare_full |-> m_valid);
`endif

endmodule
