// tcp_step for its bench: an event of a session takes the phases COMPARE and STEP; the structs signal by signal.
module tcp_step_top
  import net_pkg::*;
  import tcp_pkg::*;
#(
    parameter int RX_RING_BITS = 21,
    parameter int TX_RING_BITS = 21,
    parameter int MSS = 1460,
    parameter bit ACTIVE_OPEN = 1,
`include "tcp_widths.svh"
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        begins,         // of an event; its effect is there three cycles later
    input  logic [1:0]  kind,
    // The segment.
    input  logic [31:0] seq,
    input  logic [31:0] ack,
    input  logic [15:0] window_in,
    input  logic [7:0]  flags,
    input  logic [15:0] length,
    input  logic        exact,
    input  logic        in_window,
    input  logic        nearby,
    // The record, before and after.
    input  logic [2:0]  state,
    input  logic [31:0] una,
    input  logic [31:0] nxt,
    input  logic [31:0] max,
    input  logic [31:0] wl1,
    input  logic [15:0] window,
    input  logic        closing,
    input  logic        timing,
    input  logic [22:0] timed,
    input  logic [15:0] timed_from,
    input  logic        measured,
    input  logic [18:0] srtt,
    input  logic [17:0] rttvar,
    input  logic [15:0] rto,
    input  logic [15:0] timer,
    input  logic [3:0]  retries,
    input  logic [1:0]  unacked,
    input  logic [7:0]  ack_wait,
    input  logic [9:0]  idle,
    output logic [2:0]  state_after,
    output logic [31:0] una_after,
    output logic [31:0] nxt_after,
    output logic [31:0] max_after,
    output logic [31:0] wl1_after,
    output logic [15:0] window_after,
    output logic        closing_after,
    output logic [22:0] fin_after,
    output logic        timing_after,
    output logic        measured_after,
    output logic [18:0] srtt_after,
    output logic [17:0] rttvar_after,
    output logic [15:0] rto_after,
    output logic [15:0] timer_after,
    output logic [3:0]  retries_after,
    output logic [9:0]  idle_after,
    // The rest of the session.
    input  logic [22:0] written_to,
    input  logic        finish,
    input  logic        working,
    input  logic [15:0] now,
    input  logic        tick_slow,
    input  logic        crowded,
    // The effect.
    output logic        acks,
    output logic        probes,
    output logic        dies,
    output logic        resets,
    output logic        wakes,
    output logic        progress,
    output logic        syns,
    output logic        begun,
    output logic        establishes
);
`include "tcp_types.svh"

  logic [1:0] step;  // of the event: 1 in COMPARE, 2 in STEP, 3 in ENDS
  phase_t phase;
  head_t head;
  tcb_t record, stepped;
  report_t report;
  stream_t stream_in;
  effect_t effect;
  logic unused_ended, unused_work, unused_overlong;
  logic [31:0] unused_stream;
  logic [TxBits-1:0] unused_end, unused_flight;
  logic [RxBits-1:0] unused_offered, unused_span;
  logic [15:0] unused_window;

  always_ff @(posedge clk) step <= rst ? '0 : begins ? 2'd1 : step == '0 ? '0 : step + 2'd1;
  assign phase = step == 2'd1 ? COMPARE : step == 2'd2 ? STEP : step == 2'd3 ? ENDS : IDLE;

  always_comb begin
    head = '0;
    {head.seq, head.ack, head.window, head.flags, head.length} = {seq, ack, window_in, flags, length};
    record = '0;
    record.state = state_t'(state);
    {record.una, record.nxt, record.max, record.wl1, record.window} = {una, nxt, max, wl1, window};
    {record.closing, record.timing, record.timed, record.timed_from} = {closing, timing, timed, timed_from};
    {record.measured, record.srtt, record.rttvar, record.rto, record.timer} = {measured, srtt, rttvar, rto, timer};
    {record.retries, record.unacked, record.ack_wait, record.idle} = {retries, unacked, ack_wait, idle};
    record.mss = 14'(MSS);
    record.cwnd = CwndBits'(10 * MSS);
    record.ssthresh = CwndMost;
    report = '{finish: finish, read_to: '0, written_to: written_to};
    stream_in = '0;
  end

  tcp_step #(
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS),
      .MSS         (MSS),
      .ACTIVE_OPEN (ACTIVE_OPEN)
  ) u_step (
      .clk,
      .phase,
      .kind        (event_t'(kind)),
      .head,
      .kept        (1'b0),
      .gap         (1'b0),
      .fin_in      (1'b0),
      .exact,
      .in_window,
      .nearby,
      .record_bits (record),
      .report_bits (report),
      .stream_in,
      .mid_request (1'b0),
      .working,
      .yields      (1'b0),
      .now,
      .tick_slow,
      .evicting    (1'b0),
      .wanted      (1'b0),
      .crowded,
      .stream      (unused_stream),
      .stream_ended(unused_ended),
      .out_end     (unused_end),
      .offered_left(unused_offered),
      .flight      (unused_flight),
      .in_work     (unused_work),
      .overlong    (unused_overlong),
      .stepped_bits(stepped),
      .effect,
      .window_out  (unused_window),
      .window_span (unused_span)
  );

  assign state_after = stepped.state;
  assign {una_after, nxt_after, max_after, wl1_after} = {stepped.una, stepped.nxt, stepped.max, stepped.wl1};
  assign {window_after, closing_after, fin_after} = {stepped.window, stepped.closing, stepped.fin_at};
  assign {timing_after, measured_after, srtt_after, rttvar_after} = {stepped.timing, stepped.measured, stepped.srtt, stepped.rttvar};
  assign {rto_after, timer_after, retries_after, idle_after} = {stepped.rto, stepped.timer, stepped.retries, stepped.idle};
  assign {acks, probes, dies, resets, wakes} = {effect.ack, effect.probe, effect.die, effect.reset, effect.wake};
  assign {progress, syns, begun, establishes} = {effect.progress, effect.syn, effect.begins, effect.establishes};
endmodule
