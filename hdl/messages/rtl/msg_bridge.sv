// Communication bridge: a kernel's two engines ↔ its port of the router.
//
// Out: the receive engine's control packets have priority over the send engine's next packet. In:
// replies go to the send engine, other packets to the receive engine, errors to both. Every
// handshake on the router's side is registered.
//
// Latency: 1 cycle in each direction. Throughput: one beat per cycle.
module msg_bridge
  import hum_envelope_pkg::*;
  import msg_pkg::*;
(
    // The router.
`include "msg_packet_ports.svh"
    input  logic          clk,
    input  logic          rst,
    // Engines.
    input  logic          t_valid,  // packets of the send engine
    output logic          t_ready,
    input  beat_t         t_beat,
    input  logic          c_valid,  // control packets of the receive engine
    output logic          c_ready,
    input  hum_envelope_t c_head,
    output logic          r_valid,  // replies, for the send engine
    output hum_envelope_t r_head,
    output logic          p_valid,  // packets, for the receive engine
    input  logic          p_ready,
    output beat_t         p_beat
);

  logic  sending;  // within a packet of the send engine
  logic  out_valid, out_ready;
  beat_t out;

  assign out_valid = sending ? t_valid : c_valid || t_valid;
  assign out       = !sending && c_valid ? '{last: 1'b1, data: c_head} : t_beat;
  assign c_ready   = out_ready && !sending;
  assign t_ready   = out_ready && (sending || !c_valid);

  always_ff @(posedge clk) begin
    if (t_valid && t_ready) sending <= !t_beat.last;
    if (rst) sending <= 1'b0;
  end

  fifo #(
      .T(beat_t),
      .DEPTH(4)
  ) u_out (
      .clk,
      .rst,
      .s_valid  (out_valid && out_ready),
      .s_ready  (out_ready),
      .s_payload(out),
      .m_valid,
      .m_ready,
      .m_payload(m_beat)
  );

  logic  in_valid, in_ready, midway, answer;
  beat_t in;

  fifo #(
      .T(beat_t),
      .DEPTH(4)
  ) u_in (
      .s_valid  (s_valid && s_ready),
      .s_payload(s_beat),
      .m_valid  (in_valid),
      .m_ready  (in_ready),
      .m_payload(in),
      .*
  );

  assign r_head   = hum_envelope_t'(in.data);
  assign answer   = !midway && (r_head.kind == PacketClear || r_head.kind == PacketDone);
  assign r_valid  = in_valid && in_ready && !midway && (answer || r_head.kind == PacketError);
  assign p_valid  = in_valid && !answer;
  assign p_beat   = in;
  assign in_ready = answer || p_ready;

  always_ff @(posedge clk) begin
    if (in_valid && in_ready) midway <= !in.last;
    if (rst) midway <= 1'b0;
  end

`ifndef SYNTHESIS
  packets_are_whole : assert property (@(posedge clk) disable iff (rst) sending |-> !c_ready);
  output_stays : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_beat));
  input_stays : assert property (@(posedge clk) disable iff (rst)
      p_valid && !p_ready |=> p_valid && $stable(p_beat));
  replies_have_one_beat : assert property (@(posedge clk) disable iff (rst) r_valid |-> in.last);
`endif

endmodule
