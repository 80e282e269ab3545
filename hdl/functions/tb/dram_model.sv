// Board memory for simulation: AXI4 slave with a configurable latency, one beat per cycle.
//
// Requests are served in order, without IDs; bursts are INCR of whole beats; an address outside
// gets SLVERR. Simulation only: the harness reads and writes `memory` directly.
//
// Parameters: DATA, bus width in bits; BYTES, size; LATENCY, cycles from an
// accepted read address to its first beat, and from the last write beat to the response; JITTER, up
// to that many cycles more, from a fixed pseudo-random sequence; OUTSTANDING,
// read bursts accepted ahead; WRITES, write bursts accepted before a response; FAR and FAR_BYTES,
// a second range of addresses (0: none), which is allocated when it is written, with the timing of
// DRAM (board/sim/dram.hpp); it exists in models with MAPPED_MEMORY.
module dram_model
  import axi_pkg::*;
#(
    parameter int DATA = 64,
    parameter int BYTES = 1 << 21,
    parameter int LATENCY = 40,
    parameter int JITTER = 0,
    parameter int OUTSTANDING = 8,
    parameter int WRITES = 1,
    parameter logic [31:0] FAR = '0,
    parameter int FAR_BYTES = 0
) (
    input  logic             clk,
    input  logic             rst,
    input  axi_read_t        axi_read,
    output axi_read_reply_t  axi_read_reply,
    input  axi_write_t       axi_write,
    output axi_write_reply_t axi_write_reply
);

  logic own_clk;  // gated, and time with it, while there are no requests

  localparam int B = DATA / 8;
  localparam int Words = BYTES / B;
  localparam int IndexBits = $clog2(Words);
  localparam int SlotBits = $clog2(OUTSTANDING);
  localparam logic [1:0] Okay = 2'b00;
  localparam logic [1:0] SlaveError = 2'b10;

  logic [DATA-1:0] memory[Words]  /* verilator public_flat_rw */;

  logic [31:0] now, jitter_state, delay;
  logic        arready, rvalid, rlast, awready, wready, bvalid, unused_signals;
  logic [63:0] rdata;
  logic [1:0]  rresp, bresp;

  assign axi_read_reply = '{arready: arready, rvalid: rvalid, rdata: rdata, rresp: rresp, rlast: rlast};
  assign axi_write_reply = '{awready: awready, wready: wready, bvalid: bvalid, bresp: bresp};
  assign unused_signals = &{1'b0, axi_read, axi_write};

  assign delay = LATENCY + (JITTER == 0 ? 0 : (jitter_state >> 8) % (JITTER + 1));

  always_ff @(posedge own_clk) begin
    if (rst) begin
      now          <= '0;
      jitter_state <= 32'h2545F491;
    end else begin
      now          <= now + 1'b1;
      jitter_state <= jitter_state * 32'd1664525 + 32'd1013904223;
    end
  end

  // The second range.
  function automatic logic is_far(input logic [31:0] address);
    return FAR_BYTES != 0 && address - FAR < 32'(FAR_BYTES);
  endfunction

`ifdef MAPPED_MEMORY
  import "DPI-C" function chandle far_memory(input longint unsigned words);
  import "DPI-C" function longint unsigned far_read(input chandle memory, input int unsigned address);
  import "DPI-C" function void far_write(
    input chandle memory, input int unsigned address, input longint unsigned data, input byte unsigned keep);
  import "DPI-C" function int unsigned far_delay(
    input chandle memory, input int unsigned now, input int unsigned address, input int unsigned words);

  chandle far;
  initial if (FAR_BYTES != 0) far = far_memory(64'(FAR_BYTES / 8));
`endif

  function automatic logic [31:0] delay_of(input logic [31:0] address, input logic [31:0] words);
`ifdef MAPPED_MEMORY
    if (is_far(address)) return far_delay(far, now, address - FAR, words);
`endif
    return delay + 32'(1'b0 & ^{address, words});
  endfunction

  function automatic logic [DATA-1:0] word_at(input logic [31:0] address);
