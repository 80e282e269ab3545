// Stands for board memory: one port to write, one to read, with a fixed latency from `read` to
// `read_data`. A word that is written can be read from the next cycle on.
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

  logic [63:0] words[1 << ADDRESS_BITS];
  // The first register is the block RAM's own: it stands apart, so that it is found to be.
  logic [63:0] fetched;
  logic [63:0] stages[LATENCY-1];

  always_ff @(posedge clk) begin
    if (write)
      for (int i = 0; i < 8; i++) if (write_keep[i]) words[write_address][8*i+:8] <= write_data[8*i+:8];
    if (read) fetched <= words[read_address];
    stages[0] <= fetched;
    for (int i = 1; i < LATENCY - 1; i++) stages[i] <= stages[i-1];
  end

  assign read_data = stages[LATENCY-2];

endmodule
