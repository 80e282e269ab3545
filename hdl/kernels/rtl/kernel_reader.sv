// A port of `kernel_readers`: one load of the kernel, which may read a word in every step, with a
// cache of its own (direct-mapped, read-only) and the requests of the lines after the current one.
//
// `read_valid`: the load is executed in this step; its word is valid in the next step, which waits
// for it (`ready`). The port requests the line of an access that misses; if accesses proceed to the
// next line, it requests lines ahead. If two streams have the same number of lines, as rows of a tile
// have, it requests no lines behind those of the next ones. A read behind its buffer's end waits
// forever, with `fault`.
module kernel_reader #(
    parameter int LINES = 16
) (
`include "kernel_reader_ports.svh"
    output logic [63:0] read_word,
    output logic        ready,
    output logic        fault,
    output logic [31:0] fault_address,
    input  logic [63:0] fetch_skews,
    // The next line to request: buffer and line. `taken`: it has been requested.
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

  typedef struct packed {
    logic [3:0]  buffer;
    logic [21:0] number;
  } line_t;

  typedef struct packed {
    line_t      line;
    logic [6:0] offset;   // in bytes
  } place_t;

  // A line without the bits that are its index in the cache. The comparison of a tag decides whether
  // the kernel proceeds, so it has only the bits that it needs.
  typedef struct packed {
    logic [3:0]           buffer;
    logic [21-LineBits:0] upper;
  } tag_t;

  logic [63:0]         words[LINES*16];
  (* ram_style = "distributed" *)
  tag_t                tags[LINES];
  (* ram_style = "distributed" *)
  logic [7:0]          limits[LINES];
  logic [LINES-1:0]    held;
  logic [28:0]         skewed;
  place_t              asked, current, look;
  logic [31:0]         address;
  logic                looked, found, hit, retries;
  line_t               target;
  tag_t                tag, own;
  logic [7:0]          limit;

  // Requested lines: `run` lines before `next`, at most seven.
  line_t       next;
  logic        streams, same, covered, first_miss, quiet, lost, wants;
  logic [2:0]  run, depth;
  logic [21:0] distance;
  // Lines of the stream before `next`; the last line that has been accessed, and that of the stream
  // before, both from 0 on. `rows`: the next line behind `last` is not requested ahead.
  localparam logic [3:0] Long = '1;
  logic [3:0]  passed, place, reached, last;
  logic        rows, ahead;

  assign skewed = {1'b0, read_address[27:0]} + {22'd0, fetch_skews[4*read_address[31:28]+:4], 3'd0};
  assign asked  = {read_address[31:28], skewed};

  // While the line of an access is not there, it is looked up in each cycle.
  assign own       = '{current.line.buffer, current.line.number[21:LineBits]};
  assign hit       = looked && found && tag == own;
  assign retries   = looked && !hit;
  assign look      = retries ? current : asked;
  assign ready     = !looked || (hit && !fault);
  assign fault     = hit && {1'b0, current.offset} >= limit;

  assign fault_address = address;
  assign target        = fill_line;

  always_ff @(posedge clk) begin
    if (step || retries) begin
      read_word <= words[{look.line.number[LineBits-1:0], look.offset[6:3]}];
      tag       <= tags[look.line.number[LineBits-1:0]];
      limit     <= limits[look.line.number[LineBits-1:0]];
    end
    if (fill) words[{target.number[LineBits-1:0], fill_beat}] <= fill_word;
    if (filled) begin
      tags[target.number[LineBits-1:0]]   <= '{target.buffer, target.number[21:LineBits]};
      limits[target.number[LineBits-1:0]] <= fill_bytes;
    end
  end

  assign distance   = next.number - current.line.number;
  assign same       = streams && next.buffer == current.line.buffer && distance <= 22'd7;
  assign covered    = same && distance != '0 && distance[2:0] <= run;
  // A line may be replaced by one that was requested for an access before and arrives later.
  assign lost       = retries && !busy && quiet;
  assign first_miss = retries && !(same && distance == '0) && (!covered || lost);
  assign place      = passed == Long ? Long : passed - distance[3:0];
  assign ahead      = covered && !(rows && passed > last);
  assign wants      = looked && same && (ahead || (distance == '0 && !hit)) && distance[2:0] <= depth;
  assign wanted     = next;

  always_ff @(posedge clk) begin
    // At most every second cycle: the choice among the ports takes a cycle of its own.
    want <= wants && !taken;
    // The line of a miss has been looked up since the last one arrived.
    quiet <= retries && !busy;
    if (step || retries) found <= held[look.line.number[LineBits-1:0]];
    if (step) begin
      looked <= read_valid;
      if (read_valid) begin
        current <= asked;
        address <= read_address;
      end
    end
    // Accesses proceed: the line is not the first one of the stream. The address of the access is not
    // compared in its own cycle, which has little time left.
    if (looked && same && distance[2:0] < run) depth <= Ahead;
    if (first_miss) begin
      // The first access, or one that does not follow the ones before: a stream may begin.
      streams <= 1'b1;
      next    <= current.line;
      run     <= '0;
      depth   <= !streams || depth == Ahead ? 3'd1 : 3'd0;
      passed  <= '0;
      reached <= '0;
      last    <= reached;
      rows    <= streams && reached == last && reached != Long;
    end else if (taken || (looked && same && distance == '0 && hit)) begin
      next.number <= next.number + 22'd1;
      if (run != '1) run <= run + 3'd1;
      if (passed != Long) passed <= passed + 4'd1;
    end
    if (!first_miss && looked && same && hit && place > reached) begin
      reached <= place;
      // This row is longer.
      if (place > last) rows <= 1'b0;
    end
    if (taken) held[next.number[LineBits-1:0]] <= 1'b0;
    if (fill) held[target.number[LineBits-1:0]] <= 1'b0;
    if (filled) held[target.number[LineBits-1:0]] <= 1'b1;
    if (start || rst) begin
      held    <= '0;
      looked  <= 1'b0;
      want    <= 1'b0;
      quiet   <= 1'b0;
      found   <= 1'b0;
      streams <= 1'b0;
    end
    if (rst) current <= '0;
  end

endmodule
