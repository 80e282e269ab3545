// A kernel's access to board memory: a cache (direct-mapped, write-back) with an AXI4 port.
//
// A request is a read of a 64-bit word, or a write of bytes of a word. The kernel offers it with
// `mem_valid`; it is accepted in a cycle in which `mem_ready` and `mem_go` are high. The word of a
// read is there from the next cycle on at the earliest, with `mem_answer`, until `mem_go` is high.
// `mem_go` is high only if the kernel has an answer that it waits for, and its request can be
// accepted; it depends on `mem_ready` and `mem_answer`, which do not depend on it. So a read that
// hits the cache takes a cycle, and a request may follow in every cycle.
//
// `flush`, held until `flushed`, writes all changed lines back and empties the cache: when a kernel
// ends, so that others see its results.
//
// Parameters: LINES of the cache; BEATS, words of a line, which is a burst. Both powers of two.
// Throughput: a request per cycle that hits, but a request for the word that the request before it
// writes takes two. A miss: four cycles and the line's words in addition to the memory's latency,
// plus one cycle and the words of the evicted line if it has to be written back.
module memory_cache #(
    parameter int LINES = 64,
    parameter int BEATS = 16
) (
`include "memory_cache_ports.svh"
    ,
`include "msg_axi_ports.svh"
);

  localparam int BeatBits = $clog2(BEATS);
  localparam int LineBits = $clog2(LINES);
  localparam int TagBits = 32 - 3 - BeatBits - LineBits;
  localparam int IndexBits = LineBits + BeatBits;

  typedef enum logic [2:0] {
    Run,
    Evict,   // writes back the old line
    Fetch,
    Again,   // looks up the request again
    Sweep,   // looks for a changed line
    Changed  // has found one
  } state_t;

  typedef struct packed {
    logic [28:0] place;   // in words
    logic [7:0]  strobe;
    logic [63:0] data;
  } request_t;

  state_t               state;
  request_t             request;     // the request that is looked up
  logic                 looked;      // there is one
  logic [63:0]          words[LINES*BEATS];
  logic [63:0]          word;        // the word read from the cache
  logic [TagBits-1:0]   tags[LINES];
  logic [TagBits-1:0]   tag, old;
  logic [LINES-1:0]     held, dirty;
  logic [LineBits-1:0]  line, swept;
  logic [BeatBits-1:0]  beat;        // number of the next beat
  logic                 unused_bits;
  logic                 accepted, hit, writes, retires, unwritten, more, reads, sweeps;
  logic [IndexBits-1:0] from, to;

  assign unused_bits = ^mem_address[2:0];

  assign tag     = request.place[28-:TagBits];
  assign sweeps  = state == Sweep || state == Changed || (state == Evict && !looked);
  assign line    = sweeps ? swept : request.place[BeatBits+:LineBits];
  assign writes  = request.strobe != '0;
  assign hit     = state == Run && looked && held[line] && old == tag;
  assign retires = hit && (writes || mem_go);

  assign mem_answer = hit && !writes;
  assign mem_word   = word;
  assign mem_ready  = state == Run && (!looked || hit) &&
      !(looked && writes && request.place == mem_address[31:3]);
  assign accepted   = mem_valid && mem_ready && mem_go;

  // A line's words leave one after another, each read a cycle before.
  assign reads = state == Evict && more && (!wvalid || wready);
  always_comb begin
    case (state)
      Evict:   from = {line, beat};
      Again:   from = request.place[IndexBits-1:0];
      default: from = mem_address[3+:IndexBits];
    endcase
  end
  assign to    = state == Fetch ? {line, beat} : request.place[IndexBits-1:0];
  assign wdata = word;

  always_ff @(posedge clk) begin
    if (accepted || reads || state == Again) word <= words[from];
    if (state == Fetch) begin
      if (rvalid) words[to] <= rdata;
    end else if (hit && writes)
      for (int i = 0; i < 8; i++) if (request.strobe[i]) words[to][8*i+:8] <= request.data[8*i+:8];
  end

  always_ff @(posedge clk) begin
    if (state == Sweep) old <= tags[swept];
    else if (state == Again) old <= tag;
    else if (accepted) old <= tags[mem_address[3+BeatBits+:LineBits]];
    if (state == Fetch && rvalid && rlast) tags[line] <= tag;
  end

  // The next line may be read while the previous one is being written, but not before that has
  // completed if it is the same line.
  assign rready = 1'b1;
  assign bready = 1'b1;
  assign araddr = {tag, line, {3 + BeatBits{1'b0}}};

  always_ff @(posedge clk) begin
    flushed <= 1'b0;
    if (arready) arvalid <= 1'b0;
    if (awready) awvalid <= 1'b0;
    if (wready) wvalid <= 1'b0;
    if (bvalid) unwritten <= 1'b0;
    if ((rvalid && rresp != '0) || (bvalid && bresp != '0)) refused <= 1'b1;
    if (accepted) begin
      request <= '{mem_address[31:3], mem_strobe, mem_data};
      looked  <= 1'b1;
    end else if (retires) looked <= 1'b0;
    case (state)
      Run: begin
        if (hit && writes) dirty[line] <= 1'b1;
        beat  <= '0;
        swept <= '0;
        if (looked && !hit && !unwritten) begin
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
        if (flush && !looked && !flushed) state <= Sweep;
      end
      Evict: begin
        if (reads) begin
          wvalid <= 1'b1;
          wlast  <= beat == '1;
          beat   <= beat + 1'b1;
          more   <= beat != '1;
        end
        if (!more && (!wvalid || wready) && (!awvalid || awready)) begin
          state       <= sweeps ? Sweep : Fetch;
          dirty[line] <= 1'b0;
          unwritten   <= 1'b1;
          arvalid     <= !sweeps;
        end
      end
      Fetch: begin
        if (rvalid) beat <= beat + 1'b1;
        if (rvalid && rlast) begin
          state       <= Again;
          held[line]  <= 1'b1;
          dirty[line] <= 1'b0;
        end
      end
      Again: state <= Run;
      Sweep: begin
        if (dirty[swept] && held[swept]) begin
          if (!unwritten) state <= Changed;
        end else begin
          swept <= swept + 1'b1;
          if (swept == '1 && !unwritten) begin
            held    <= '0;
            flushed <= 1'b1;
            state   <= Run;
          end else if (swept == '1) swept <= swept;
        end
      end
      Changed: begin
        state   <= Evict;
        more    <= 1'b1;
        awvalid <= 1'b1;
        awaddr  <= {old, line, {3 + BeatBits{1'b0}}};
      end
      default: state <= Run;
    endcase
    if (rst) begin
      state     <= Run;
      looked    <= 1'b0;
      held      <= '0;
      flushed   <= 1'b0;
      arvalid   <= 1'b0;
      awvalid   <= 1'b0;
      wvalid    <= 1'b0;
      unwritten <= 1'b0;
      refused   <= 1'b0;
    end
  end

endmodule
