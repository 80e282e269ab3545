// A counter that crosses into another clock domain: in Gray code, through two flip-flops.
//
// One bit of a Gray-code number changes per step, so a value sampled while it changes is either the
// previous or the new number, never a third: Clifford E. Cummings, "Simulation and Synthesis
// Techniques for Asynchronous FIFO Design", SNUG 2002, sections 2 and 3. Numbers arrive at most 2
// cycles of `m_clk` after the first edge that could sample them, and some are skipped.
//
// Parameters: BITS of the counter, which wraps.
//
// Resets: both sides at the same time, each until the other's zero has arrived: both must be in
// reset for three cycles of each clock. They may end at different times.
// A single side must not be reset.
//
// Constraints: from `s_gray` to `first` no bit may take longer than a period of the faster clock,
// otherwise two steps could be sampled out of order (set_max_delay -datapath_only; nextpnr reports
// the longest delay, but does not use it for placing). The two flip-flops must be adjacent and must
// not become a shift register (ASYNC_REG).
module cdc_count #(
    parameter int BITS = 8
) (
    input  logic            s_clk,
    input  logic            s_rst,
    input  logic            s_step,
    output logic [BITS-1:0] s_count,
    output logic [BITS-1:0] s_gray_next,  // its value after this cycle, in Gray code
    input  logic            m_clk,
    input  logic            m_rst,
    output logic [BITS-1:0] m_gray,
    output logic [BITS-1:0] m_count       // the same in binary: combinational
);

  if (BITS < 2) $error("BITS must be at least 2");

  logic [BITS-1:0] s_gray, s_ahead;  // in Gray code, now and after a step, so that the next value
                                     // needs no carry
  (* ASYNC_REG = "TRUE" *) logic [BITS-1:0] first, second;

  function automatic logic [BITS-1:0] gray(input logic [BITS-1:0] count);
    return count ^ (count >> 1);
  endfunction

  assign s_gray_next = s_step ? s_ahead : s_gray;
  assign m_gray = second;

  always_comb begin
    m_count = second;
    for (int i = BITS - 2; i >= 0; i--) m_count[i] = second[i] ^ m_count[i+1];
  end

  always_ff @(posedge s_clk) begin
    if (s_rst) begin
      s_count <= '0;
      s_gray  <= '0;
      s_ahead <= gray(BITS'(1));
    end else if (s_step) begin
      s_count <= s_count + 1'b1;
      s_gray  <= s_ahead;
      s_ahead <= gray(s_count + BITS'(2));
    end
  end

  always_ff @(posedge m_clk) begin
    if (m_rst) begin
      first  <= '0;
      second <= '0;
    end else begin
      first  <= s_gray;
      second <= first;
    end
  end

`ifndef SYNTHESIS
  gray_is_count : assert property (@(posedge s_clk) disable iff (s_rst) s_gray == gray(s_count));
  one_bit_a_step : assert property (@(posedge s_clk) disable iff (s_rst)
      $onehot0(s_gray ^ s_gray_next));
`endif

endmodule
