// Congestion control of a session: slow start and congestion avoidance (RFC 5681), fast retransmit and NewReno's partial
// acknowledgments (RFC 6582), and the restart after a timeout (RFC 6298).
//
// At most one of `acked_new`, `duplicate` and `timed_out` is high. Parameters: as in tcp_engine. Latency: combinational.
module tcp_congestion
  import tcp_pkg::*;
#(
    parameter int RX_RING_BITS = 21,
    parameter int TX_RING_BITS = 21,
    parameter int MSS = 1460,
    parameter bit ACTIVE_OPEN = 1,
`include "tcp_widths.svh"
) (
    input  logic               active,          // the outputs are used; otherwise they are arbitrary
    input  logic [TcbBits-1:0] record_bits,
    input  logic               acked_new,       // data in flight was acknowledged:
    input  logic [TxBits-1:0]  acked,           // its bytes; the position is
    input  logic               before_recover,  // before the end of the data sent before a loss,
    input  logic               at_recover,      // or there
    input  logic               slow_start,      // the window is below the threshold
    input  logic signed [CwndBits:0] to_grow,   // data to be acknowledged until the window grows
    input  logic               duplicate,       // a duplicate acknowledgment
    input  logic               timed_out,       // the retransmission timer has expired
    input  logic [TxBits-1:0]  flight,          // data in flight
    input  logic               out_long,        // half of it exceeds two segments
    output logic [TcbBits-1:0] avoided_bits,    // the record with another window
    output logic               again            // retransmit the oldest segment
);

`include "tcp_types.svh"

  tcb_t record, avoided;
  cwnd_t half;
  assign record = record_bits;
  assign avoided_bits = avoided;

  always_comb begin
    {avoided, again, half} = 'x;
    if (active) begin
      avoided = record;
      again = 1'b0;
      half = out_long ? cwnd_t'(23'(flight) >> 1) : capped(23'({record.mss, 1'b0}));
      if (acked_new) begin
        avoided.dups = '0;
        avoided.repeating = record.repeating && (before_recover || at_recover);
        if (record.recovering) begin
          if (before_recover) again = 1'b1;
          else avoided.recovering = 1'b0;
        end else if (slow_start)
          avoided.cwnd = 23'(acked) > 23'(record.mss) ? capped(23'(record.cwnd) + 23'({record.mss, 1'b0})) :
              capped(23'(record.cwnd) + 23'(14'(acked)));
        else if ($signed({1'b0, cwnd_t'(acked)}) >= to_grow) begin
          avoided.grown = '0;
          avoided.cwnd  = capped(23'(record.cwnd) + 23'(record.mss));
        end else avoided.grown = record.grown + cwnd_t'(acked);
      end
      if (duplicate) begin
        avoided.dups = record.dups + 2'd1;
        if (record.dups == 2'd2 && !record.repeating) begin
          again = 1'b1;
          avoided.recovering = 1'b1;
          avoided.repeating = 1'b1;
          avoided.recover = RecoverBits'(record.max);
          avoided.ssthresh = half;
          avoided.cwnd = half;
          avoided.timing = 1'b0;
          avoided.dups = '0;
        end
      end
      if (timed_out) begin
        avoided.ssthresh = half;
        avoided.cwnd = capped(23'(record.mss));
        avoided.recovering = 1'b0;
        avoided.repeating = 1'b1;
        avoided.recover = RecoverBits'(record.max);
        avoided.dups = '0;
      end
    end
  end

endmodule
