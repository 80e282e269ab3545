// Rings in a memory of any pace, each signal by itself, for the bench.
module ring_memory_top
  import axi_pkg::*;
  import net_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        write_valid,
    output logic        write_ready,
    input  logic [31:0] write_address,
    input  logic [63:0] write_data,
    input  logic [7:0]  write_keep,
    input  logic        read_valid,
    output logic        read_ready,
    input  logic [31:0] read_address,
    input  logic [11:0] read_note,
    output logic        word_valid,
    output logic [11:0] word_note,
    output logic [63:0] word_data,
    output logic [31:0] bursts,       // of reads
    output logic        busy
);

  ring_write_t      write;
  ring_read_t       read;
  ring_word_t       word_read;
  axi_write_t       axi_write;
  axi_write_reply_t axi_write_reply;
  axi_read_t        axi_read;
  axi_read_reply_t  axi_read_reply;

  assign write = '{valid: write_valid, address: write_address, data: write_data, keep: write_keep};
  assign read = '{valid: read_valid, address: read_address, note: ring_note_t'(read_note)};
  assign {word_valid, word_note, word_data} = word_read;

  always_ff @(posedge clk)
    bursts <= rst ? '0 : bursts + 32'(axi_read.arvalid && axi_read_reply.arready);

  ring_memory #(
      .BASE(32'h1000)
  ) u_rings (
      .reply(word_read),
      .*
  );

  dram_model #(
      .BYTES  (1 << 15),
      .LATENCY(10),
      .JITTER (30),
      .WRITES (4)
  ) u_memory (
      .*
  );

  words_stay_in_lines : assert property (@(posedge clk) disable iff (rst)
      axi_read.arvalid |-> 32'(axi_read.araddr[6:3]) + 32'(axi_read.arlen) < 32'd16);
  writes_stay_in_lines : assert property (@(posedge clk) disable iff (rst)
      axi_write.awvalid |-> 32'(axi_write.awaddr[6:3]) + 32'(axi_write.awlen) < 32'd16);

endmodule