`ifdef MAPPED_MEMORY
    if (is_far(address)) return DATA'(far_read(far, (address - FAR) >> 3));
`endif
    return memory[address[$clog2(B)+:IndexBits]] | DATA'(1'b0 & ^address);
  endfunction

  // Reads: accepted requests wait until their time, and are served one after another.

  typedef struct packed {
    logic [31:0] address;
    logic [7:0]         beats;   // minus one
    logic [31:0]        due;
  } read_t;

  read_t              reads[OUTSTANDING];
  logic [SlotBits:0]  head, tail;
  logic [7:0]         beat;
  read_t              first;
  logic [31:0] at;
  logic               waiting, full;

  assign full    = (head - tail) == (SlotBits + 1)'(OUTSTANDING);
  assign arready = !full;
  assign first   = reads[tail[SlotBits-1:0]];
  assign waiting = head != tail;
  // The first beat is read from memory a cycle before its output.
  assign at      = first.address + 32'(beat) * 32'(B);

  always_ff @(posedge own_clk) begin
    if (axi_read.arvalid && arready) reads[head[SlotBits-1:0]] <= '{address: axi_read.araddr, beats: axi_read.arlen, due: now + delay_of(axi_read.araddr, 32'(axi_read.arlen) + 32'd1) - 32'd1};
    if (rst) begin
      head   <= '0;
      tail   <= '0;
      beat   <= '0;
      rvalid <= 1'b0;
    end else begin
      if (axi_read.arvalid && arready) head <= head + 1'b1;
      if (!rvalid || axi_read.rready) begin
        rvalid <= 1'b0;
        if (waiting && signed'(now - first.due) >= 0) begin
          rvalid <= 1'b1;
          rdata  <= 64'(word_at(at));
          rresp  <= at >= 32'(BYTES) && !is_far(at) ? SlaveError : Okay;
          rlast  <= beat == first.beats;
          beat   <= beat == first.beats ? '0 : beat + 1'b1;
          if (beat == first.beats) tail <= tail + 1'b1;
        end
      end
    end
  end

  // Writes: the data of one burst after the other, and responses in the same order.

  localparam int WriteBits = $clog2(WRITES + 1);

  typedef struct packed {
    logic [1:0]  resp;
    logic [31:0] due;
  } written_t;

  logic               writing, write_fails;
  logic [31:0]        write_at, write_words;
  written_t           written[1<<WriteBits];
  written_t           oldest;
  logic [WriteBits:0] written_head, written_tail, written_count;
  logic               is_written;  // a response is due, now or later

  assign written_count = written_head - written_tail;
  assign is_written = written_count != '0;
  assign oldest = written[written_tail[WriteBits-1:0]];
  assign awready = !writing && written_count < (WriteBits + 1)'(WRITES);
  assign wready  = writing;

  always_ff @(posedge own_clk) begin
    if (rst) begin
      writing      <= 1'b0;
      written_head <= '0;
      written_tail <= '0;
      bvalid       <= 1'b0;
    end else begin
      if (axi_write.awvalid && awready) begin
        writing  <= 1'b1;
        write_at <= axi_write.awaddr;
        write_fails <= axi_write.awaddr >= 32'(BYTES) && !is_far(axi_write.awaddr);
        write_words <= 32'(axi_write.awlen) + 32'd1;
      end
      if (axi_write.wvalid && wready) begin
`ifdef MAPPED_MEMORY
        if (is_far(write_at)) far_write(far, (write_at - FAR) >> 3, 64'(axi_write.wdata), 8'(axi_write.wstrb));
`endif
        for (int i = 0; i < B; i++)
          if (!is_far(write_at) && axi_write.wstrb[i] && !write_fails)
            memory[write_at[$clog2(B)+:IndexBits]][8*i+:8] <= axi_write.wdata[8*i+:8];
        write_at <= write_at + 32'(B);
        if (axi_write.wlast) begin
          writing      <= 1'b0;
          written_head <= written_head + 1'b1;
          written[written_head[WriteBits-1:0]] <= '{
              resp: write_fails ? SlaveError : Okay,
              due: now + delay_of(write_at, write_words) - 32'd1
          };
        end
      end
      if (is_written && !bvalid && signed'(now - oldest.due) >= 0) begin
        bvalid       <= 1'b1;
        bresp        <= oldest.resp;
        written_tail <= written_tail + 1'b1;
      end else if (axi_write.bready) begin
        bvalid <= 1'b0;
      end
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || axi_read.arvalid || waiting || rvalid || axi_write.awvalid ||
             axi_write.wvalid || writing || is_written || bvalid),
      .gated(own_clk)
  );

endmodule
