// Proof harness: whatever a kernel asks, an access that leaves the guard is inside of its buffer, at
// the buffer's place, and a write only if the buffer may be written; a line that is read ahead has
// bytes of the buffer; nothing leaves after a fault.
//
// One buffer of the sixteen, which are alike, is followed.
module memory_guard_f (
    input logic        clk,
    input logic        rst,
    input logic        mem_valid,
    input logic [31:0] mem_address,
    input logic [7:0]  mem_strobe,
    input logic        checked_ready,
    input logic [3:0]  fetch_buffer,
    input logic [21:0] fetch_line,
    input logic        read_fault,
    input logic [31:0] read_address,
`include "memory_guard_ports.svh"
);

  localparam logic [3:0] Buffer = 4'd5;

  logic        started, faulted, mem_ready, checked_valid, writable, reads_first;
  logic [31:0] checked_address, fetch_address, address, place;
  logic [7:0]  fetch_bytes;
  logic [63:0] fetch_skews;
  logic [28:0] bytes;

  initial started = 1'b0;

  memory_guard dut (
      .*
  );

  always_ff @(posedge clk) begin
    started <= 1'b1;
    faulted <= !rst && (faulted || fault);
    if (set_valid && set_buffer == Buffer) {address, writable} <= {set_address, set_writable};
    if (rst) bytes <= '0;
    else if (set_valid && set_buffer == Buffer) bytes <= set_bytes;
  end

  assign place       = address + {4'd0, mem_address[27:0]};
  assign reads_first = mem_strobe == '0;

  always_comb begin
    if (!started) begin
      assume (rst);
    end else if (!rst) begin
      assert (dut.entries_q[Buffer].bytes == bytes);
      if (bytes != '0) assert (dut.entries_q[Buffer].address == address && dut.entries_q[Buffer].writable == writable);
      // The table is written before the kernel starts.
      assume (!(set_valid && mem_valid));
      if (checked_valid && mem_address[31:28] == Buffer) begin
        assert (checked_address == place);
        assert (reads_first || writable);
        if (reads_first) assert ({1'b0, mem_address[27:0]} < bytes);
        for (int i = 0; i < 8; i++) if (mem_strobe[i]) assert ({1'b0, mem_address[27:3], 3'(i)} < bytes);
      end
      if (fetch_buffer == Buffer && fetch_bytes != '0) begin
        assert (fetch_bytes <= 8'd128);
        assert (32'({fetch_line, 7'd0}) + 32'(fetch_bytes) <= 32'(bytes) + 32'(address[6:0]));
      end
      assert (mem_ready == (checked_valid && checked_ready));
      if (faulted) assert (fault && !checked_valid);
    end
  end

endmodule
