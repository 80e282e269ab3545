// The effect of an event on the record of its session (RFC 9293 section 3.10), in the phases COMPARE, in which
// positions are compared, and STEP, in which the record changes. The congestion window is tcp_congestion's.
//
// Parameters: as in tcp_engine. Latency: two cycles.
module tcp_step
  import net_pkg::*;
  import tcp_pkg::*;
#(
    parameter int RX_RING_BITS = 21,
    parameter int WINDOW = 1 << RX_RING_BITS,
    parameter int TX_RING_BITS = 21,
    parameter int MSS = 1460,
    parameter int SCALE = 0,
    parameter bit ACTIVE_OPEN = 1,
    parameter int IDLE_MS = 60000,
    parameter int REQUEST_MS = 10000,
    parameter int IDLE_WANTED_MS = 1000,
    parameter int REQUEST_WANTED_MS = 5000,
    parameter int LINGER_MS = 5000,
    parameter int LINGER_WANTED_MS = 1500,
    parameter int TIME_WAIT_MS = 500,
    parameter int DELAYED_ACK_MS = 5,
`include "tcp_widths.svh"
) (
    input  logic              clk,
    input  phase_t            phase,
    input  event_t            kind,
    // The segment, as in tcp_engine's ports.
    input  head_t             head,
    input  logic              kept,
    input  logic              gap,
    input  logic              fin_in,
    input  logic              exact,
    input  logic              in_window,
    input  logic              nearby,
    // The session: its record, what application and tcp_rx have reported.
    input  logic [TcbBits-1:0]    record_bits,
    input  logic [ReportBits-1:0] report_bits,
    input  stream_t           stream_in,
    input  logic              mid_request,
    input  logic              working,
    input  logic              yields,
    input  logic [15:0]       now,
    input  logic              tick_slow,     // the tick is one of 64 ms
    input  logic              evicting,      // the event is the eviction of the session
    input  logic              wanted,        // a connection found no free session
    input  logic              crowded,       // few sessions are free
    // After COMPARE.
    output logic [31:0]       stream,        // received,
    output logic              stream_ended,  // and whether that is all
    output logic [TxBits-1:0] out_end,       // written by the application
    output logic [RxBits-1:0] offered_left,  // of the advertised window
    output logic [TxBits-1:0] flight,        // data in flight
    output logic              in_work,       // the application works on the session
    output logic              overlong,      // its request, or its last reply, takes too long
    // After STEP.
    output logic [TcbBits-1:0] stepped_bits,
    output effect_t           effect,
    output logic [15:0]       window_out,    // to advertise, scaled,
    output logic [RxBits-1:0] window_span    // and in bytes
);

`include "tcp_types.svh"

  tcb_t record, stepped, avoided;
  report_t report;
  assign record = record_bits;
  assign report = report_bits;
  assign stepped_bits = stepped;

  // ---- COMPARE ----
  logic finished;
  tx_t acked;
  logic acked_any, acked_far;  // any data; more than the size of the ring
  logic some_acked, whole;     // part of the data in flight, or all of it
  logic [TxBits:0] left;       // in flight and not acknowledged, negative if never sent
  tx_t out;                    // in flight
  logic out_long;              // half of the data in flight exceeds two segments
  rx_t used;
  logic ack_beyond_next, ack_of_unsent, newer, same_window, sampled, slow_start, before_recover, at_recover;
  logic acked_all, acked_quantum, received_quantum, in_request;  // progress
  logic yielding;  // the session closes after its present reply
  logic idle_over, wanted_over, linger_over, wait_over, timing_out, timer_runs, ack_due, shut, opens;  // shut: the peer's window; opens: it does
  logic [15:0] took, took_q;
  logic signed [18:0] took_more;  // difference from the mean round trip
  logic signed [CwndBits:0] to_grow;    // data to be acknowledged until the window grows by a
                                        // segment

  assign took = now - record.timed_from;
  assign out = tx_t'(record.max) - tx_t'(record.una);
  assign left = (TxBits + 1)'(record.max) - (TxBits + 1)'(head.ack);

  // Difference of positions that are at most a ring apart.
  function automatic logic earlier(input tx_t a, input tx_t b);
    tx_t difference;
    difference = a - b;
    return difference[TxBits-1];
  endfunction

  always_ff @(posedge clk) begin
    if (phase == COMPARE) begin
      acked <= tx_t'(head.ack) - tx_t'(record.una);
      acked_any <= head.ack != record.una;
      acked_far <= |((head.ack - record.una) >> TxBits);
      // The same as `acked` compared with `flight`, computed in parallel.
      some_acked <= !(|((head.ack - record.una) >> TxBits)) && !left[TxBits];
      whole <= tx_t'(left) == '0;
      flight <= out;
      out_long <= 23'(out) >> 1 > 23'({record.mss, 1'b0});
      ack_beyond_next <= precedes(record.nxt, head.ack);
      ack_of_unsent <= !precedes(head.ack, record.max);
      newer <= !precedes(head.seq, record.wl1);
      same_window <= head.window == record.window;
      sampled <= record.timing && !earlier(tx_t'(head.ack), record.timed);
      took_more <= $signed({3'b000, took}) - $signed({3'b000, record.srtt[18:3]});
      slow_start <= record.cwnd < record.ssthresh;
      to_grow <= $signed({1'b0, record.cwnd}) - $signed({1'b0, record.grown});
      before_recover <= earlier(tx_t'(head.ack), tx_t'(record.recover));
      at_recover <= tx_t'(head.ack) == tx_t'(record.recover);
      acked_all <= tx_t'(head.ack) == report.written_to;
      acked_quantum <= |((tx_t'(head.ack) ^ tx_t'(record.una)) >> PROGRESS_BITS);
      received_quantum <= 4'(stream_in.next >> PROGRESS_BITS) != record.progress;
      in_request <= mid_request;
      idle_over <= IDLE_MS != 0 && record.idle >= (mid_request ? slow(REQUEST_MS) : slow(IDLE_MS)) && !working;
      wanted_over <= IDLE_MS != 0 && (record.idle >= slow(IDLE_WANTED_MS) || record.busy >= 8'(slow(REQUEST_WANTED_MS))) && !working;
      overlong <= IDLE_MS != 0 && record.busy >= 8'(slow(REQUEST_WANTED_MS));
      yielding <= yields || record.closing;
      linger_over <= record.idle >= (wanted ? slow(LINGER_WANTED_MS) : slow(LINGER_MS));
      wait_over <= crowded || record.idle >= slow(TIME_WAIT_MS);
      in_work <= working;
      timing_out <= record.timer == 16'd1;
      timer_runs <= record.timer != '0;
      ack_due <= record.ack_wait == '0;
      shut <= record.window == '0;
      opens <= record.window == '0 && head.window != '0;
      used <= rx_t'(stream_in.next) - report.read_to;
      offered_left <= record.offered - rx_t'(stream_in.next);
      stream <= stream_in.next;
      stream_ended <= stream_in.ended;
      out_end <= report.written_to;
      finished <= report.finish;
      // The peer's SYN gives the start of its stream.
      // No data is accepted before the session is open.
      if (ACTIVE_OPEN && record.state == SYN_SENT) stream <= head.seq + 32'd1;
      if (ACTIVE_OPEN && record.state inside {SYN_SENT, SYN_RECEIVED}) begin
        stream_ended <= 1'b0;
        used <= '0;
      end
    end
  end

  // ---- STEP ----
  logic again;
  logic acks;  // the segment's acknowledgment counts

  assign acks = kind == EVENT_SEGMENT && !(ACTIVE_OPEN && record.state inside {SYN_SENT, SYN_RECEIVED}) && !head.flags[RST] &&
      !head.flags[SYN] && nearby && head.flags[ACK];

  tcp_congestion #(
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS),
      .MSS         (MSS),
      .ACTIVE_OPEN (ACTIVE_OPEN)
  ) u_congestion (
      .active     (phase == STEP),
      .record_bits(record),
      .acked_new  (acks && acked_any && some_acked),
      .acked,
      .before_recover,
      .at_recover,
      .slow_start,
      .to_grow,
      .duplicate  (acks && !acked_any && flight != '0 && head.length == '0 && !head.flags[FIN] && same_window && !record.recovering),
      .timed_out  (kind == EVENT_TICK && record.state != TIME_WAIT && timer_runs && timing_out &&
                   !(ACTIVE_OPEN && record.state != OPEN) && !shut),
      .flight,
      .out_long,
      .avoided_bits(avoided),
      .again
  );

  // The window for which there is space.
  rx_t space, room_in;
  logic [15:0] window_now;
  assign space = rx_t'(1 << RX_RING_BITS) - used;
  assign room_in = space > rx_t'(WINDOW) ? rx_t'(WINDOW) : space;
  assign window_now = used > rx_t'(1 << RX_RING_BITS) ? 16'd0 : record.scaling != '0 ? 16'(32'(room_in) >> SCALE) :
      32'(room_in) > 32'h0000_ffff ? 16'hffff : 16'(room_in);

  always_ff @(posedge clk) begin
    if (phase == COMPARE) took_q <= took;
    if (phase == STEP) begin
      tcb_t after;
      logic ack_now, probe, die, reset_out, wake, advanced, syn, begin_now, establish;
      logic [15:0] backed_off;
      logic [17:0] took_apart;
      after = avoided;
      ack_now = 1'b0;
      probe = 1'b0;      // send one byte into a closed window
      die = 1'b0;
      reset_out = 1'b0;
      wake = 1'b0;
      advanced = 1'b0;   // new data was acknowledged
      syn = 1'b0;
      begin_now = 1'b0;  // the peer's stream has begun
      establish = 1'b0;  // a connection that the board opens is open
      backed_off = record.rto > 16'(RTO_MOST_MS / 2) ? 16'(RTO_MOST_MS) : {record.rto[14:0], 1'b0};
      took_apart = took_more < 0 ? 18'(-took_more) : 18'(took_more);

      if (finished && !record.closing && record.state == OPEN) begin
        after.closing = 1'b1;
        after.fin_at  = out_end;
        after.active  = !stream_ended;
        after.idle    = '0;
        after.busy    = '0;
      end

      case (kind)
        EVENT_SEGMENT: begin
          if (ACTIVE_OPEN && record.state == SYN_SENT) begin
            // RFC 9293 section 3.10.7.3. An acknowledgment of anything except the own SYN is
            // invalid.
            if (head.flags[RST]) die = head.flags[ACK];
            else if (head.flags[SYN]) begin
              begin_now = 1'b1;
              establish = head.flags[ACK];
              syn = !establish;
              after.state = SYN_RECEIVED;
              after.recover = RecoverBits'(stream);
              after.wl1 = head.seq;
              after.window = head.window;
              after.scaling = scaling_of(head.scaled, head.scale);
              after.offered = rx_t'(stream + 32'(first_offer(WINDOW)));
              after.mss = mss_of(mss_index(head.mss));
              // After a lost SYN the initial window is one segment (RFC 5681 section 3.1).
              after.cwnd = record.retries != '0 ? capped(23'(after.mss)) : first_window(mss_index(head.mss));
            end
          end else if (ACTIVE_OPEN && record.state == SYN_RECEIVED) begin
            if (head.flags[RST]) die = exact;
            else if (head.flags[ACK]) establish = acked_any && !acked_far && acked == tx_t'(1);
            else syn = head.flags[SYN];
          end else if (head.flags[RST]) begin
            // RFC 5961 section 3: only the exact position resets;
            // another position in the window gets a challenge ACK.
            if (exact) die = 1'b1;
            else if (in_window) ack_now = 1'b1;
          end else if (head.flags[SYN]) begin
            // In TIME_WAIT the peer opens a new connection; its next SYN finds the session gone.
            if (record.state == TIME_WAIT) die = 1'b1;
            else ack_now = 1'b1;
          end else if (!nearby) ack_now = 1'b1;
          else if (head.flags[ACK]) begin
            if (acked_any && some_acked) begin
              advanced = 1'b1;
              after.una = head.ack;
              if (ack_beyond_next) after.nxt = head.ack;
              after.retries = '0;
              if (acked_all || acked_quantum) after.idle = '0;
              wake = 1'b1;
            end else if (acked_any && ack_of_unsent) ack_now = 1'b1;
            if (newer && some_acked) begin
              after.window = head.window;
              after.wl1 = head.seq;
              // A peer that acknowledges a probe is alive.
              // Data sent into the closed window is retransmitted.
              if (shut) after.retries = '0;
              if (opens) after.nxt = after.una;
            end
            if (kept) begin
              if (!record.closing && (!in_request || received_quantum)) begin
                after.idle = '0;
                after.progress = 4'(stream >> PROGRESS_BITS);
              end
              if (!record.closing && !in_request) after.busy = '0;
              after.unacked = record.unacked + 2'd1;
              if (record.unacked == '0) after.ack_wait = 8'(DELAYED_ACK_MS);
              // An ACK at least for every second segment,
              // and for segments that fill a gap (RFC 5681 section 4.2).
              if (record.unacked != '0 || gap) ack_now = 1'b1;
            end
            if (fin_in) ack_now = 1'b1;
            // After a gap, a repetition or a probe: acknowledge the expected position (RFC 9293
            // section 3.10.7.4).
            if (!kept && !fin_in && (head.length != '0 || head.flags[FIN] || !exact)) ack_now = 1'b1;
          end
        end
        EVENT_TICK: begin
          // The time limit for reading a reply starts when the reply is complete.
          if (in_work) after.idle = '0;
          else if (tick_slow) after.idle = (&record.idle) ? record.idle : record.idle + 10'd1;
          if (tick_slow) after.age = (&record.age) ? record.age : record.age + 10'd1;
          if (in_work) after.busy = '0;
          else if (tick_slow) after.busy = !in_request && !(yielding && flight != '0) ? '0 :
              (&record.busy) ? record.busy : record.busy + 8'd1;
          if (record.unacked != '0) begin
            after.ack_wait = record.ack_wait - 8'd1;
            if (ack_due) ack_now = 1'b1;
          end
          if (record.state == TIME_WAIT) die = wait_over;
          else begin
            if (record.closing && linger_over) begin
              die = 1'b1;
              reset_out = 1'b1;
            end
            if (evicting && wanted_over && record.state == OPEN &&
                (in_request || flight == '0 || (record.closing && overlong))) begin
              die = 1'b1;
              reset_out = 1'b1;
            end else if (!record.closing && (idle_over || (evicting && wanted_over)) && record.state == OPEN) begin
              after.closing = 1'b1;
              after.fin_at  = out_end;
              after.active  = !stream_ended;
              after.idle    = '0;
              after.busy    = '0;
              wake = 1'b1;
            end
            if (timer_runs) begin
              after.timer = record.timer - 16'd1;
              if (timing_out) begin
                after.timer = backed_off;
                after.rto = backed_off;
                after.retries = record.retries + 4'd1;
                after.timing = 1'b0;  // Karn: retransmissions are not timed
                if (ACTIVE_OPEN && record.state != OPEN) begin
                  syn = 1'b1;
                  die = record.retries == 4'(CONNECT_RETRIES);
                end else if (shut) probe = 1'b1;
                else after.nxt = record.una;
                if (record.state == OPEN && record.retries == 4'(RETRIES)) begin
                  die = 1'b1;
                  reset_out = 1'b1;
                end
              end
            end
          end
        end
        default: syn = ACTIVE_OPEN && record.state == SYN_SENT && !timer_runs;
      endcase

      if (establish) begin
        advanced = 1'b1;
        ack_now = 1'b1;
        after.state = OPEN;
        after.una = head.ack;
        after.retries = '0;
        if (record.retries != '0) after.rto = 16'(RTO_LOST_SYN_MS);
      end
      if (advanced && sampled) begin
        after.timing = 1'b0;
        after.measured = 1'b1;
        if (!record.measured) begin
          after.srtt   = {took_q, 3'b000};
          after.rttvar = {1'b0, took_q, 1'b0};
        end else begin
          after.srtt   = 19'($signed({1'b0, record.srtt}) + 20'(took_more));
          after.rttvar = record.rttvar - (record.rttvar >> 2) + took_apart;
        end
      end

      stepped <= after;
      effect <= '{
        ack:         ack_now && !die,
        again:       again,
        probe:       probe,
        die:         die,
        reset:       reset_out,
        wake:        wake,
        progress:    advanced,
        sampled:     advanced && sampled,
        whole:       whole,
        syn:         syn && !die,
        begins:      begin_now,
        establishes: establish
      };
      window_out <= window_now;
      window_span <= record.scaling != '0 ? rx_t'(window_now) << SCALE : rx_t'(window_now);
    end
  end

`ifndef SYNTHESIS
  // A session is reset only when it ends.
  resets_end_sessions : assert property (@(posedge clk)
      phase == ENDS |-> !effect.reset || effect.die);
  // The peer acknowledges only what was sent.
  acknowledged_data_was_sent : assert property (@(posedge clk)
      phase == ENDS && effect.progress &&
      !effect.establishes |-> !precedes(stepped.max, stepped.una));
  // The congestion window changes for one reason at a time.
  one_reason : assert property (@(posedge clk)
      phase == STEP |->
      $onehot0({u_congestion.acked_new, u_congestion.duplicate, u_congestion.timed_out}));
`endif

endmodule
