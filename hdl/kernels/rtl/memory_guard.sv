// The check of a kernel's accesses to memory: an access to a buffer leaves the guard only if it is
// inside of the buffer, and the buffer may be written if it is a write.
//
// An address is the number of a buffer (its highest four bits, from 1) and an offset in bytes. The
// guard replaces it by the buffer's address in the board's memory plus the offset. The table of
// buffers is written before the kernel starts (`set_valid`); a buffer that is not in the table has
// no bytes. The buffer's memory extends to a whole word, so a read is checked by its first byte, and
// a write by the last byte of its strobe.
//
// A line (a burst of the board's memory) is read ahead of the accesses to its words
// (`kernel_readers`). The guard gives its address and the number of its bytes up to the buffer's end:
// the reader checks each access against this number, and reports one behind it (`read_fault`). The
// reader never returns bytes of the line before the buffer, because offsets are not negative. A line
// without bytes of the buffer is not read.
//
// After an access that is not allowed, `fault` is high until reset, with the buffer's number, the
// kind and the offset of the access, and no further access leaves the guard. Latency: none;
// throughput: that of the memory.
module memory_guard (
    input  logic        clk,
    input  logic        rst,
    // An entry of the table. The address is a multiple of eight.
    input  logic        set_valid,
    input  logic [3:0]  set_buffer,
    input  logic [31:0] set_address,
    input  logic [28:0] set_bytes,
    input  logic        set_writable,
    // The kernel's access, as of `kernel_ports.svh`.
    input  logic        mem_valid,
    output logic        mem_ready,
    input  logic [31:0] mem_address,
    input  logic [7:0]  mem_strobe,
    // The access to the board's memory (memory_cache); data pass by.
    output logic        checked_valid,
    input  logic        checked_ready,
    output logic [31:0] checked_address,
    // A line that is read ahead: `fetch_line` lines after that with the buffer's first byte.
    input  logic [3:0]  fetch_buffer,
    input  logic [21:0] fetch_line,
    output logic [31:0] fetch_address,
    output logic [7:0]  fetch_bytes,
    output logic [63:0] fetch_skews,
    input  logic        read_fault,
    input  logic [31:0] read_address,
    output logic        fault,
    output logic [3:0]  fault_buffer,
    output logic        fault_write,
    output logic [27:0] fault_offset
);

  typedef struct packed {
    logic [31:0] address;
    logic [28:0] bytes;
    logic        writable;
  } entry_t;

  entry_t      entries_q[16];
  entry_t      entry;
  logic [2:0]  last;     // the last byte that is written
  logic [28:0] offset;   // of the last byte of the access
  logic        allowed, writes;

  assign entry  = entries_q[mem_address[31:28]];
  assign writes = mem_strobe != '0;

  always_comb begin
    last = '0;
    for (int i = 0; i < 8; i++) if (mem_strobe[i]) last = 3'(i);
  end

  assign offset  = {1'b0, mem_address[27:3], writes ? last : mem_address[2:0]};
  assign allowed = offset < entry.bytes && (entry.writable || !writes);

  entry_t      line_entry;
  logic [29:0] line_end;   // of the buffer, from the line's begin
  logic        line_over, unused_bits;

  assign unused_bits   = line_entry.writable;
  assign line_entry    = entries_q[fetch_buffer];
  assign line_end      = {1'b0, line_entry.bytes} + {23'd0, line_entry.address[6:0]} - {1'b0, fetch_line, 7'd0};
  assign line_over     = line_end[29] || line_entry.bytes == '0;
  assign fetch_address = {line_entry.address[31:7] + {3'd0, fetch_line}, 7'd0};
  always_comb begin
    if (line_over) fetch_bytes = '0;
    else if (line_end[28:7] != '0) fetch_bytes = 8'd128;
    else fetch_bytes = line_end[7:0];
    for (int i = 0; i < 16; i++) fetch_skews[4*i+:4] = entries_q[i].address[6:3];
  end

  assign checked_valid   = mem_valid && allowed && !fault;
  assign checked_address = entry.address + {4'd0, mem_address[27:0]};
  assign mem_ready       = checked_valid && checked_ready;

  always_ff @(posedge clk) begin
    if (set_valid) entries_q[set_buffer] <= '{set_address, set_bytes, set_writable};
    if (mem_valid && !allowed && !fault) begin
      fault        <= 1'b1;
      fault_buffer <= mem_address[31:28];
      fault_write  <= writes;
      fault_offset <= mem_address[27:0];
    end
    if (read_fault && !fault) begin
      fault        <= 1'b1;
      fault_buffer <= read_address[31:28];
      fault_write  <= 1'b0;
      fault_offset <= read_address[27:0];
    end
    if (rst) begin
      fault <= 1'b0;
      for (int i = 0; i < 16; i++) entries_q[i].bytes <= '0;
    end
  end

`ifndef SYNTHESIS
  // Only accesses inside of a buffer leave the guard.
  inside_buffer : assert property (@(posedge clk) disable iff (rst)
      checked_valid |-> offset < entry.bytes);
  // A buffer that is not writable is only read.
  read_only : assert property (@(posedge clk) disable iff (rst)
      checked_valid && writes |-> entry.writable);
  // A line that is read has bytes of the buffer, and its bytes up to the number are the buffer's.
  line_inside : assert property (@(posedge clk) disable iff (rst)
      fetch_bytes != '0 |->
      fetch_bytes <= 8'd128 && {1'b0, fetch_line, 7'd0} + 30'(fetch_bytes) <=
      30'(line_entry.bytes) + 30'(line_entry.address[6:0]));
  // The table does not change during an access.
  stable_table : assert property (@(posedge clk) disable iff (rst) set_valid |-> !mem_valid);
  fault_stays : assert property (@(posedge clk) disable iff (rst)
      fault |=> fault && $stable({fault_buffer, fault_write, fault_offset}));
`endif

endmodule
