// A kernel's port: send engine, receive engine and the bridge to the router.
//
// The kernel's side has commands, payload and outcomes: see msg_send and msg_receive.
module msg_port
  import hum_envelope_pkg::*;
  import msg_pkg::*;
(
    // The router.
`include "msg_packet_ports.svh"
    input  logic        clk,
    input  logic        rst,
    input  logic [7:0]  own,
    input  logic [8:0]  ranks,
    // Send.
    input  logic        send_valid,
    output logic        send_ready,
    input  send_t       send_command,
    input  logic        out_valid,
    output logic        out_ready,
    input  logic [63:0] out_data,
    output logic        send_done,
    output logic [7:0]  send_fault,
    // Receive.
    input  logic        receive_valid,
    output logic        receive_ready,
    input  receive_t    receive_command,
    output logic        in_valid,
    input  logic        in_ready,
    output logic [63:0] in_data,
    output logic        receive_done,
    output outcome_t    receive_outcome
);

  logic t_valid, t_ready, c_valid, c_ready, r_valid, p_valid, p_ready;
  beat_t t_beat, p_beat;
  hum_envelope_t c_head, r_head;

  msg_send u_send (
      .clk,
      .rst,
      .own,
      .ranks,
      .s_valid  (send_valid),
      .s_ready  (send_ready),
      .s_command(send_command),
      .d_valid  (out_valid),
      .d_ready  (out_ready),
      .d_data   (out_data),
      .done     (send_done),
      .fault    (send_fault),
      .m_valid  (t_valid),
      .m_ready  (t_ready),
      .m_beat   (t_beat),
      .r_valid,
      .r_head
  );

  msg_receive u_receive (
      .clk,
      .rst,
      .own,
      .s_valid  (receive_valid),
      .s_ready  (receive_ready),
      .s_command(receive_command),
      .d_valid  (in_valid),
      .d_ready  (in_ready),
      .d_data   (in_data),
      .done     (receive_done),
      .outcome  (receive_outcome),
      .p_valid,
      .p_ready,
      .p_beat,
      .c_valid,
      .c_ready,
      .c_head
  );

  msg_bridge u_bridge (.*);

`ifndef SYNTHESIS
  packets_stay : assert property (@(posedge clk) disable iff (rst)
      t_valid && !t_ready |=> t_valid && $stable(t_beat));
  replies_stay : assert property (@(posedge clk) disable iff (rst)
      c_valid && !c_ready |=> c_valid && $stable(c_head));
`endif

endmodule
