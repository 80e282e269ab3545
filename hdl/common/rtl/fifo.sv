// FIFO in registers; the oldest entry is on `m_payload` while `m_valid`. `s_ready` leaves some
// entries spare for a writer that decided several cycles earlier and cannot be stopped; with this,
// and one cycle less of latency, it differs from `axis_fifo`. Meant for a few entries.
//
// Parameters: T, the payload's type; DEPTH, entries, a power of two; SPARE, cycles from `s_ready`
// to the write that it permits; BLOCK, whether entries are in block RAM. Latency: 1 cycle,
// 2 with BLOCK.
module fifo #(
    parameter type T = logic [7:0],
    parameter int DEPTH = 16,
    parameter int SPARE = 1,
    parameter bit BLOCK = 0
) (
`include "payload_ports.svh"
);

  localparam int A = $clog2(DEPTH);

  if (DEPTH != 1 << A) $error("DEPTH must be a power of two");

  logic [A:0] head, head_next, tail, count;
  logic leaves;

  assign count = tail - head;
  assign s_ready = count < (A + 1)'(DEPTH - SPARE);
  assign leaves = m_valid && m_ready;
  assign head_next = head + (A + 1)'(leaves);

  always_ff @(posedge clk) begin
    if (rst) begin
      head <= '0;
      tail <= '0;
    end else begin
      if (s_valid) tail <= tail + 1'b1;
      head <= head_next;
    end
  end

  if (BLOCK) begin : g_block
    // A word read while it is written is not used.
    (* ram_style = "block", no_rw_check = 1 *) T entries[DEPTH];
    always_ff @(posedge clk) begin
      if (s_valid) entries[tail[A-1:0]] <= s_payload;
      if (tail != head_next) m_payload <= entries[head_next[A-1:0]];
      m_valid   <= !rst && tail != head_next;
    end
  end else begin : g_logic
    T entries[DEPTH];
    always_ff @(posedge clk) if (s_valid) entries[tail[A-1:0]] <= s_payload;
    assign m_valid = count != '0;
    assign m_payload = entries[head[A-1:0]];
  end

`ifndef SYNTHESIS
  no_overflow : assert property (@(posedge clk) disable iff (rst)
      s_valid |-> count < (A + 1)'(DEPTH));
  holds_depth : assert property (@(posedge clk) disable iff (rst) count <= (A + 1)'(DEPTH));
  entries_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_payload));
  no_underflow : assert property (@(posedge clk) disable iff (rst) m_valid |-> count != '0);
`endif

endmodule
