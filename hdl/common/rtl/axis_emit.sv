// Sends a short value, such as a digest, as a stream of one or more beats.
//
// `load` samples `value` (byte 0 in bits 7:0) and `count`, its length in bytes; a count of zero
// produces the single empty beat of an empty body.
// `load` must not come before the last beat has been accepted.
//
// Parameters: W, stream width in bits; BYTES, maximum bytes of a value, a multiple of W / 8.
// Latency: 1 cycle. Throughput: 1 beat per cycle.
module axis_emit #(
    parameter int W = 64,
    parameter int BYTES = 32
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       load,
    input  logic [8*BYTES-1:0]         value,
    input  logic [$clog2(BYTES+1)-1:0] count,
    output logic                       m_valid,
    input  logic                       m_ready,
    output logic [W-1:0]               m_data,
    output logic [W/8-1:0]             m_keep,
    output logic                       m_last
);

  localparam int B = W / 8;
  localparam int CountBits = $clog2(BYTES + 1);

  if (BYTES % B != 0) $error("BYTES must be a multiple of W / 8");

  logic [8*BYTES-1:0]   rest;
  logic [CountBits-1:0] left;

  assign m_data = rest[W-1:0];
  assign m_last = left <= CountBits'(B);

  always_comb begin
    for (int i = 0; i < B; i++) m_keep[i] = left > CountBits'(i);
  end

  always_ff @(posedge clk) begin
    if (rst) m_valid <= 1'b0;
    else if (load) m_valid <= 1'b1;
    else if (m_ready && m_last) m_valid <= 1'b0;
  end

  always_ff @(posedge clk) begin
    if (load) begin
      rest <= value;
      left <= count;
    end else if (m_valid && m_ready) begin
      rest <= rest >> W;
      left <= left - CountBits'(B);
    end
  end

`ifndef SYNTHESIS
  loads_when_free : assert property (@(posedge clk) disable iff (rst)
      load |-> !m_valid || (m_ready && m_last));
  value_fits : assert property (@(posedge clk) disable iff (rst)
      load |-> count <= CountBits'(BYTES));
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable({m_data, m_keep, m_last}));
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_last |-> m_keep == '1);
`endif

endmodule
