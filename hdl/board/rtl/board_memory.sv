// A model of board memory: one write port, one read port, with a fixed latency from `read` to
// `read_data`. A written word can be read from the next cycle on.
//
// In the live model (MAPPED_MEMORY) it is host memory, which is allocated only where it is written
// (sim/mapped_memory.hpp).
//
// Parameters: ADDRESS_BITS, log2 of its words of 8 bytes; LATENCY, in cycles, at least 2.
module board_memory #(
    parameter int ADDRESS_BITS = 16,
    parameter int LATENCY = 4
) (
    input  logic                    clk,
    input  logic                    write,
    input  logic [ADDRESS_BITS-1:0] write_address,
    input  logic [            63:0] write_data,
    input  logic [             7:0] write_keep,
    input  logic                    read,
    input  logic [ADDRESS_BITS-1:0] read_address,
    output logic [            63:0] read_data
);

  if (LATENCY < 2) $error("LATENCY must be at least 2");

  // The first register is that of the block RAM: it is separate, so that synthesis infers it.
  logic [63:0] fetched;
  logic [63:0] stages[LATENCY-1];

`ifdef MAPPED_MEMORY
  import "DPI-C" function chandle mapped_memory(input longint unsigned words);
  import "DPI-C" function longint unsigned mapped_read(input chandle memory, input int unsigned address);
  import "DPI-C" function void mapped_write(
    input chandle memory, input int unsigned address, input longint unsigned data, input byte unsigned keep);

  chandle memory;
  initial memory = mapped_memory(64'd1 << ADDRESS_BITS);

  // In this order: a read returns the previous content.
  always_ff @(posedge clk) begin
    if (read) fetched <= mapped_read(memory, 32'(read_address));
    if (write) mapped_write(memory, 32'(write_address), write_data, write_keep);
  end
`else
  logic [63:0] words[1 << ADDRESS_BITS];

  always_ff @(posedge clk) begin
    if (write)
      for (int i = 0; i < 8; i++) if (write_keep[i]) words[write_address][8*i+:8] <= write_data[8*i+:8];
    if (read) fetched <= words[read_address];
  end
`endif

  always_ff @(posedge clk) begin
    stages[0] <= fetched;
    for (int i = 1; i < LATENCY - 1; i++) stages[i] <= stages[i-1];
  end

  assign read_data = stages[LATENCY-2];

`ifndef SYNTHESIS
  writes_have_bytes : assert property (@(posedge clk) write |-> write_keep != '0);
`endif

endmodule
