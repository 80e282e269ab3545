// A counter of one clock, as another clock sees it: in Gray code, through two flip-flops.
//
// Of a number in Gray code one bit changes a step, so that whatever is caught while it changes is the number
// before or the one after, never a third: Clifford E. Cummings, "Simulation and Synthesis Techniques for
// Asynchronous FIFO Design", SNUG 2002, sections 2 and 3. Numbers come late, 2 cycles of `m_clk` at most after the
// one that first could see them, and some are passed over.
//
// Parameters: BITS, of the counter, which wraps.
//
// Resets: both sides at the same time, each until the other's zero has come through: for three cycles of either
// clock that both are in reset. They may end apart. A side alone is not to be reset.
//
// Constraints: from `s_gray` to `first` no bit may take longer than a period of the faster clock, or two steps
// could be caught out of order (set_max_delay -datapath_only; nextpnr reports the longest, and places nothing by it).
// The two flip-flops belong side by side and are not to be made a shift register of (ASYNC_REG).
module cdc_count #(
    parameter int BITS = 8
) (
    input  logic            s_clk,
    input  logic            s_rst,
    input  logic            s_step,
    output logic [BITS-1:0] s_count,
    output logic [BITS-1:0] s_gray_next,  // what it will be after this cycle, in Gray code
    input  logic            m_clk,
    input  logic            m_rst,
    output logic [BITS-1:0] m_gray,
    output logic [BITS-1:0] m_count       // the same, out of Gray code: logic, no register
);

  if (BITS < 2) $error("BITS must be at least 2");

  logic [BITS-1:0] s_gray, s_ahead;  // in Gray code, now and after a step: who looks at the next one waits for no carry
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

  gray_is_count : assert property (@(posedge s_clk) disable iff (s_rst) s_gray == gray(s_count));
  one_bit_a_step : assert property (@(posedge s_clk) disable iff (s_rst) $onehot0(s_gray ^ s_gray_next));

endmodule
