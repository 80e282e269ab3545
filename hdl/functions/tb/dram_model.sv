// Board memory for simulation: AXI4 slave with a configurable latency, one beat per cycle.
//
// Requests are served in order, without IDs; bursts are INCR of whole beats; an address outside
// gets SLVERR. Simulation only: the harness reads and writes `memory` directly.
//
// Parameters: DATA, bus width in bits; ADDRESS, address bits; BYTES, size; LATENCY, cycles from an
// accepted read address to its first beat, and from the last write beat to the response; JITTER, up
// to that many cycles more, from a fixed pseudo-random sequence; OUTSTANDING,
// read bursts accepted ahead.
module dram_model #(
    parameter int DATA = 64,
    parameter int ADDRESS = 32,
    parameter int BYTES = 1 << 21,
    parameter int LATENCY = 40,
    parameter int JITTER = 0,
    parameter int OUTSTANDING = 8
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               arvalid,
    output logic               arready,
    input  logic [ADDRESS-1:0] araddr,
    input  logic [7:0]         arlen,
    output logic               rvalid,
    input  logic               rready,
    output logic [DATA-1:0]    rdata,
    output logic [1:0]         rresp,
    output logic               rlast,
    input  logic               awvalid,
    output logic               awready,
    input  logic [ADDRESS-1:0] awaddr,
    input  logic               wvalid,
    output logic               wready,
    input  logic [DATA-1:0]    wdata,
    input  logic [DATA/8-1:0]  wstrb,
    input  logic               wlast,
    output logic               bvalid,
    input  logic               bready,
    output logic [1:0]         bresp
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

  // Reads: accepted requests wait until their time, and are served one after another.

  typedef struct packed {
    logic [ADDRESS-1:0] address;
    logic [7:0]         beats;   // minus one
    logic [31:0]        due;
  } read_t;

  read_t              reads[OUTSTANDING];
  logic [SlotBits:0]  head, tail;
  logic [7:0]         beat;
  read_t              first;
  logic [ADDRESS-1:0] at;
  logic               waiting, full;

  assign full    = (head - tail) == (SlotBits + 1)'(OUTSTANDING);
  assign arready = !full;
  assign first   = reads[tail[SlotBits-1:0]];
  assign waiting = head != tail;
  // The first beat is read from memory a cycle before its output.
  assign at      = first.address + ADDRESS'(beat) * ADDRESS'(B);

  always_ff @(posedge own_clk) begin
    if (arvalid && arready) reads[head[SlotBits-1:0]] <= '{address: araddr, beats: arlen, due: now + delay - 32'd1};
    if (rst) begin
      head   <= '0;
      tail   <= '0;
      beat   <= '0;
      rvalid <= 1'b0;
    end else begin
      if (arvalid && arready) head <= head + 1'b1;
      if (!rvalid || rready) begin
        rvalid <= 1'b0;
        if (waiting && signed'(now - first.due) >= 0) begin
          rvalid <= 1'b1;
          rdata  <= memory[at[$clog2(B)+:IndexBits]];
          rresp  <= at >= ADDRESS'(BYTES) ? SlaveError : Okay;
          rlast  <= beat == first.beats;
          beat   <= beat == first.beats ? '0 : beat + 1'b1;
          if (beat == first.beats) tail <= tail + 1'b1;
        end
      end
    end
  end

  // Writes: one burst at a time.

  logic               writing;
  logic [ADDRESS-1:0] write_at;
  logic [31:0]        write_due;
  logic               written;

  assign awready = !writing && !written;
  assign wready  = writing;

  always_ff @(posedge own_clk) begin
    if (rst) begin
      writing <= 1'b0;
      written <= 1'b0;
      bvalid  <= 1'b0;
    end else begin
      if (awvalid && awready) begin
        writing  <= 1'b1;
        write_at <= awaddr;
        bresp    <= awaddr >= ADDRESS'(BYTES) ? SlaveError : Okay;
      end
      if (wvalid && wready) begin
        for (int i = 0; i < B; i++)
          if (wstrb[i] && bresp == Okay) memory[write_at[$clog2(B)+:IndexBits]][8*i+:8] <= wdata[8*i+:8];
        write_at <= write_at + ADDRESS'(B);
        if (wlast) begin
          writing   <= 1'b0;
          written   <= 1'b1;
          write_due <= now + delay - 32'd1;
        end
      end
      if (written && !bvalid && signed'(now - write_due) >= 0) begin
        bvalid  <= 1'b1;
        written <= 1'b0;
      end else if (bready) begin
        bvalid <= 1'b0;
      end
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || arvalid || waiting || rvalid || awvalid || wvalid || writing || written || bvalid),
      .gated(own_clk)
  );

endmodule
