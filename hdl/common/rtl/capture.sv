// Capture core: records a sample, with the clock's number, whenever it differs from the previous
// cycle, and delivers the records in order. Between records the sample is constant, so that the
// records determine all cycles.
//
// Changes while DEPTH records wait are lost. The next record then has `m_gap`, and is made as soon
// as there is space, even if its sample has not changed.
//
// Parameters: W, bits of a sample; DEPTH, records in block RAM, a power of two. Latency: 2 cycles.
module capture #(
    parameter int W = 32,
    parameter int DEPTH = 512
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [31:0]  now,
    input  logic [W-1:0] sample,
    output logic         m_valid,
    input  logic         m_ready,
    output logic         m_gap,
    output logic [31:0]  m_at,
    output logic [W-1:0] m_sample
);

  typedef struct packed {
    logic         gap;
    logic [31:0]  at;
    logic [W-1:0] sample;
  } note_t;

  logic         begun, lost, put, room;
  logic [W-1:0] last;
  note_t        note;
  logic [$clog2(DEPTH+2)-1:0] unused_level;

  assign put = !begun || lost || sample != last;

  always_ff @(posedge clk) begin
    last  <= sample;
    begun <= !rst;
    lost  <= !rst && put && !room;
  end

  axis_fifo #(
      .T(note_t),
      .DEPTH(DEPTH)
  ) u_notes (
      .clk,
      .rst,
      .s_valid  (put && !rst),
      .s_ready  (room),
      .s_payload('{gap: lost, at: now, sample: sample}),
      .m_valid,
      .m_ready,
      .m_payload(note),
      .level    (unused_level)
  );

  assign m_gap    = note.gap;
  assign m_at     = note.at;
  assign m_sample = note.sample;

`ifndef SYNTHESIS
  // Records determine all cycles only if their clock counts each cycle.
  clock_counts : assert property (@(posedge clk) disable iff (rst)
      1'b1 |=> now == $past(now) + 32'd1);
  records_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(note));
  loss_is_marked : assert property (@(posedge clk) disable iff (rst) put && !room |=> lost);
`endif

endmodule
