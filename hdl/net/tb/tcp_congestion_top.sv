// tcp_congestion for its bench, with the fields of its record that it uses.
module tcp_congestion_top
  import tcp_pkg::*;
#(
    localparam int RX_RING_BITS = 14,
    localparam int TX_RING_BITS = 16,
    localparam int MSS = 1460,
    localparam bit ACTIVE_OPEN = 1,
`include "tcp_widths.svh"
) (
    input  logic        clk,
    input  logic        rst,
    input  logic [13:0] mss,
    input  logic [16:0] cwnd,
    input  logic [16:0] ssthresh,
    input  logic [16:0] grown,
    input  logic [1:0]  dups,
    input  logic        recovering,
    input  logic        repeating,
    input  logic        timing,
    input  logic [31:0] max,
    input  logic [31:0] recover,
    input  logic        acked_new,
    input  logic [17:0] acked,
    input  logic        before_recover,
    input  logic        at_recover,
    input  logic        duplicate,
    input  logic        timed_out,
    input  logic [17:0] flight,
    output logic [16:0] cwnd_after,
    output logic [16:0] ssthresh_after,
    output logic [16:0] grown_after,
    output logic [1:0]  dups_after,
    output logic        recovering_after,
    output logic        repeating_after,
    output logic        timing_after,
    output logic [31:0] recover_after,
    output logic        again
);
`include "tcp_types.svh"
  tcb_t record, after, same;

  always_comb begin
    record = '0;
    record.state = OPEN;
    {record.mss, record.cwnd, record.ssthresh, record.grown} = {mss, cwnd, ssthresh, grown};
    {record.dups, record.recovering, record.repeating, record.timing} = {dups, recovering, repeating, timing};
    {record.max, record.recover} = {max, recover};
    same = after;
    {same.cwnd, same.ssthresh, same.grown, same.recover} = {cwnd, ssthresh, grown, recover};
    {same.dups, same.recovering, same.repeating, same.timing} = {dups, recovering, repeating, timing};
  end

  tcp_congestion #(
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS),
      .MSS         (MSS),
      .ACTIVE_OPEN (ACTIVE_OPEN)
  ) u_congestion (
      .active      (1'b1),
      .record_bits (record),
      .slow_start  (cwnd < ssthresh),
      .to_grow     ($signed({1'b0, cwnd}) - $signed({1'b0, grown})),
      .out_long    (23'(flight) >> 1 > 23'({mss, 1'b0})),
      .avoided_bits(after),
      .*
  );

  assign {cwnd_after, ssthresh_after, grown_after} = {after.cwnd, after.ssthresh, after.grown};
  assign {dups_after, recovering_after, repeating_after} = {after.dups, after.recovering, after.repeating};
  assign {timing_after, recover_after} = {after.timing, after.recover};

  // Nothing else of the record changes.
  others_stay : assert property (@(posedge clk) disable iff (rst) same == record);
  // The window never vanishes.
  windows_have_a_segment : assert property (@(posedge clk) disable iff (rst)
      cwnd >= 17'(mss) |-> cwnd_after >= 17'(mss));
endmodule
