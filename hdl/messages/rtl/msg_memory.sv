// A kernel's way to memory that is not on the chip: a cache (direct-mapped, written back) before an AXI4 port.
//
// The kernel asks for one thing at a time and holds it until `mem_ready`: a word of 64 bits to read, which is there in that
// clock, or bytes of one to write. What the memory refuses is over all the same, with `mem_fault`.
//
// Parameters: LINES, of the cache; BEATS, words of a line, which is a burst. Both powers of two.
// Latency: two clocks for what is in the cache; else four and the line's words beside the memory's own, and one and the words
// of the line that was in its place more where that has to be written.
module msg_memory #(
    parameter int LINES = 64,
    parameter int BEATS = 8
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        mem_valid,
    output logic        mem_ready,
    input  logic [31:0] mem_address,  // in bytes; the lowest three bits are not looked at
    input  logic [7:0]  mem_strobe,   // the bytes to write; none: a read
    input  logic [63:0] mem_data,
    output logic [63:0] mem_word,
    output logic        mem_fault,
`include "msg_axi_ports.svh"
);

  localparam int BeatBits = $clog2(BEATS);
  localparam int LineBits = $clog2(LINES);
  localparam int TagBits = 32 - 3 - BeatBits - LineBits;

  typedef enum logic [1:0] {
    Look,   // for what the kernel asks
    Evict,  // the line that stands in its place is written
    Fetch
  } state_t;

  state_t              state;
  logic [63:0]         words[LINES*BEATS];
  logic [63:0]         word;         // what was read from there
  logic [TagBits-1:0]  tags[LINES];
  logic [TagBits-1:0]  tag, old;
  logic [LINES-1:0]    held, dirty;
  logic [LineBits-1:0] line;
  logic [BeatBits-1:0] beat;         // that comes, or goes next
  logic                looked, hit, unwritten, more, reads;
  logic [LineBits+BeatBits-1:0] at;

  assign {tag, line} = mem_address[31:3+BeatBits];
  assign hit         = looked && held[line] && old == tag;
  assign mem_ready   = state == Look && hit;
  assign mem_word    = word;

  // A line's words leave one after the other, each read a clock before.
  assign reads = state == Evict && more && (!wvalid || wready);
  assign at    = {line, state == Look ? mem_address[3+:BeatBits] : beat};
  assign wdata = word;

  always_ff @(posedge clk) begin
    if (state == Look || reads) word <= words[at];
    if (state == Fetch) begin
      if (rvalid) words[at] <= rdata;
    end else if (mem_ready)
      for (int i = 0; i < 8; i++) if (mem_strobe[i]) words[at][8*i+:8] <= mem_data[8*i+:8];
  end

  always_ff @(posedge clk) begin
    old <= tags[line];
    if (state == Fetch && rvalid && rlast) tags[line] <= tag;
  end

  // The next line may come while the last one is on its way, but not before that has arrived if it is the same.
  assign rready = 1'b1;
  assign bready = 1'b1;

  always_ff @(posedge clk) begin
    looked    <= state == Look && mem_valid && !mem_ready;
    mem_fault <= 1'b0;
    if (arready) arvalid <= 1'b0;
    if (awready) awvalid <= 1'b0;
    if (wready) wvalid <= 1'b0;
    if (bvalid) begin
      unwritten <= 1'b0;
      mem_fault <= bresp != '0;
    end
    case (state)
      Look: begin
        if (mem_ready && mem_strobe != '0) dirty[line] <= 1'b1;
        if (looked && !hit && !unwritten) begin
          beat   <= '0;
          looked <= 1'b0;
          if (held[line] && dirty[line]) begin
            state   <= Evict;
            more    <= 1'b1;
            awvalid <= 1'b1;
            awaddr  <= {old, line, {3 + BeatBits{1'b0}}};
          end else begin
            state   <= Fetch;
            arvalid <= 1'b1;
          end
        end
      end
      Evict: begin
        if (reads) begin
          wvalid <= 1'b1;
          wlast  <= beat == '1;
          beat   <= beat + 1'b1;
          more   <= beat != '1;
        end
        if (!more && (!wvalid || wready) && (!awvalid || awready)) begin
          state     <= Fetch;
          unwritten <= 1'b1;
          arvalid   <= 1'b1;
        end
      end
      Fetch: begin
        if (rvalid) begin
          beat      <= beat + 1'b1;
          mem_fault <= rresp != '0;
        end
        if (rvalid && rlast) begin
          state       <= Look;
          held[line]  <= 1'b1;
          dirty[line] <= 1'b0;
        end
      end
      default: state <= Look;
    endcase
    if (rst) begin
      state     <= Look;
      looked    <= 1'b0;
      held      <= '0;
      arvalid   <= 1'b0;
      awvalid   <= 1'b0;
      wvalid    <= 1'b0;
      unwritten <= 1'b0;
      mem_fault <= 1'b0;
    end
  end

  assign araddr = {tag, line, {3 + BeatBits{1'b0}}};

endmodule
