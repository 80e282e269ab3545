// First in, first out; the oldest entry shows on `m_payload` while `m_valid`. `s_ready` leaves some
// entries to spare, for a writer that decided some cycles ago and is not held: that, and a cycle less, is
// what `axis_fifo` does not do. For a few entries in registers.
//
// Parameters: T, the payload's type; DEPTH, entries, a power of two; SPARE, cycles from `s_ready` to what is written by
// it. Latency: 1 cycle.
module fifo #(
    parameter type T = logic [7:0],
    parameter int DEPTH = 16,
    parameter int SPARE = 1
) (
    input  logic clk,
    input  logic rst,
    input  logic s_valid,
    output logic s_ready,
    input  T     s_payload,
    output logic m_valid,
    input  logic m_ready,
    output T     m_payload
);

  localparam int A = $clog2(DEPTH);

  if (DEPTH != 1 << A) $error("DEPTH must be a power of two");

  T entries[DEPTH];
  logic [A:0] head, tail, count;

  assign count = tail - head;
  assign s_ready = count < (A + 1)'(DEPTH - SPARE);
  assign m_valid = count != '0;
  assign m_payload = entries[head[A-1:0]];

  always_ff @(posedge clk) begin
    if (s_valid) entries[tail[A-1:0]] <= s_payload;
    if (rst) begin
      head <= '0;
      tail <= '0;
    end else begin
      if (s_valid) tail <= tail + 1'b1;
      if (m_valid && m_ready) head <= head + 1'b1;
    end
  end

endmodule
