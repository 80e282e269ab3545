// Reads streams one after another from their sessions' receive rings, and prefetches the next one:
// while bytes of one stream are consumed, the words of the expected next stream are already read
// from memory. If another stream is started instead, only these reads are wasted.
//
// Words are stored as in the ring, so that only the visible bytes are moved. A word that was
// incomplete when it was read is read again and replaces itself, so that bytes may arrive at any
// time and in any number. Positions are counted modulo four times the ring.
//
// Memory may take any time for a word. A stream that starts again discards the words that it has
// requested when they arrive.
//
// Parameters: SESSION_BITS; RING_BITS, log2 of a ring's bytes; MEMORY_LATENCY, the usual cycles
// from `read` to its word, for which there is place; SHOWN, visible bytes, 8 or 16; with 16 their
// kinds are visible, too; WHOLE, whether always eight bytes are consumed.
// Latency: 2 to 3 cycles from `start` to prefetched bytes, otherwise 4 and the memory's.
// Throughput: 8 bytes per cycle.
module http_ahead
  import http_pkg::*;
#(
    parameter int SESSION_BITS = 4,
    parameter int RING_BITS = 21,
    parameter int MEMORY_LATENCY = 4,
    parameter int SHOWN = 16,
    parameter bit WHOLE = 0
) (
    input  logic                                clk,
    input  logic                                rst,
    input  logic                                start,         // moves to `from` of `session`
    input  logic [            SESSION_BITS-1:0] session,
    input  logic [                        31:0] from,
    // The end of the received data, after `start`; may grow.
    input  logic [                        31:0] up_to,
    input  logic                                pause,         // suspends reading
    // The expected next stream.
    input  logic                                ahead,
    input  logic [            SESSION_BITS-1:0] ahead_session,
    input  logic [                        31:0] ahead_from,
    input  logic [                        31:0] ahead_up_to,
    // Discards the prefetched words of this session.
    input  logic                                drop,
    input  logic [            SESSION_BITS-1:0] drop_session,
    output logic                                wants,         // requests a read in this cycle
    input  logic                                may,           // grants it
    output logic                                read,
    output logic [SESSION_BITS+RING_BITS-4:0]   read_address,
    output logic [                         3:0] read_note,     // comes back with its word
    // The words of these reads, in their order.
    input  logic                                word_valid,
    input  logic [                         3:0] word_note,
    input  logic [                        63:0] word_data,
    // The next byte in bits 7:0; undefined after `count`.
    output logic [                 8*SHOWN-1:0] bytes,
    // The kinds of these and of all bytes of their words, the next byte's at `lane`;
    // and which of them are valid.
    output kind_t [                  SHOWN+7:0] kinds,
    output logic [                   SHOWN+7:0] there,
    output logic [                         4:0] count,         // number of valid bytes
    output logic                                drained,       // all received data is in `bytes`
    // Position of the next byte in its word.
    output logic [                         2:0] lane,
    // The position of the next byte after the consumed ones, from the first byte of its word: at
    // most `count` after `lane`; at the end of a stream it may be beyond.
    input  logic [                         4:0] onward,
    // Operations in progress (clock_gate).
    output logic                                busy
);

  localparam int DEPTH = 2 ** $clog2(MEMORY_LATENCY + 4);  // words of each stream, in flight or
                                                           // waiting
  localparam int A = $clog2(DEPTH);
  localparam int P = RING_BITS + 2;
  localparam bit SPARE = SHOWN == 16;
  localparam int WORDS = SHOWN / 8 + 1 + 32'(SPARE);       // of the ring of visible words

  if (SHOWN != 8 && SHOWN != 16) $error("SHOWN must be 8 or 16");

  // ---- two streams: the current one, and the prefetched one ----
  logic which;
  logic begun;                              // the prefetched stream has words
  logic [SESSION_BITS-1:0] begun_session;   // its session,
  logic [31:0] begun_from;                  // its start,
  logic [P-1:0] begun_to;                   // the end of its received data
  logic hit, known, begin_other;

  assign hit = begun && begun_session == session && begun_from == from;
  assign known = begun && begun_session == ahead_session && begun_from == ahead_from;
  assign begin_other = ahead && !known && !start;

  always_ff @(posedge clk) begin
    if (begin_other) begin
      begun <= 1'b1;
      begun_session <= ahead_session;
      begun_from <= ahead_from;
    end
    if (ahead && (known || begin_other)) begun_to <= ahead_up_to[P-1:0];
    if (start) begin
      if (hit) which <= !which;
      begun <= begun && !hit;
    end
    if (drop && begun_session == drop_session) begun <= 1'b0;
    if (rst) begin
      which <= 1'b0;
      begun <= 1'b0;
    end
  end

  // ---- fetching: each fetch takes the received bytes of one word ----
  typedef struct packed {
    logic       stream;
    logic [2:0] last;    // the last received byte
  } part_t;

  logic [1:0] running, starts, due, requests;
  logic [SESSION_BITS-1:0] sessions[2];
  logic [P-1:0] fetch_at[2], to[2], waiting[2];
  logic [A:0] reserved[2], head[2], tail[2];
  // Requested words that have not arrived, and how many of them belong to an earlier start.
  logic [A+1:0] coming[2], coming_then[2], stale[2];
  logic [1:0] arrives, kept;
  logic fetch, pop, of, partial;

  always_comb begin
    for (int i = 0; i < 2; i++) begin
      starts[i] = which == 1'(i) ? start && !hit : begin_other;
      to[i] = which == 1'(i) ? up_to[P-1:0] : begun_to;
      waiting[i] = to[i] - fetch_at[i];
      requests[i] = running[i] && due[i] && reserved[i] < (A + 1)'(DEPTH) && !coming[i][A+1] &&
          (which == 1'(i) ? !start && !pause : begun);
    end
  end

  // The current stream has priority. A read in the cycle in which a stream starts again is
  // discarded.
  assign wants = |requests;
  assign of = requests[which] ? which : !which;
  assign fetch = wants && may;
  assign partial = fetch_at[of][P-1:3] == to[of][P-1:3];

  always_ff @(posedge clk) begin
    read <= fetch && !rst;
    read_address <= {sessions[of], fetch_at[of][RING_BITS-1:3]};
    read_note <= {of, partial ? to[of][2:0] - 3'd1 : 3'd7};
    for (int i = 0; i < 2; i++) begin
      coming[i] <= coming_then[i];
      if (arrives[i] && !kept[i]) stale[i] <= stale[i] - 1'b1;
      if (fetch && of == 1'(i)) fetch_at[i] <= partial ? to[i] : {fetch_at[i][P-1:3] + 1'b1, 3'd0};
      // Whether there is more data, as of the previous cycle: this is a long path of its own.
      due[i] <= !starts[i] && !waiting[i][P-1] &&
          (fetch && of == 1'(i) ? waiting[i][P-2:4] != '0 || waiting[i][3:0] > 4'd8 - 4'(fetch_at[i][2:0]) : waiting[i] != '0);
      if ((fetch && of == 1'(i)) != (pop && which == 1'(i)))
        reserved[i] <= pop && which == 1'(i) ? reserved[i] - 1'b1 : reserved[i] + 1'b1;
      if (starts[i]) begin
        running[i]  <= 1'b1;
        sessions[i] <= which == 1'(i) ? session : ahead_session;
        fetch_at[i] <= which == 1'(i) ? from[P-1:0] : ahead_from[P-1:0];
        reserved[i] <= '0;
      end
      if (starts[i]) stale[i] <= coming_then[i];
      if (rst) {coming[i], stale[i]} <= '0;
    end
    if (rst) running <= '0;
  end

  // ---- the received words of both streams ----
  logic [66:0] words[2*DEPTH];
  logic [66:0] oldest;
  part_t came;

  assign came = part_t'(word_note);

  always_comb begin
    for (int i = 0; i < 2; i++) begin
      arrives[i] = word_valid && came.stream == 1'(i);
      kept[i] = arrives[i] && stale[i] == '0;
      coming_then[i] = coming[i] + (A + 2)'(fetch && of == 1'(i)) - (A + 2)'(arrives[i]);
    end
  end

  assign oldest = words[{which, head[which][A-1:0]}];

  always_ff @(posedge clk) begin
    if (|kept) words[{came.stream, tail[came.stream][A-1:0]}] <= {came.last, word_data};
    for (int i = 0; i < 2; i++) begin
      if (kept[i]) tail[i] <= tail[i] + 1'b1;
      if (pop && which == 1'(i)) head[i] <= head[i] + 1'b1;
      if (starts[i] || rst) begin
        head[i] <= '0;
        tail[i] <= '0;
      end
    end
  end

  // ---- visible bytes ----
  // The consumer is selected late, so only pointers move, never data: words stay in a ring until
  // they are used up. With space for one word more than visible, accepting a word does not depend
  // on the consumption in the same cycle.
  localparam int W = $clog2(WORDS);
  logic [63:0] window[WORDS];
  logic [W-1:0] shows[SHOWN/8+1];    // one-hot numbers of the visible words, the one with the next
                                     // byte first
  logic [W-1:0] slot;                // destination of the next word
  logic [5:0] held, filled;          // bytes from the first byte of the first word on; including
                                     // the new word
  logic [5:0] left;                  // from the next byte on
  logic [1:0] gone;                  // used-up words
  logic [2:0] place, placed;         // full words from the first one on; before words are used up
  logic came_one, full;

  assign gone = onward[4:3];
  assign came_one = head[which] != tail[which];
  assign pop = !start && came_one && (place != 3'(WORDS) || (!SPARE && gone != '0));
  assign slot = shows[0] + W'(place);
  // The used-up bytes of the first word are computed immediately if their number is constant,
  // otherwise where it is needed.
  assign filled = pop ? {place, oldest[66:64]} + 6'd1 - (WHOLE ? 6'(lane) : '0) : held;
  assign left = WHOLE ? held : held - 6'(lane);
  assign placed = place + 3'(pop && oldest[66:64] == '1);
  localparam int C = $clog2(SHOWN);
  assign full = |held[5:C+1] || (held[C] && (WHOLE || held[C-1:0] >= C'(lane)));
  assign count = full ? 5'(SHOWN) : 5'(left[$clog2(SHOWN)-1:0]);
  assign drained = reserved[which] == '0 && fetch_at[which] == up_to[P-1:0] && (!full || left == 6'(SHOWN));

  logic [8*SHOWN+63:0] shown;
  always_comb begin
    for (int i = 0; i <= SHOWN / 8; i++) shown[64*i+:64] = window[shows[i]];
    bytes = (8 * SHOWN)'(shown >> {lane, 3'b000});
  end

  always_ff @(posedge clk) begin
    if (pop) window[slot] <= oldest[63:0];
    for (int i = 0; i <= SHOWN / 8; i++) shows[i] <= shows[i] + W'(gone);
    if (!WHOLE) lane <= onward[2:0];
    place <= placed - 3'(gone);
    held  <= filled - {1'b0, gone, 3'b000};
    if (start || rst) begin
      lane  <= from[2:0];
      for (int i = 0; i <= SHOWN / 8; i++) shows[i] <= W'(i);
      place <= '0;
      held  <= WHOLE ? '0 : 6'(from[2:0]);
    end
  end

  // Kinds are stored with their bytes.
  if (SPARE) begin : g_kinds
    kind_t [7:0] kinds_of[WORDS];
    always_comb
      for (int i = 0; i <= SHOWN / 8; i++) kinds[8*i+:8] = kinds_of[shows[i]];
    always_comb for (int i = 0; i < SHOWN + 8; i++) there[i] = 6'(i) < held;
    always_ff @(posedge clk) if (pop) for (int j = 0; j < 8; j++) kinds_of[slot][j] <= kind_of(oldest[8*j+:8]);
  end else begin : g_no_kinds
    assign kinds = {SHOWN + 8{KIND_PLAIN}};
    assign there = '0;
  end

  assign busy = wants || coming[0] != '0 || coming[1] != '0 || pop || onward != 5'(lane);

`ifndef SYNTHESIS
  // Each stream has place for the words that it has requested.
  for (genvar i = 0; i < 2; i++) begin : g_streams
    reserved_is_bounded : assert property (@(posedge clk) disable iff (rst)
        running[i] |-> reserved[i] <= (A + 1)'(DEPTH));
    words_are_reserved : assert property (@(posedge clk) disable iff (rst)
        running[i] |-> tail[i] - head[i] <= reserved[i]);
  end
  words_were_read : assert property (@(posedge clk) disable iff (rst)
      word_valid |-> coming[came.stream] != '0);
  popped_words_came : assert property (@(posedge clk) disable iff (rst)
      pop |-> reserved[which] != '0);
  reads_are_granted : assert property (@(posedge clk) disable iff (rst)
      read |-> $past(wants && may));
`endif

endmodule
