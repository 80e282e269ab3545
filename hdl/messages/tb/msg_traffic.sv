// A kernel that only sends messages to one rank and receives the same number from another,
// and checks them; with its port.
module msg_traffic
  import hum_envelope_pkg::*;
  import msg_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        go,
    input  logic        eager,
    input  logic [15:0] messages,
    input  logic [23:0] size,       // of each; a multiple of 8
    input  logic [7:0]  own,
    input  logic [7:0]  dest,
    input  logic [7:0]  source,
`include "msg_packet_ports.svh"
    output logic [15:0] received,
    output logic        wrong
);

  logic        send_valid, send_ready, out_valid, out_ready, send_done;
  logic        receive_valid, receive_ready, in_valid, receive_done;
  logic [7:0]  send_fault;
  logic [63:0] out_data, in_data;
  send_t       send_command;
  receive_t    receive_command;
  outcome_t    receive_outcome;

  msg_port u_port (
      .ranks   (9'd96),
      .in_ready(1'b1),
      .*
  );

  logic        sending, receiving;
  logic [15:0] sent;
  logic [31:0] out_beat, in_beat;

  // The next one at once.
  assign send_valid    = go && (!sending || send_done) && sent + 16'(send_done) != messages;
  assign receive_valid = go && (!receiving || receive_done) && received + 16'(receive_done) != messages;
  assign out_valid     = sending;
  assign out_data      = {own, 8'd0, sent, out_beat};

  always_comb begin
    send_command           = '0;
    send_command.dest      = dest;
    send_command.size      = size;
    send_command.eager     = eager;
    receive_command        = '0;
    receive_command.source = source;
    receive_command.room   = size;
  end

  always_ff @(posedge clk) begin
    if (sending && out_ready) out_beat <= out_beat + 1'b1;
    if (send_done) begin
      sending  <= 1'b0;
      out_beat <= '0;
      sent     <= sent + 1'b1;
      if (send_fault != '0) wrong <= 1'b1;
    end
    if (send_valid && send_ready) sending <= 1'b1;
    if (in_valid) begin
      in_beat <= in_beat + 1'b1;
      if (in_data != {source, 8'd0, received, in_beat}) wrong <= 1'b1;
    end
    if (receive_done) begin
      receiving <= 1'b0;
      in_beat   <= '0;
      received  <= received + 1'b1;
      if (receive_outcome.fault != '0 || receive_outcome.size != size || in_beat + 32'(in_valid) != {11'd0, size[23:3]}) wrong <= 1'b1;
    end
    if (receive_valid && receive_ready) receiving <= 1'b1;
    if (rst) begin
      sending   <= 1'b0;
      receiving <= 1'b0;
      wrong     <= 1'b0;
      sent      <= '0;
      received  <= '0;
      out_beat  <= '0;
      in_beat   <= '0;
    end
  end

endmodule
