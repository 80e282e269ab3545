// Proof harness: whatever an event has done to a session's record, after what is sent una, nxt and max
// are in this order, max grows and is at most one ring and a FIN beyond una, and the data of a segment
// is what the application has written and the segment's limit allows.
//
// The solver picks a record whose positions are in order, and the event's effect; they stay while the
// decision passes its four phases. Rings of 4 KB.
module tcp_transmit_f
  import net_pkg::*;
  import tcp_pkg::*;
#(
    parameter int RX_RING_BITS = 12,
    parameter int TX_RING_BITS = 12,
    parameter int MSS = 1460,
    parameter bit ACTIVE_OPEN = 0,
`include "tcp_widths.svh"
) (
    input logic               clk,
    input logic               rst,
    input logic [1:0]         kind,
    input logic               fin_in,
    input logic [15:0]        now,
    input logic [TcbBits-1:0] record_bits,
    input logic [31:0]        stream,
    input logic               stream_ended,
    input logic [TxBits-1:0]  out_end,
    input logic [RxBits-1:0]  offered_left,
    input logic [RxBits-1:0]  window_span,
    input logic [15:0]        window_out,
    input effect_t            effect
);

`include "tcp_types.svh"

  localparam logic [31:0] Ring = 32'(1 << TX_RING_BITS);

  tcb_t record, sent;
  logic started, dies, wakes, opening, emit, go_on, alert, repeats;
  logic [TcbBits-1:0] sent_bits;
  logic [31:0] una, recover;
  effect_t effect_q;
  segment_t own;
  phase_t phase;
  assign record = record_bits;
  assign sent = sent_bits;

  tcp_transmit #(
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS),
      .MSS         (MSS),
      .ACTIVE_OPEN (ACTIVE_OPEN)
  ) dut (
      .kind        (event_t'(kind)),
      .peer        ('0),
      .stepped_bits(record_bits),
      .*
  );

  // The inputs of the previous cycle.
  tcb_t record_before;
  effect_t effect_before;
  logic [TxBits-1:0] out_end_before;

  initial started = 1'b0;

  always_ff @(posedge clk) begin
    started        <= 1'b1;
    record_before  <= record;
    effect_before  <= effect;
    out_end_before <= out_end;
    case (phase)
      ENDS:    phase <= LENGTH;
      LENGTH:  phase <= FLAGS;
      FLAGS:   phase <= SEND;
      default: phase <= ENDS;
    endcase
    if (rst) phase <= ENDS;
  end

  // ---- the record before ----
  // Positions as the distance from una. The end of what was written is within a ring of una, and all
  // that was sent was written; the FIN, after it, counts as a byte.
  logic [31:0] nxt_at, max_at;
  tx_t end_at;
  logic fin_out;  // the FIN was sent
  assign nxt_at = record.nxt - record.una;
  assign max_at = record.max - record.una;
  assign end_at = (record.closing ? record.fin_at : out_end) - tx_t'(record.una);
  assign fin_out = record.closing && max_at == 32'(end_at) + 32'd1;

  // ---- what each phase must have found: the differences, and bounds of the length ----
  logic [31:0] unsent, owed;
  assign unsent = (end_at == '1 ? '1 : 32'(end_at)) - nxt_at;
  assign owed = end_at == '1 ? '0 : 32'(end_at);  // all ones: the FIN is acknowledged, too

  always_comb begin
    if (!started) assume (rst);
    else begin
      assume (record == record_before && effect == effect_before && out_end == out_end_before);
      assume (record.state == OPEN && nxt_at <= max_at);
      assume (record.mss != '0 && 16'(record.mss) <= 16'(MSS));
      // Either the FIN is acknowledged, or the end of the stream is in the ring.
      if (end_at == '1) assume (record.closing && max_at == '0);
      else assume (32'(end_at) <= Ring && (max_at <= 32'(end_at) || fin_out));
      // Data is retransmitted only while some is in flight (tcp_congestion).
      if (effect.again) assume (max_at != '0);
      if (!rst) assert (phase inside {ENDS, LENGTH, FLAGS, SEND});
      if (!rst && phase inside {LENGTH, FLAGS, SEND}) begin
        assert (dut.settled_q.una == record.una && dut.settled_q.nxt == record.nxt && dut.settled_q.max == record.max);
        assert (dut.settled_q.mss == record.mss && dut.settled_q.closing == record.closing);
        assert (dut.inflight == tx_t'(nxt_at) && dut.sent_out == tx_t'(max_at) && dut.unacknowledged == tx_t'(owed));
        assert (dut.avail == (unsent[31] ? '0 : tx_t'(unsent)) && dut.past_end == unsent[31]);
        assert (dut.again_q == effect.again && dut.probe_q == effect.probe);
      end
      if (!rst && phase inside {FLAGS, SEND}) begin
        assert (dut.resend_q == (effect.again || effect.probe));
        assert (dut.from == (dut.resend_q ? record.una : record.nxt));
        assert (tx_t'(dut.length_q) <= (dut.resend_q ? tx_t'(owed) : dut.avail));
        assert (dut.unreached == tx_t'(max_at) - (dut.resend_q ? '0 : tx_t'(nxt_at)));
      end
      if (!rst && phase == SEND) begin
        assert (dut.sum_q == dut.from + 32'(dut.length_q));
        if (dut.send_data) assert (dut.length_q != '0);
        if (dut.send_fin) assert (record.closing && (dut.resend_q ? dut.length_q == '0 : tx_t'(dut.length_q) == dut.avail && !dut.past_end));
        assert (dut.first_end == (tx_t'(dut.length_q) == dut.unreached) && dut.beyond == (tx_t'(dut.length_q) > dut.unreached));
        assert (dut.advances == (!dut.resend_q || (dut.length_q == '0 ? nxt_at <= 32'd1 : 32'(dut.length_q) >= nxt_at)));
        // The property.
        assert (sent.una == record.una);
        assert (sent.nxt - sent.una <= sent.max - sent.una);
        assert (sent.max - sent.una <= Ring + 32'd1 && sent.max - record.una >= max_at);
        if (own.length != '0 && !own.flags[SYN]) assert (own.seq - record.una + 32'(own.length) <= 32'(end_at));
      end
    end
  end

endmodule
