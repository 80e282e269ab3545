// The memory of rings on the chip: one write port, one read port, with a fixed latency from a read
// to its word. A written word can be read from the next cycle on.
//
// In the live model (MAPPED_MEMORY) it is host memory, which is allocated only where it is written
// (sim/mapped_memory.hpp).
//
// Parameters: ADDRESS_BITS, log2 of its words of 8 bytes; LATENCY, in cycles, at least 2.
module board_memory
  import net_pkg::*;
#(
    parameter int ADDRESS_BITS = 16,
    parameter int LATENCY = 4
) (
    input  logic        clk,
    input  logic        rst,
    input  ring_write_t write,
    input  ring_read_t  read,
    output ring_word_t  reply
);

  if (LATENCY < 2) $error("LATENCY must be at least 2");

  // The first register is that of the block RAM: it is separate, so that synthesis infers it.
  logic [63:0] fetched;
  logic [63:0] stages[LATENCY-1];
  logic [LATENCY-1:0] came;
  ring_note_t notes[LATENCY];
  logic unused_bits;
  assign unused_bits = &{1'b0, write, read};

`ifdef MAPPED_MEMORY
  import "DPI-C" function chandle mapped_memory(input longint unsigned words);
  import "DPI-C" function longint unsigned mapped_read(input chandle memory, input int unsigned address);
  import "DPI-C" function void mapped_write(
    input chandle memory, input int unsigned address, input longint unsigned data, input byte unsigned keep);

  chandle memory;
  initial memory = mapped_memory(64'd1 << ADDRESS_BITS);

  // In this order: a read returns the previous content.
  always_ff @(posedge clk) begin
    if (read.valid) fetched <= mapped_read(memory, 32'(read.address[ADDRESS_BITS-1:0]));
    if (write.valid)
      mapped_write(memory, 32'(write.address[ADDRESS_BITS-1:0]), write.data, write.keep);
  end
`else
  logic [63:0] words[1 << ADDRESS_BITS];

  always_ff @(posedge clk) begin
    if (write.valid)
      for (int i = 0; i < 8; i++)
      if (write.keep[i]) words[write.address[ADDRESS_BITS-1:0]][8*i+:8] <= write.data[8*i+:8];
    if (read.valid) fetched <= words[read.address[ADDRESS_BITS-1:0]];
  end
`endif

  always_ff @(posedge clk) begin
    stages[0] <= fetched;
    for (int i = 1; i < LATENCY - 1; i++) stages[i] <= stages[i-1];
    came <= rst ? '0 : {came[LATENCY-2:0], read.valid};
    notes[0] <= read.note;
    for (int i = 1; i < LATENCY; i++) notes[i] <= notes[i-1];
  end

  assign reply = '{valid: came[LATENCY-1], note: notes[LATENCY-1], data: stages[LATENCY-2]};

`ifndef SYNTHESIS
  writes_have_bytes : assert property (@(posedge clk) write.valid |-> write.keep != '0);
`endif

endmodule
