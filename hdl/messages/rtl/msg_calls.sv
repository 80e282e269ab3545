// A synthesized kernel's calls ↔ its engines' ports.
//
// A call completes in the cycle in which `port_ready` is high; the word of a load is valid in that
// cycle. The fields of commands are those of msg_core's registers.
// A refused send accepts no payload.
module msg_calls
  import hum_envelope_pkg::*;
  import msg_pkg::*;
  import msg_calls_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  call_t       call,
    input  logic [31:0] call_command,
    input  logic [31:0] call_bytes,
    input  logic [63:0] call_data,
    output logic        port_ready,
    output logic        port_there,    // a beat is valid, with CallGet
    output logic [7:0]  port_fault,    // of the last send
    output outcome_t    port_outcome,  // of the last receive
    output logic [63:0] port_cycles,
    output logic [63:0] port_word,     // with CallLoad
`include "msg_calls_ports.svh"
);

  logic sending, receiving;

  always_comb begin
    case (call)
      CallSend: port_ready = send_ready && !sending;
      CallPut:  port_ready = out_ready || !sending;
      CallSent: port_ready = !sending;
      CallTake: port_ready = receive_ready && !receiving;
      CallGet:  port_ready = in_valid || !receiving;
      CallEnd:  port_ready = 1'b0;
      CallLoad, CallStore: port_ready = mem_ready;
      default:  port_ready = 1'b1;
    endcase
  end

  assign port_there    = in_valid;
  assign send_valid    = call == CallSend && !sending;
  assign out_valid     = call == CallPut && sending;
  assign out_data      = call_data;
  assign receive_valid = call == CallTake && !receiving;
  assign in_ready      = call == CallGet;
  assign text_valid    = call == CallText;
  assign text          = call_command[7:0];
  assign asleep        = !port_ready && !mem_valid;
  assign mem_valid     = call == CallLoad || call == CallStore;
  assign mem_address   = call_command;
  assign mem_strobe    = call == CallStore ? call_bytes[7:0] : '0;
  assign mem_data      = call_data;
  assign port_word     = mem_word;

  assign send_command.dest          = call_command[7:0];
  assign send_command.tag           = call_command[19:8];
  assign send_command.dtype         = call_command[23:20];
  assign send_command.collective    = call_command[24];
  assign send_command.eager         = call_command[25];
  assign send_command.size          = call_bytes[23:0];
  assign receive_command.source     = call_command[7:0];
  assign receive_command.tag        = call_command[19:8];
  assign receive_command.dtype      = call_command[23:20];
  assign receive_command.collective = call_command[24];
  assign receive_command.any_source = call_command[26];
  assign receive_command.any_tag    = call_command[27];
  assign receive_command.once       = call_command[28];
  assign receive_command.room       = call_bytes[23:0];

  always_ff @(posedge clk) begin
    port_cycles <= port_cycles + 1'b1;
    if (call == CallSend && port_ready) sending <= 1'b1;
    if (call == CallTake && port_ready) receiving <= 1'b1;
    if (call == CallEnd) begin
      ended <= 1'b1;
      code  <= call_command[7:0];
    end
    if (send_done) begin
      sending    <= 1'b0;
      port_fault <= send_fault;
    end
    if (receive_done) begin
      receiving    <= 1'b0;
      port_outcome <= receive_outcome;
    end
    if (rst) begin
      sending     <= 1'b0;
      receiving   <= 1'b0;
      ended       <= 1'b0;
      code        <= '0;
      port_cycles <= '0;
    end
  end

`ifndef SYNTHESIS
  calls_stay : assert property (@(posedge clk) disable iff (rst)
      call != CallNone && !port_ready |=> $stable(call));
  one_send : assert property (@(posedge clk) disable iff (rst) send_valid |-> !sending);
  one_receive : assert property (@(posedge clk) disable iff (rst) receive_valid |-> !receiving);
  sends_end_once : assert property (@(posedge clk) disable iff (rst) send_done |-> sending);
  receives_end_once : assert property (@(posedge clk) disable iff (rst) receive_done |-> receiving);
  end_is_last : assert property (@(posedge clk) disable iff (rst) ended |=> ended && $stable(code));
`endif

endmodule
