// Rings in board memory: single words, written and read, become bursts of AXI4 over consecutive
// addresses of a line of sixteen words.
//
// A read waits until all words accepted before it are in memory, so that it returns them. Words
// arrive in the order of the reads; the reader takes each at once.
//
// Parameters: BASE, the address of the first word; LATE, words that the writer still gives after
// `write_ready` falls. Latency: 3 cycles and the memory's, 2 more if no read follows the last one.
// Throughput: that of memory, for consecutive words; a burst is sent while the next one is
// collected, and does not wait for the response to the one before it.
module ring_memory
  import axi_pkg::*;
  import net_pkg::*;
#(
    parameter logic [31:0] BASE = '0,
    parameter int LATE = 24
) (
    input  logic             clk,
    input  logic             rst,
    input  ring_write_t      write,
    output logic             write_ready,
    input  ring_read_t       read,
    output logic             read_ready,  // permits a read in the next cycle
    output ring_word_t       reply,
    output axi_write_t       axi_write,
    input  axi_write_reply_t axi_write_reply,
    output axi_read_t        axi_read,
    input  axi_read_reply_t  axi_read_reply,
    output logic             busy
);

  localparam int LINE = 16;
  localparam int L = $clog2(LINE);
  localparam int WRITES = 1 << $clog2(2 * LATE);
  localparam int READS = 32;    // that wait
  localparam int WORDS = 128;   // that are requested
  localparam int BURSTS = 8;    // that memory writes
  localparam int ORDER_BITS = 20;
  localparam logic [1:0] PATIENCE = 2'd2;  // cycles that a burst waits for its next word

  // Whether a burst of some words from an address continues with `next`.
  function automatic logic continues(input logic [31:0] from, input logic [L:0] words,
                                     input logic [31:0] next);
    return next[31:L] == from[31:L] && next[L-1:0] == from[L-1:0] + L'(words) &&
        words != (L + 1)'(LINE) && next[L-1:0] != '0;
  endfunction

  // ---- writes ----
  typedef enum logic [1:0] {
    Idle,
    Address,
    Data
  } state_t;

  logic waits, follows, takes, ends, sends, has_place, unused_bits;
  ring_write_t oldest;
  assign unused_bits = &{1'b0, oldest, axi_read_reply};
  // The burst that is collected, in `side`, and the one that is sent, in the other.
  logic side;
  logic [31:0] first, sent_first;
  logic [L:0] count, sent_count, sent;
  logic [1:0] patience;
  state_t state;
  logic [63:0] words[2*LINE];
  logic [7:0] keeps[2*LINE];
  // Words of the burst that memory responds to next.
  logic [L:0] written_now;
  logic is_written;
  // The numbers of words that were accepted, and that are in memory, modulo their range. A read
  // waits for fewer than half of it.
  logic [ORDER_BITS-1:0] accepted, written;

  fifo #(
      .T(ring_write_t),
      .DEPTH(WRITES),
      .SPARE(LATE),
      .BLOCK(WRITES > 64)
  ) u_writes (
      .clk,
      .rst,
      .s_valid(write.valid),
      .s_ready(write_ready),
      .s_payload(write),
      .m_valid(waits),
      .m_ready(takes),
      .m_payload(oldest)
  );

  // The last beat of a burst makes room for the next one.
  assign sends = state == Data && axi_write_reply.wready && axi_write.wlast;
  assign follows = continues(first, count, oldest.address);
  assign ends = count != '0 && (waits ? !follows : patience == '0) && (state == Idle || sends) &&
      has_place;
  assign takes = waits && (count == '0 || ends || follows);

  always_comb begin
    axi_write = '0;
    axi_write.awvalid = state == Address;
    axi_write.awaddr = BASE + (sent_first << 3);
    axi_write.awlen = 8'(sent_count - 1'b1);
    axi_write.awsize = 3'd3;
    axi_write.awburst = BurstIncr;
    axi_write.wvalid = state == Data;
    axi_write.wdata = words[{!side, sent[L-1:0]}];
    axi_write.wstrb = keeps[{!side, sent[L-1:0]}];
    axi_write.wlast = sent == sent_count - 1'b1;
    axi_write.bready = 1'b1;
  end

  fifo #(
      .T(logic [L:0]),
      .DEPTH(BURSTS),
      .SPARE(2)
  ) u_bursts (
      .clk,
      .rst,
      .s_valid(ends),
      .s_ready(has_place),
      .s_payload(count),
      .m_valid(is_written),
      .m_ready(axi_write_reply.bvalid),
      .m_payload(written_now)
  );

  always_ff @(posedge clk) begin
    if (takes) begin
      words[{side ^ ends, ends ? '0 : count[L-1:0]}] <= oldest.data;
      keeps[{side ^ ends, ends ? '0 : count[L-1:0]}] <= oldest.keep;
      if (count == '0 || ends) first <= oldest.address;
    end
    count <= (ends ? '0 : count) + (L + 1)'(takes);
    patience <= takes ? PATIENCE : patience - 2'(patience != '0);
    accepted <= accepted + ORDER_BITS'(write.valid);
    if (axi_write_reply.bvalid) written <= written + ORDER_BITS'(written_now);
    case (state)
      Address: begin
        sent <= '0;
        if (axi_write_reply.awready) state <= Data;
      end
      Data: begin
        if (axi_write_reply.wready) sent <= sent + 1'b1;
        if (sends) state <= Idle;
      end
      default: ;
    endcase
    if (ends) begin
      state <= Address;
      side <= !side;
      sent_first <= first;
      sent_count <= count;
    end
    if (rst) begin
      state <= Idle;
      {count, accepted, written, patience, side} <= '0;
    end
  end

  // ---- reads ----
  typedef struct packed {
    ring_read_t read;
    logic [ORDER_BITS-1:0] after;  // as many words are written before
  } request_t;

  request_t request;
  logic asked, asks, due, closes, notes_ready, noted;
  logic [ORDER_BITS-1:0] missing;
  logic [31:0] run_first;
  logic [L:0] run;              // words of the burst that is collected
  logic [1:0] run_patience;
  logic ar_valid;
  logic [31:0] ar_first;
  logic [7:0] ar_length;
  ring_note_t note;

  fifo #(
      .T(request_t),
      .DEPTH(READS),
      .SPARE(2)
  ) u_reads (
      .clk,
      .rst,
      .s_valid(read.valid),
      .s_ready(read_ready),
      .s_payload('{read: read, after: accepted}),
      .m_valid(asked),
      .m_ready(asks),
      .m_payload(request)
  );

  fifo #(
      .T(ring_note_t),
      .DEPTH(WORDS),
      .BLOCK(1)
  ) u_notes (
      .clk,
      .rst,
      .s_valid(asks),
      .s_ready(notes_ready),
      .s_payload(request.read.note),
      .m_valid(noted),
      .m_ready(axi_read_reply.rvalid),
      .m_payload(note)
  );

  assign missing = request.after - written;
  assign due = missing == '0 || missing[ORDER_BITS-1];
  assign asks = asked && due && notes_ready &&
      (run == '0 || continues(run_first, run, request.read.address));
  assign closes = run != '0 && !asks && (asked || run_patience == '0) &&
      (!ar_valid || axi_read_reply.arready);

  always_comb begin
    axi_read = '0;
    axi_read.arvalid = ar_valid;
    axi_read.araddr = BASE + (ar_first << 3);
    axi_read.arlen = ar_length;
    axi_read.arsize = 3'd3;
    axi_read.arburst = BurstIncr;
    axi_read.rready = 1'b1;
  end

  always_ff @(posedge clk) begin
    if (asks) begin
      if (run == '0) run_first <= request.read.address;
      run <= run + 1'b1;
    end
    run_patience <= asks ? PATIENCE : run_patience - 2'(run_patience != '0);
    if (axi_read_reply.arready) ar_valid <= 1'b0;
    if (closes) begin
      ar_valid <= 1'b1;
      ar_first <= run_first;
      ar_length <= 8'(run - 1'b1);
      run <= '0;
    end
    reply <= '{valid: axi_read_reply.rvalid && !rst, note: note, data: axi_read_reply.rdata};
    if (rst) begin
      ar_valid <= 1'b0;
      {run, run_patience} <= '0;
    end
  end

  assign busy = waits || state != Idle || count != '0 || is_written || asked || run != '0 ||
      ar_valid || noted;

`ifndef SYNTHESIS
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      axi_read.arvalid && !axi_read_reply.arready |=>
      axi_read.arvalid && $stable({axi_read.araddr, axi_read.arlen}));
  addresses_stay : assert property (@(posedge clk) disable iff (rst)
      axi_write.awvalid && !axi_write_reply.awready |=>
      axi_write.awvalid && $stable({axi_write.awaddr, axi_write.awlen}));
  data_stay : assert property (@(posedge clk) disable iff (rst)
      axi_write.wvalid && !axi_write_reply.wready |=>
      axi_write.wvalid && $stable({axi_write.wdata, axi_write.wstrb, axi_write.wlast}));
  words_have_notes : assert property (@(posedge clk) disable iff (rst)
      axi_read_reply.rvalid |-> noted);
  responses_have_bursts : assert property (@(posedge clk) disable iff (rst)
      axi_write_reply.bvalid |-> is_written);
  memory_is_there : assert property (@(posedge clk) disable iff (rst)
      (axi_read_reply.rvalid |-> axi_read_reply.rresp == '0) and
      (axi_write_reply.bvalid |-> axi_write_reply.bresp == '0));
`endif

endmodule
