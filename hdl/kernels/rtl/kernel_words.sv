// A load of several words that follow each other, by one port of `kernel_readers`: it reads them one
// after another while the kernel waits, so that loads that are rarely executed have one port.
//
// `read_valid`: the load is executed in this step; its words are valid in the next one, which waits
// for them (`ready`). The first word is read in the load's step. Latency: WORDS + 2 cycles, if the
// lines are there.
module kernel_words #(
    parameter int WORDS = 2
) (
`include "kernel_reader_ports.svh"
    output logic [WORDS-1:0][63:0] words,
    output logic                   ready,
    // The port.
    output logic                   port_step,
    output logic                   port_valid,
    output logic [31:0]            port_address,
    input  logic [63:0]            port_word,
    input  logic                   port_ready
);

  localparam int Bits = $clog2(WORDS + 2);

  logic            active;
  logic [Bits-1:0] asked;   // steps of the port, of which a word is there in the second one after it
  logic [31:0]     next;
  logic            reads;

  assign reads        = asked < Bits'(WORDS);
  assign ready        = !active;
  assign port_step    = active ? port_ready : step;
  assign port_valid   = active ? reads : read_valid;
  assign port_address = active ? next : read_address;

  always_ff @(posedge clk) begin
    if (active && port_ready) begin
      words  <= {port_word, words[WORDS-1:1]};
      next   <= next + 32'd8;
      asked  <= asked + Bits'(1);
      active <= asked != Bits'(WORDS + 1);
    end else if (!active && step && read_valid) begin
      active <= 1'b1;
      asked  <= Bits'(1);
      next   <= read_address + 32'd8;
    end
    if (rst) active <= 1'b0;
  end

`ifndef SYNTHESIS
  steps_when_ready : assert property (@(posedge clk) disable iff (rst) step |-> ready);
  words_are_counted : assert property (@(posedge clk) disable iff (rst)
      active |-> asked inside {[Bits'(1):Bits'(WORDS + 1)]});
  port_steps_when_ready : assert property (@(posedge clk) disable iff (rst)
      port_step |-> port_ready);
`endif

endmodule
