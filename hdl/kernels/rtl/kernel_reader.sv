// A port of `kernel_readers`: one load of the kernel, which may read a word in every step, with a
// cache of its own (direct-mapped, read-only) and the requests of the lines after the current one.
//
// `read_valid`: the load is executed in this step; its word is valid in the second step after it,
// which waits for it (`ready`). Both come from registers, so that the comparison of a tag is not on
// the path to the kernel's enables. The port requests the line of an access that misses; if accesses
// proceed to the next line, it requests lines ahead. If two streams have the same number of lines, as
// rows of a tile have, it requests no lines behind those of the next ones. A read behind its buffer's
// end waits forever, with `fault`. After reset, all lines are marked as empty, one in each cycle;
// until then, accesses miss.
//
// Parameters: LINES; STRIDES, whether several work-items read rows of their own in turn. Where a line
// is depends on the distance of these rows then, so that they do not replace each other's lines.
module kernel_reader #(
    parameter int LINES = 16,
    parameter bit STRIDES = 1'b0
) (
`include "kernel_reader_ports.svh"
    output logic [63:0] read_word,
    output logic        ready,
    output logic        fault,
    output logic [31:0] fault_place,    // the address, from the buffer's first line on
    input  logic [63:0] fetch_skews,
    // The next line to request: buffer and line. `taken`: it was requested in the cycle before.
    output logic        want,
    output logic [25:0] wanted,
    input  logic        taken,
    input  logic        busy,           // a requested line has not arrived yet
    // A word of a requested line; `filled`: the line is complete, or has no bytes of the buffer.
    input  logic        fill,
    input  logic        filled,
    input  logic [25:0] fill_line,
    input  logic [3:0]  fill_beat,
    input  logic [63:0] fill_word,
    input  logic [7:0]  fill_bytes
);

  // Lines that are requested ahead.
  localparam logic [2:0] Ahead = 3'd4;
  localparam int LineBits = $clog2(LINES);
  // The lowest bit of a line's number that its entry has; the place has those below.
  localparam int TagFrom = STRIDES ? 0 : LineBits;

  typedef struct packed {
    logic [3:0]  buffer;
    logic [21:0] number;
  } line_t;

  typedef struct packed {
    line_t      line;
    logic [6:0] offset;   // in bytes
  } place_t;

  // The state of a line of the cache; of its number, the bits that are not its index.
  typedef struct packed {
    logic                held;
    logic [3:0]          buffer;
    logic [21-TagFrom:0] upper;
    logic [7:0]          bytes;   // that belong to the buffer
  } entry_t;

  // Where a line is. `by`: how many of the lowest bits of its number do not matter, in threes.
  function automatic logic [LineBits-1:0] index(input logic [LineBits+8:0] number, input logic [1:0] by);
    case (by)
      2'd0: index = number[LineBits-1:0];
      2'd1: index = number[LineBits+2:3];
      2'd2: index = number[LineBits+5:6];
      default: index = number[LineBits+8:9];
    endcase
  endfunction

  // A word that is read while it is written is not used: its line is `stale`, or not complete.
  (* no_rw_check *)
  logic [63:0]         words[LINES*16];
  (* ram_style = LINES > 16 ? "block" : "distributed" *)
  entry_t              entries[LINES];
  logic [LineBits-1:0] cleared;
  logic                clears, stale;   // in this cycle; or when `entry` was read
  logic [28:0]         skewed;
  // The accesses of the last two steps, and the one that has been looked up in the cycle before.
  place_t              asked, newer, older, look, seen;
  logic                newer_valid, seen_valid;
  logic                missing;        // the older one's word is not there
  logic                of_older;       // it is the one that has been looked up
  logic [63:0]         word;
  entry_t              entry;
  logic                looked, hit, good, retries;
  line_t               target;
  // Of the places of lines. Rows whose distance is a multiple of 8, 64 or 512 lines would share few
  // places without it.
  logic [1:0]          shift;

  // Requested lines: `run` lines before `next`, at most seven.
  line_t       next;
  logic        streams, same, covered, first_miss, passes, proceeds, advances, moved, quiet, lost, wants;
  logic [2:0]  run, depth;
  logic [21:0] distance;
  // Lines of the stream before `next`; the last line that has been accessed, and that of the stream
  // before, both from 0 on. `rows`: the next line behind `last` is not requested ahead.
  localparam logic [3:0] Long = '1;
  logic [3:0]  passed, place, place_q, reached, furthest, last;
  logic        rows, ahead, onward;

  assign skewed = {1'b0, read_address[27:0]} + {22'd0, fetch_skews[4*read_address[31:28]+:4], 3'd0};
  assign asked  = {read_address[31:28], skewed};

  assign hit      = entry.held && entry.buffer == seen.line.buffer &&
      entry.upper == seen.line.number[21:TagFrom] && !stale;
  assign good     = hit && {1'b0, seen.offset} < entry.bytes;
  // While the older access has no word it is looked up in each cycle, then the newer one again. The
  // comparison of a tag is not on the path to the cache's address.
  always_comb begin
    if (step) look = asked;
    else if (missing) look = older;
    else look = newer;
  end

  assign fault_place = {older.line.buffer, older[27:0]};
  assign target      = fill_line;

  always_ff @(posedge clk) begin
    word  <= words[{index(look.line.number[LineBits+8:0], shift), look.offset[6:3]}];
    entry <= entries[index(look.line.number[LineBits+8:0], shift)];
    if (fill) words[{index(target.number[LineBits+8:0], shift), fill_beat}] <= fill_word;
    if (clears) entries[cleared] <= '0;
    else if (fill || filled)
      entries[index(target.number[LineBits+8:0], shift)] <=
          '{filled, target.buffer, target.number[21:TagFrom], fill_bytes};
  end

  always_ff @(posedge clk) begin
    seen <= look;
    if (step || missing) read_word <= word;
    fault <= of_older && hit && !good;
    if (step) begin
      newer       <= asked;
      newer_valid <= read_valid;
      older       <= newer;
      seen_valid  <= read_valid;
      missing     <= newer_valid && !good;
      of_older    <= 1'b0;
      ready       <= !newer_valid || good;
    end else begin
      seen_valid <= missing || newer_valid;
      of_older   <= missing;
      ready      <= !missing;
      if (of_older && good) missing <= 1'b0;
    end
    cleared <= cleared + 1'b1;
    // The line is replaced from this cycle on: the entry is still that of the line before.
    stale   <= clears || (fill && fill_beat == '0 && index(look.line.number[LineBits+8:0], shift) == index(target.number[LineBits+8:0], shift));
    if (cleared == '1) clears <= 1'b0;
    if (rst) begin
      cleared     <= '0;
      clears      <= 1'b1;
      stale       <= 1'b1;
      newer_valid <= 1'b0;
      seen_valid  <= 1'b0;
      missing     <= 1'b0;
      of_older    <= 1'b0;
      ready       <= 1'b1;
      fault       <= 1'b0;
      seen        <= '0;
    end
  end

  // A newer access is not considered while the older one misses.
  assign looked     = seen_valid && (of_older || !missing) && !stale;
  assign retries    = looked && !hit;
  assign distance   = next.number - seen.line.number;
  assign same       = streams && next.buffer == seen.line.buffer && distance <= 22'd7;
  assign covered    = same && distance != '0 && distance[2:0] <= run;
  // A line may be replaced by one that was requested for an access before and arrives later.
  assign lost       = retries && !busy && quiet;
  assign first_miss = retries && !(same && distance == '0) && (!covered || lost);
  assign passes     = looked && same && distance == '0 && hit;
  assign advances   = passes || (taken && !moved);
  assign proceeds   = looked && same && distance[2:0] < run;
  assign place      = passed == Long ? Long : passed - distance[3:0];
  assign furthest   = onward && place_q > reached ? place_q : reached;
  assign ahead      = covered && !(rows && passed > last);
  assign wants      = looked && same && (ahead || (distance == '0 && !hit)) && distance[2:0] <= (shift == '0 ? depth : '0);
  assign wanted     = next;

  always_ff @(posedge clk) begin
    // At most every third cycle: the choice among the ports takes a cycle of its own. A line that is
    // no longer the next one when its request is reported is not counted.
    want  <= wants && !taken;
    moved <= first_miss || passes;
    // The line of a miss has been looked up since the last one arrived.
    quiet <= retries && !busy;
    // Accesses proceed: the line is not the first one of the stream. The address of the access is not
    // compared in its own cycle, which has little time left.
    if (proceeds) depth <= Ahead;
    if (first_miss) begin
      // The first access, or one that does not follow the ones before: a stream may begin.
      streams <= 1'b1;
      next    <= seen.line;
      run     <= '0;
      depth   <= !streams || depth == Ahead ? 3'd1 : 3'd0;
      passed  <= '0;
      reached <= '0;
      last    <= furthest;
      rows    <= streams && furthest == last && furthest != Long;
    end else if (advances) begin
      next.number <= next.number + 22'd1;
      if (run != '1) run <= run + 3'd1;
      if (passed != Long) passed <= passed + 4'd1;
    end
    // The place in the stream is compared in the next cycle.
    onward  <= !first_miss && looked && same && hit;
    place_q <= place;
    if (!first_miss) begin
      reached <= furthest;
      // This row is longer.
      if (furthest > last) rows <= 1'b0;
    end
    if (rst) begin
      want    <= 1'b0;
      moved   <= 1'b0;
      quiet   <= 1'b0;
      streams <= 1'b0;
      onward  <= 1'b0;
    end
  end

  if (STRIDES) begin : g_strides
    // The number of the last line at which a stream began, the distances of the last two from the ones
    // before, and the shift that fits them.
    line_t       began;
    logic [21:0] gap, earlier;
    logic        measured, proposed;
    logic [1:0]  fitting;

    always_ff @(posedge clk) begin
      measured <= first_miss && seen.line.buffer == began.buffer;
      if (first_miss) begin
        began   <= seen.line;
        gap     <= seen.line.number - began.number;
        earlier <= gap;
      end
      if (measured && gap == earlier && gap != '0) begin
        proposed <= 1'b1;
        fitting  <= gap[8:0] == '0 ? 2'd3 : gap[5:0] == '0 ? 2'd2 : {1'b0, gap[2:0] == '0};
      end
      // One long row: its lines ahead need places of their own.
      if (proceeds && passed == Long && shift != '0) begin
        proposed <= 1'b1;
        fitting  <= '0;
      end
      // A line that arrives stays at one place.
      if (proposed && !busy && !missing) begin
        shift    <= fitting;
        proposed <= 1'b0;
      end
      if (rst) begin
        measured <= 1'b0;
        proposed <= 1'b0;
        shift    <= '0;
      end
    end
  end else begin : g_consecutive
    assign shift = '0;
  end

`ifndef SYNTHESIS
  lines_arrive_at_one_place : assert property (@(posedge clk) disable iff (rst)
      busy && $past(busy) |-> $stable(shift));
  steps_when_ready : assert property (@(posedge clk) disable iff (rst) step |-> ready);
  ready_with_word : assert property (@(posedge clk) disable iff (rst) ready |-> !missing);
  // A line is requested in the cycle after it was wanted.
  taken_lines_were_wanted : assert property (@(posedge clk) disable iff (rst)
      taken |-> $past(want));
  ahead_is_bounded : assert property (@(posedge clk) disable iff (rst) streams |-> depth <= Ahead);
  entries_are_cleared_first : assert property (@(posedge clk) disable iff (rst)
      clears |-> !fill && !filled);
`endif

endmodule
