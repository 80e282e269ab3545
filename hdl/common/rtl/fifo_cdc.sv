// FIFO between two unrelated clocks: entries in block or distributed RAM, pointers that
// cross in Gray code (cdc_count), an output register.
//
// Clifford E. Cummings, "Simulation and Synthesis Techniques for Asynchronous FIFO Design", SNUG
// 2002, style 1: pointers one bit longer than an address; empty if they are equal, full if they
// differ only in the two upper bits, both computed from the next pointer, so that they are
// registered. A pointer of the other side arrives late, which makes the FIFO appear fuller to the
// writer, and emptier to the reader, than it is.
//
// Parameters: T, the payload's type; DEPTH, entries of the memory, a power of two (one more fits in
// the output register). Latency: 4 to 5 cycles of `m_clk`. Throughput: 1 entry per cycle of the
// slower clock, with a DEPTH of 16 and more for similar clocks. `s_ready` is a register;
// `m_valid` and `m_payload` are.
//
// Resets and constraints: those of cdc_count. An entry is read two cycles of `m_clk` or more after
// it was written: the memory has no path to constrain,
// and its result for a simultaneous read and write is not used.
module fifo_cdc #(
    parameter  type T = logic [7:0],
    parameter  int DEPTH = 16,
    localparam int A = $clog2(DEPTH)
) (
    input  logic       s_clk,
    input  logic       s_rst,
    input  logic       s_valid,
    output logic       s_ready,
    input  T           s_payload,
    output logic [A:0] s_level,    // number of entries, rounded up, without those of the last two
                                   // cycles
    input  logic       m_clk,
    input  logic       m_rst,
    output logic       m_valid,
    input  logic       m_ready,
    output T           m_payload
);

  if (DEPTH < 4 || DEPTH != 1 << A) $error("DEPTH must be a power of two");

  T           memory[DEPTH];
  logic       put, get, some;
  logic [A:0] head, head_next, head_there;  // position of the next entry, also in the reader's
                                            // domain
  logic [A:0] tail, tail_next, tail_there, tail_there_count;
  logic [A:0] unused_head_count;

  assign put = s_valid && s_ready;
  assign get = some && (!m_valid || m_ready);

  cdc_count #(
      .BITS(A + 1)
  ) u_head (
      .s_clk,
      .s_rst,
      .s_step     (put),
      .s_count    (head),
      .s_gray_next(head_next),
      .m_clk,
      .m_rst,
      .m_gray     (head_there),
      .m_count    (unused_head_count)
  );

  cdc_count #(
      .BITS(A + 1)
  ) u_tail (
      .s_clk      (m_clk),
      .s_rst      (m_rst),
      .s_step     (get),
      .s_count    (tail),
      .s_gray_next(tail_next),
      .m_clk      (s_clk),
      .m_rst      (s_rst),
      .m_gray     (tail_there),
      .m_count    (tail_there_count)
  );

  always_ff @(posedge s_clk) begin
    if (put) memory[head[A-1:0]] <= s_payload;
    s_level <= head - tail_there_count;
    s_ready <= !s_rst && head_next != {~tail_there[A:A-1], tail_there[A-2:0]};
  end

  always_ff @(posedge m_clk) begin
    if (get) m_payload <= memory[tail[A-1:0]];
    if (m_rst) begin
      some    <= 1'b0;
      m_valid <= 1'b0;
    end else begin
      some <= tail_next != head_there;
      if (get) m_valid <= 1'b1;
      else if (m_ready) m_valid <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  // Entries and level in the writer's view: never more than fit.
  writer_has_room : assert property (@(posedge s_clk) disable iff (s_rst)
      head - tail_there_count <= (A + 1)'(DEPTH));
  full_is_not_written : assert property (@(posedge s_clk) disable iff (s_rst)
      !s_ready || head - tail_there_count < (A + 1)'(DEPTH));
  // An entry that is read has been written, in the reader's view.
  empty_is_not_read : assert property (@(posedge m_clk) disable iff (m_rst)
      !get || tail != unused_head_count);
  entries_stay : assert property (@(posedge m_clk) disable iff (m_rst)
      m_valid && !m_ready |=> m_valid && $stable(m_payload));
`endif

endmodule
