// Synchronous FIFO: a stream buffer in block or distributed RAM behind an output register.
//
// `level` counts the entries that were accepted and not yet delivered,
// including the output register.
//
// Parameters: T, the payload's type; DEPTH, entries of the memory, a power of two (one more fits in
// the output register); BLOCK, whether the memory is block RAM of any size. Latency: 2 cycles.
// Throughput: 1 entry per cycle. `s_ready` depends only on registers.
module axis_fifo #(
    parameter type T = logic [7:0],
    parameter int DEPTH = 16,
    parameter bit BLOCK = 0
) (
    output logic [$clog2(DEPTH+2)-1:0] level,
`include "payload_ports.svh"
);

  localparam int AddressBits = $clog2(DEPTH);
  localparam int LevelBits = $clog2(DEPTH + 2);

  if (DEPTH < 2 || DEPTH != 1 << AddressBits) $error("DEPTH must be a power of two");

  // An entry is read only while it is held, and written only while it is free.
  logic [AddressBits:0]   head, tail;   // one bit more than an address: equal is empty
  logic                   put, get;
  logic [AddressBits:0]   held;

  assign held    = head - tail;
  assign s_ready = !held[AddressBits];
  assign put     = s_valid && s_ready;
  assign get     = held != '0 && (!m_valid || m_ready);
  assign level   = LevelBits'(held) + LevelBits'(m_valid);

  if (BLOCK) begin : g_block
    (* ram_style = "block", no_rw_check = 1 *) T memory[DEPTH];
    always_ff @(posedge clk) begin
      if (put) memory[head[AddressBits-1:0]] <= s_payload;
      if (get) m_payload <= memory[tail[AddressBits-1:0]];
    end
  end else begin : g_any
    (* no_rw_check = 1 *) T memory[DEPTH];
    always_ff @(posedge clk) begin
      if (put) memory[head[AddressBits-1:0]] <= s_payload;
      if (get) m_payload <= memory[tail[AddressBits-1:0]];
    end
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      head    <= '0;
      tail    <= '0;
      m_valid <= 1'b0;
    end else begin
      if (put) head <= head + 1'b1;
      if (get) tail <= tail + 1'b1;
      if (get) m_valid <= 1'b1;
      else if (m_ready) m_valid <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  no_overflow : assert property (@(posedge clk) disable iff (rst)
      held <= (AddressBits + 1)'(DEPTH));
  level_is_bounded : assert property (@(posedge clk) disable iff (rst)
      level <= LevelBits'(DEPTH + 1));
  entries_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_payload));
  // An entry leaves the memory only if the output register is free.
  reads_have_place : assert property (@(posedge clk) disable iff (rst) get |-> !m_valid || m_ready);
`endif

endmodule
