// A kernel that returns every message to its sender, with its tag: a minimal example in RTL.
//
// Ports: those of every kernel of a live board, see README.md. Messages of up to DEPTH beats; a
// longer one, or a fault, ends the kernel with the fault's number. It never ends by itself.
module msg_echo
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int DEPTH = 8192
) (
`include "msg_kernel_ports.svh"
);

  localparam int A = $clog2(DEPTH);

  typedef enum logic [2:0] { Ask, Take, Send, Give, Over } state_t;

  state_t       state;
  outcome_t     message;
  logic [A:0]   beat;
  logic [A-1:0] next;
  logic [63:0]  memory[DEPTH];

  assign receive_valid = state == Ask;
  assign in_ready      = state == Take;
  assign send_valid    = state == Send;
  assign out_valid     = state == Give;
  assign text_valid    = 1'b0;
  assign text          = '0;
  assign mem_valid     = 1'b0;
  assign mem_address   = '0;
  assign mem_strobe    = '0;
  assign mem_data      = '0;
  assign ended         = state == Over;
  assign asleep        = state == Ask || state == Take || state == Over;
  // The visible beat, or the one after it.
  assign next          = beat[A-1:0] + A'(state == Give && out_ready);

  always_comb begin
    receive_command            = '0;
    receive_command.any_source = 1'b1;
    receive_command.any_tag    = 1'b1;
    receive_command.room       = 24'(DEPTH * 8);
    send_command               = '0;
    send_command.dest          = message.source;
    send_command.tag           = message.tag;
    send_command.size          = message.size;
  end

  always_ff @(posedge clk) begin
    if (in_valid && in_ready) memory[beat[A-1:0]] <= in_data;
    out_data <= memory[next];
  end

  always_ff @(posedge clk) begin
    case (state)
      Ask: begin
        beat <= '0;
        if (receive_ready) state <= Take;
      end
      Take: begin
        if (in_valid) beat <= beat + 1'b1;
        if (receive_done) begin
          message <= receive_outcome;
          code    <= receive_outcome.fault;
          beat    <= '0;
          state   <= receive_outcome.fault == FaultNone ? Send : Over;
        end
      end
      Send: if (send_ready) state <= Give;
      Give: if (out_ready) beat <= beat + 1'b1;
      default: ;
    endcase
    if (send_done && (state == Give || state == Send)) begin
      code  <= send_fault;
      state <= send_fault == FaultNone ? Ask : Over;
    end
    if (rst) state <= Ask;
  end

`ifndef SYNTHESIS
  message_fits : assert property (@(posedge clk) disable iff (rst)
      state == Take && in_valid |-> beat < (A + 1)'(DEPTH));
  sent_beats_were_received : assert property (@(posedge clk) disable iff (rst)
      state == Give && out_ready |-> 24'(beat) << 3 < message.size);
  end_is_last : assert property (@(posedge clk) disable iff (rst) ended |=> ended);
`endif

endmodule
