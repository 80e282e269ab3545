// A kernel's access to board memory: a cache (direct-mapped, write-back) with an AXI4 port.
//
// A request is a read of a 64-bit word, or a write of bytes of a word. The kernel offers it with
// `mem_valid`; it is accepted in a cycle in which `mem_ready` and `mem_go` are high. The word of a
// read is there from the next cycle on at the earliest, with `mem_answer`, until `mem_go` is high.
// `mem_ready` and `mem_answer` do not depend on `mem_go`. So a read that hits the cache takes a cycle,
// and a request may follow in every cycle.
//
// A write that misses fetches no line: the line is `open`, with a mask of the bytes that have been
// written. A line of which all bytes have been written is written back at once, while further
// requests are executed, so that a stream of writes runs at the memory's speed. If another request
// misses before, or a read needs the open line, the other bytes are fetched. There is one open line.
//
// `flush`, held until `flushed`, writes all changed lines back and empties the cache: when a kernel
// ends, so that others see its results.
//
// Parameters: LINES of the cache; BEATS, words of a line, which is a burst. Both powers of two.
// Throughput: a request per cycle that hits, but a read of the word that the request before it
// writes takes two. A write that opens a line: one cycle. A miss of a read: four cycles and the
// line's words in addition to the memory's latency, plus two cycles and the words of the evicted
// line if it has to be written back.
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

  typedef struct packed {
    logic [TagBits-1:0]  tag;
    logic [LineBits-1:0] line;
  } line_t;

  state_t               state;
  request_t             request;     // the request that is looked up
  logic                 looked;      // there is one
  logic [63:0]          words[LINES*BEATS];
  logic [63:0]          word;        // the word read from the cache
  logic [TagBits-1:0]   tags[LINES];
  logic [TagBits-1:0]   tag, old;
  logic [LINES-1:0]     held, dirty;
  logic [LineBits-1:0]  line, swept;
  logic [BeatBits-1:0]  beat;        // number of the next beat of a fetch
  logic                 unused_bits;
  logic                 accepted, hit, writes, retires, incomplete, opens, fills;
  logic [IndexBits-1:0] from, to;
  logic [7:0]           enabled;

  // The open line.
  logic               open;
  line_t              open_place;
  logic [8*BEATS-1:0] mask, mask_next;
  logic               completes;
  line_t              fetched;       // the line that is being fetched

  // Lines that are written back: one waits, the words of one are being read.
  logic                waits;
  line_t               waiting, last_left;
  logic [LineBits-1:0] leaving;      // the line that is being read
  logic                leaves, reads, read, read_last;
  logic [BeatBits-1:0] leave_beat;
  logic                free;         // a line may begin to leave
  logic [2:0]          unwritten;    // bursts without a response
  logic                settled;      // no outstanding burst is the request's line

  // Words on their way to the memory.
  logic [63:0] second;
  logic        second_valid, second_last;

  assign unused_bits = ^mem_address[2:0];

  assign tag        = request.place[28-:TagBits];
  assign line       = request.place[BeatBits+:LineBits];
  assign writes     = request.strobe != '0;
  assign incomplete = open && open_place == line_t'{tag, line};
  assign hit        = state == Run && looked && held[line] && old == tag && !(incomplete && !writes);
  assign retires    = hit && (writes || mem_go);

  assign mem_answer = hit && !writes;
  assign mem_word   = word;
  assign mem_ready  = state == Run && (!looked || hit) &&
      !(looked && writes && mem_strobe == '0 && request.place == mem_address[31:3]);
  assign accepted   = mem_valid && mem_ready && mem_go;

  // A miss of a write opens a line.
  assign opens = state == Run && looked && !hit && writes && !open && !waits &&
      !(held[line] && dirty[line]) && !(leaves && leaving == line);
  assign fills = state == Fetch && rvalid;

  always_comb begin
    mask_next = opens ? '0 : mask;
    mask_next[8*request.place[BeatBits-1:0]+:8] |= request.strobe;
  end
  assign completes = hit && writes && incomplete && mask_next == '1;

  // The answer to a read stays until the kernel takes it.
  assign reads = leaves && !(hit && !writes) && !(accepted && mem_strobe == '0) && state != Again &&
      !(second_valid || (read && wvalid && !wready));
  always_comb begin
    if (reads) from = {leaving, leave_beat};
    else if (state == Again) from = request.place[IndexBits-1:0];
    else from = mem_address[3+:IndexBits];
  end
  assign to = fills ? {fetched.line, beat} : request.place[IndexBits-1:0];
  always_comb begin
    enabled = '0;
    if (fills) enabled = open ? ~mask[8*beat+:8] : '1;
    else if ((hit && writes) || opens) enabled = request.strobe;
  end

  always_ff @(posedge clk) begin
    if (accepted || reads || state == Again) word <= words[from];
    for (int i = 0; i < 8; i++)
      if (enabled[i]) words[to][8*i+:8] <= fills ? rdata[8*i+:8] : request.data[8*i+:8];
  end

  always_ff @(posedge clk) begin
    if (state == Sweep) old <= tags[swept];
    else if (state == Again) old <= tags[line];
    else if (accepted) old <= tags[mem_address[3+BeatBits+:LineBits]];
    if (fills && rlast) tags[fetched.line] <= fetched.tag;
    else if (opens) tags[line] <= tag;
  end

  // A line may be fetched while another one is being written, but not before that has completed if
  // it is the same line.
  assign settled = unwritten == '0 || (unwritten == 3'd1 && last_left != line_t'{tag, line});
  assign free    = !leaves && !awvalid && unwritten != '1;
  assign rready  = 1'b1;
  assign bready  = 1'b1;
  assign araddr  = {fetched, {3 + BeatBits{1'b0}}};

  // Begins to write a line back.
  task automatic leave(input line_t which);
    leaves            <= 1'b1;
    leaving           <= which.line;
    last_left         <= which;
    leave_beat        <= '0;
    awvalid           <= 1'b1;
    awaddr            <= {which, {3 + BeatBits{1'b0}}};
    dirty[which.line] <= 1'b0;
  endtask

  always_ff @(posedge clk) begin
    flushed <= 1'b0;
    if (arready) arvalid <= 1'b0;
    if (awready) awvalid <= 1'b0;
    unwritten <= unwritten + 3'(awvalid && awready) - 3'(bvalid);
    if ((rvalid && rresp != '0) || (bvalid && bresp != '0)) refused <= 1'b1;
    if (accepted) begin
      request <= '{mem_address[31:3], mem_strobe, mem_data};
      looked  <= 1'b1;
    end else if (retires || opens) looked <= 1'b0;

    // Words that leave: one is read from the cache, one is offered, one waits.
    read <= reads;
    if (reads) begin
      leave_beat <= leave_beat + 1'b1;
      read_last  <= leave_beat == '1;
      if (leave_beat == '1) leaves <= 1'b0;
    end
    if (!wvalid || wready) begin
      wvalid       <= second_valid || read;
      wdata        <= second_valid ? second : word;
      wlast        <= second_valid ? second_last : read_last;
      second_valid <= second_valid && read;
    end else if (read) second_valid <= 1'b1;
    if (read) begin
      second      <= word;
      second_last <= read_last;
    end

    if (waits && free) begin
      leave(waiting);
      waits <= 1'b0;
    end
    case (state)
      Run: begin
        beat  <= '0;
        swept <= '0;
        if (looked && !hit && (open || !writes || (held[line] && dirty[line]))) begin
          if (open) begin
            // Completes the open line.
            if (unwritten == '0 && !leaves && !waits && !awvalid) begin
              state   <= Fetch;
              arvalid <= 1'b1;
              fetched <= open_place;
            end
          end else if (held[line] && dirty[line]) begin
            if (free && !waits) leave('{old, line});
          end else if (settled && !waits && !awvalid && !(leaves && leaving == line)) begin
            state   <= Fetch;
            arvalid <= 1'b1;
            fetched <= '{tag, line};
          end
        end
        if (flush && !looked && !flushed && !waits && !leaves && !awvalid && unwritten == '0) begin
          if (open) begin
            state   <= Fetch;
            arvalid <= 1'b1;
            fetched <= open_place;
          end else state <= Sweep;
        end
      end
      Fetch: begin
        if (rvalid) beat <= beat + 1'b1;
        if (rvalid && rlast) begin
          state              <= Again;
          held[fetched.line] <= 1'b1;
          open               <= 1'b0;
        end
      end
      Again: state <= Run;
      Sweep: begin
        if (dirty[swept] && held[swept]) begin
          if (free) state <= Changed;
        end else if (swept != '1) swept <= swept + 1'b1;
        else if (free && unwritten == '0 && !wvalid) begin
          held    <= '0;
          flushed <= 1'b1;
          state   <= Run;
        end
      end
      Changed: begin
        state <= Sweep;
        leave('{old, swept});
      end
      default: state <= Run;
    endcase
    if (opens) begin
      held[line] <= 1'b1;
      open       <= 1'b1;
      open_place <= '{tag, line};
    end
    if (opens || (hit && writes)) dirty[line] <= 1'b1;
    if (opens || (hit && writes && incomplete)) mask <= mask_next;
    if (completes) begin
      open    <= 1'b0;
      waits   <= 1'b1;
      waiting <= open_place;
    end
    if (rst) begin
      state        <= Run;
      looked       <= 1'b0;
      held         <= '0;
      dirty        <= '0;
      open         <= 1'b0;
      waits        <= 1'b0;
      leaves       <= 1'b0;
      read         <= 1'b0;
      second_valid <= 1'b0;
      flushed      <= 1'b0;
      arvalid      <= 1'b0;
      awvalid      <= 1'b0;
      wvalid       <= 1'b0;
      unwritten    <= '0;
      refused      <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  open_line_is_held : assert property (@(posedge clk) disable iff (rst)
      open |-> held[open_place.line] && dirty[open_place.line]);
  changed_lines_are_held : assert property (@(posedge clk) disable iff (rst) (dirty & ~held) == '0);
  answers_stay : assert property (@(posedge clk) disable iff (rst)
      mem_answer && !mem_go |=> mem_answer && $stable(mem_word));
  words_were_requested : assert property (@(posedge clk) disable iff (rst)
      rvalid |-> state == Fetch && !arvalid);
  lines_have_their_words : assert property (@(posedge clk) disable iff (rst)
      rvalid |-> rlast == (beat == '1));
  responses_were_requested : assert property (@(posedge clk) disable iff (rst)
      bvalid |-> unwritten != '0);
  reads_stay : assert property (@(posedge clk) disable iff (rst)
      arvalid && !arready |=> arvalid && $stable(araddr));
  writes_stay : assert property (@(posedge clk) disable iff (rst)
      awvalid && !awready |=> awvalid && $stable(awaddr));
  data_stay : assert property (@(posedge clk) disable iff (rst)
      wvalid && !wready |=> wvalid && $stable({wdata, wlast}));
  second_word_waits : assert property (@(posedge clk) disable iff (rst) second_valid |-> wvalid);
  flush_is_held : assert property (@(posedge clk) disable iff (rst) flush && !flushed |=> flush);
`endif

endmodule
