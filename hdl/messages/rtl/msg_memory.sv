// A kernel's access to off-chip memory: a cache (direct-mapped, write-back) with an AXI4 port.
//
// The kernel issues one request at a time and holds it until `mem_ready`: a read of a 64-bit word,
// which is valid in that cycle, or a write of bytes of a word. A request that the memory refuses
// completes with `mem_fault`.
//
// Parameters: LINES of the cache; BEATS, words of a line, which is a burst. Both powers of two.
// Latency: two cycles for a hit; otherwise four cycles and the line's words in addition to the
// memory's latency, plus one cycle and the words of the evicted line if it has to be written back.
module msg_memory #(
    parameter int LINES = 64,
    parameter int BEATS = 8
) (
`include "msg_memory_ports.svh"
    ,
`include "msg_axi_ports.svh"
);

  localparam int BeatBits = $clog2(BEATS);
  localparam int LineBits = $clog2(LINES);
  localparam int TagBits = 32 - 3 - BeatBits - LineBits;

  typedef enum logic [1:0] {
    Look,   // looks up the request
    Evict,  // writes back the old line
    Fetch
  } state_t;

  state_t              state;
  logic [63:0]         words[LINES*BEATS];
  logic [63:0]         word;         // the word read from the cache
  logic [TagBits-1:0]  tags[LINES];
  logic [TagBits-1:0]  tag, old;
  logic [LINES-1:0]    held, dirty;
  logic [LineBits-1:0] line;
  logic [BeatBits-1:0] beat;         // number of the next beat
  logic                looked, hit, unwritten, more, reads;
  logic [LineBits+BeatBits-1:0] at;

  assign {tag, line} = mem_address[31:3+BeatBits];
  assign hit         = looked && held[line] && old == tag;
  assign mem_ready   = state == Look && hit;
  assign mem_word    = word;

  // A line's words leave one after another, each read a cycle before.
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

  // The next line may be read while the previous one is being written, but not before that has
  // completed if it is the same line.
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
