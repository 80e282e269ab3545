// What a session sends after an event, and its record after that, in four phases: ENDS, the end of the session, and the
// distances between positions; LENGTH, the amount of data; FLAGS; SEND, the segment and the record.
//
// hdl/formal/tcp_transmit_f.sv proves that una, nxt and max stay in this order.
//
// Parameters: as in tcp_engine. Latency: four cycles.
module tcp_transmit
  import net_pkg::*;
  import tcp_pkg::*;
#(
    parameter int RX_RING_BITS = 21,
    parameter int WINDOW = 1 << RX_RING_BITS,
    parameter int TX_RING_BITS = 21,
    parameter int MSS = 1460,
    parameter bit ACTIVE_OPEN = 1,
`include "tcp_widths.svh"
) (
    input  logic               clk,
    input  phase_t             phase,
    input  event_t             kind,
    input  logic               fin_in,        // the segment carries the end of the peer's stream
    input  logic [15:0]        now,
    input  peer_t              peer,
    // From tcp_step.
    input  logic [TcbBits-1:0] stepped_bits,
    input  effect_t            effect,
    input  logic [31:0]        stream,
    input  logic               stream_ended,
    input  logic [TxBits-1:0]  out_end,
    input  logic [RxBits-1:0]  offered_left,
    input  logic [15:0]        window_out,
    input  logic [RxBits-1:0]  window_span,
    // In ENDS: the session ends, the application may wait for the change.
    output logic               dies,
    output logic               wakes,
    // After ENDS.
    output effect_t            effect_q,      // with the end of a session whose streams have both ended
    output logic               opening,       // the connection is being opened by the board
    output logic [31:0]        una,
    output logic [31:0]        recover,       // until the session is open, the peer's first byte
    // In SEND.
    output logic               emit,          // a segment:
    output segment_t           own,
    output logic [TcbBits-1:0] sent_bits,     // the record after it
    output logic               go_on,         // there may be more data to send
    output logic               alert,         // a timer of the session runs
    output logic               repeats        // the segment's data was sent before
);

`include "tcp_types.svh"

  tcb_t stepped, settled, settled_q, sent;
  assign stepped = stepped_bits;
  assign sent_bits = sent;
  assign una = settled_q.una;
  assign recover = 32'(settled_q.recover);

  // ---- ENDS ----
  logic [18:0] rto;
  tx_t tx_end, unsent, owed;  // the differences negative once the FIN is out
  // inflight_more: with a segment.
  tx_t avail, inflight, inflight_more, unacknowledged, sent_out, may_fly;
  rx_t right;
  logic past_end, ack_q, again_q, probe_q, die_q, reset_q, syn_q;

  always_comb begin
    // Read only in this phase; in the model, the other phases skip it.
    {settled, dies, wakes, rto, tx_end, unsent, owed} = 'x;
    if (phase == ENDS) begin
      settled = stepped;
      dies = effect.die;
      wakes = effect.wake || effect.die;
      rto = 19'(stepped.srtt[18:3]) + 19'(stepped.rttvar);
      if (effect.sampled)
        settled.rto = rto < 19'(RTO_LEAST_MS) ? 16'(RTO_LEAST_MS) :
                      rto > 19'(RTO_MOST_MS) ? 16'(RTO_MOST_MS) : rto[15:0];
      if (effect.progress) settled.timer = effect.whole ? 16'd0 : settled.rto;
      // Both streams have ended and both ends have been acknowledged.
      if (stepped.closing && tx_t'(stepped.una) == stepped.fin_at + tx_t'(1) && stream_ended && stepped.state == OPEN && !effect.die) begin
        wakes = 1'b1;
        if (stepped.active) begin
          settled.state = TIME_WAIT;
          settled.idle  = '0;
        end else dies = 1'b1;  // the last ACK is sent and the session ends
      end
      tx_end = stepped.closing ? stepped.fin_at : out_end;
      unsent = tx_end - tx_t'(stepped.nxt);
      owed = tx_end - tx_t'(stepped.una);
    end
  end

  always_ff @(posedge clk) begin
    if (phase == ENDS) begin
      settled_q <= settled;
      // The peer of a session that ends because both streams have ended still needs its last ACK.
      ack_q <= (effect.ack && !dies) || (dies && kind == EVENT_SEGMENT && fin_in);
      again_q <= effect.again;
      probe_q <= effect.probe;
      die_q <= dies;
      reset_q <= effect.reset;
      syn_q <= effect.syn;
      effect_q <= effect;
      effect_q.die <= dies;
      opening <= ACTIVE_OPEN && stepped.state inside {SYN_SENT, SYN_RECEIVED};
      past_end <= unsent[TxBits-1];
      // After the FIN there is no more data.
      avail <= unsent[TxBits-1] ? '0 : unsent;
      inflight <= tx_t'(stepped.nxt) - tx_t'(stepped.una);
      inflight_more <= tx_t'(stepped.nxt) - tx_t'(stepped.una) + tx_t'(stepped.mss);
      may_fly <= unscaled(stepped.window, stepped.scaling) < 23'(stepped.cwnd) ? tx_t'(unscaled(stepped.window, stepped.scaling)) : tx_t'(stepped.cwnd);
      unacknowledged <= owed[TxBits-1] ? '0 : owed;
      sent_out <= tx_t'(stepped.max) - tx_t'(stepped.una);
      right <= rx_t'(stream) + window_span;
    end
  end

  // ---- LENGTH: the amount of data to send now ----
  tx_t limit;
  logic blocked, beyond_limit, segment_fits;
  logic [15:0] length, oldest, length_q;
  tx_t unreached;                        // previously sent data from the start of this transmission
                                         // on
  logic resend, resend_q, send_data, window_opens, widened;
  logic [31:0] from;

  always_comb begin
    // The minimum of the peer's window and the congestion window.
    limit = may_fly - inflight;
    blocked = inflight >= may_fly;
    // The same as `avail` compared with `limit`, computed in parallel.
    beyond_limit = unacknowledged > may_fly;
    segment_fits = may_fly >= inflight_more;
    length = avail > tx_t'(settled_q.mss) && segment_fits ? 16'(settled_q.mss) : beyond_limit ? 16'(limit) : 16'(avail);
    // No small segments while more data follows (RFC 9293 section 3.8.6.2.1),
    // unless no data is in flight.
    if (blocked || (inflight != '0 && beyond_limit && !segment_fits)) length = '0;
    oldest = unacknowledged < sent_out ? 16'(unacknowledged) : 16'(sent_out);
    if (unacknowledged > tx_t'(settled_q.mss) && sent_out > tx_t'(settled_q.mss)) oldest = 16'(settled_q.mss);
    resend = again_q || probe_q;
    if (again_q) length = oldest;
    else if (probe_q) length = 16'(unacknowledged != '0);
    // Notify a peer whose window was small that there is space again.
    window_opens = settled_q.state == OPEN && !die_q && !stream_ended &&
        offered_left < rx_t'(WINDOW > 32'h0000_ffff ? 1 << 14 : WINDOW / 2);
    widened = right - settled_q.offered >= rx_t'({settled_q.mss, 1'b0});
  end

  logic live, send_ack;
  always_ff @(posedge clk) begin
    if (phase == LENGTH) begin
      live <= settled_q.state == OPEN && !die_q;
      length_q <= length;
      unreached <= sent_out - (resend ? '0 : inflight);
      resend_q <= resend;
      from <= resend ? settled_q.una : settled_q.nxt;
      send_ack <= ack_q || (window_opens && widened);
    end
  end

  // ---- FLAGS ----
  logic [31:0] sum, sum_q;
  logic send_fin, push, all_sent, more;  // all available data is sent; there may be more
  logic advances;                        // the transmission ends at `nxt` or later
  logic first_time, first_end;           // the transmission begins after all sent data,
  logic beyond;                          // or ends there; with a FIN if its end is that position
  logic idle_timer, stalled;
  assign sum = from + 32'(length_q);
  assign all_sent = tx_t'(length_q) == avail;

  always_ff @(posedge clk) begin
    if (phase == FLAGS) begin
      sum_q <= sum;
      send_data <= live && length_q != '0;
      // The remaining length is compared, not the end position.
      send_fin <= live && settled_q.closing && (resend_q ? length_q == '0 : all_sent && !past_end);
      push <= resend_q ? tx_t'(length_q) == unacknowledged : all_sent;
      more <= !resend_q && !all_sent;
      // Only the FIN of a finished stream is retransmitted.
      advances <= !resend_q || (length_q == '0 ? inflight <= tx_t'(1) : tx_t'(length_q) >= inflight);
      first_time <= unreached == '0;
      beyond <= tx_t'(length_q) > unreached;
      first_end <= tx_t'(length_q) == unreached;
      idle_timer <= settled_q.timer == '0;
      stalled <= avail != '0 && settled_q.window == '0;
    end
  end

  // ---- SEND ----
  logic [31:0] after;

  always_comb begin
    {sent, own, go_on, after} = 'x;
    if (phase == SEND) begin
      sent = settled_q;
      own = '0;
      own.mac = peer.mac;
      own.ip = peer.ip;
      own.port = peer.port;
      own.own_port = peer.own_port;
      own.seq = send_data || send_fin ? from : settled_q.max;
      own.ack = stream;
      own.window = window_out;
      own.flags[ACK] = 1'b1;
      own.flags[PSH] = send_data && push;
      own.flags[FIN] = send_fin;
      own.length = send_data ? length_q : 16'd0;
      if (reset_q) begin
        own.flags = 8'd0;
        own.flags[RST] = 1'b1;
        own.flags[ACK] = 1'b1;
        own.seq = settled_q.nxt;
        own.length = '0;
      end

      if (syn_q) begin
        own.flags[SYN] = 1'b1;
        own.flags[ACK] = settled_q.state == SYN_RECEIVED;
        own.flags[PSH] = 1'b0;
        own.seq = settled_q.una;
        own.window = first_offer(WINDOW);
        own.with_mss = 1'b1;
        own.with_scale = settled_q.state == SYN_SENT || settled_q.scaling != '0;
      end

      go_on = 1'b0;
      after = sum_q + 32'(send_fin);
      if (send_data || send_fin) begin
        if (advances) sent.nxt = after;
        if (beyond || (send_fin && first_end)) begin
          sent.max = after;
          if (!settled_q.timing && first_time) begin
            sent.timing = 1'b1;
            sent.timed = tx_t'(after);
            sent.timed_from = now;
          end
        end
        if (idle_timer) sent.timer = settled_q.rto;
        // There may be more data: requeue the session after the others.
        go_on = more && send_data;
        if (again_q) go_on = 1'b1;
      end else if (stalled && idle_timer) sent.timer = settled_q.rto;
      if (syn_q && idle_timer) sent.timer = settled_q.rto;
      if (die_q) sent.state = DEAD;
      if (send_data || send_fin || send_ack) begin
        sent.unacked = '0;
        sent.offered = right;
      end
    end
  end

  assign emit = send_data || send_fin || send_ack || reset_q || syn_q;
  assign repeats = send_data && !reset_q && precedes(from, settled_q.max);
  // A running timer is never set to zero.
  assign alert = !die_q && (!idle_timer || send_data || send_fin || stalled || syn_q ||
      (settled_q.unacked != '0 && !send_ack) || settled_q.state == TIME_WAIT);

`ifndef SYNTHESIS
  // Positions stay in their order: acknowledged, sent next, ever sent.
  una_precedes_nxt : assert property (@(posedge clk)
      phase == SEND && settled_q.state inside {OPEN, TIME_WAIT} |-> !precedes(sent.nxt, sent.una));
  nxt_precedes_max : assert property (@(posedge clk)
      phase == SEND && settled_q.state inside {OPEN, TIME_WAIT} |-> !precedes(sent.max, sent.nxt));
  // Data is not longer than a segment.
  data_fits_a_segment : assert property (@(posedge clk)
      phase == SEND && send_data |-> 14'(length_q) <= settled_q.mss);
`endif

endmodule
