// Reads a session's receive ring ahead and shows the next bytes of the stream, of which any number
// may be taken in a cycle.
//
// A word that was not full yet when it was read is read again for the rest, so that bytes may arrive
// at any time and in any number.
//
// Parameters: ADDRESS_BITS; RING_BITS, log2 of a ring's bytes; MEMORY_LATENCY, cycles from `read`
// to `read_data`; WORDS, of 8 bytes, read ahead at most. Latency: 3 cycles from `start` plus the memory's. Throughput: 8 bytes a cycle.
module http_reader #(
    parameter int SESSION_BITS = 4,
    parameter int RING_BITS = 21,
    parameter int MEMORY_LATENCY = 4,
    parameter int WORDS = 2 ** $clog2(MEMORY_LATENCY + 4)
) (
    input  logic                                clk,
    input  logic                                rst,
    input  logic                                start,        // go to `from` of `session`
    input  logic [            SESSION_BITS-1:0] session,
    input  logic [                        31:0] from,
    input  logic [                        31:0] up_to,        // what has arrived; may grow
    output logic                                wants,        // would read in this cycle
    input  logic                                may,          // and may
    output logic                                read,
    output logic [SESSION_BITS+RING_BITS-4:0] read_address,
    input  logic [                        63:0] read_data,
    output logic [                       127:0] bytes,        // the next byte in bits 7:0
    output logic [                         4:0] count,        // how many of them are there, up to 16
    output logic                                drained,      // all that has arrived is in `bytes`
    input  logic [                         4:0] take          // at most `count`
);

  localparam int DEPTH = 2 ** $clog2(MEMORY_LATENCY + 4);
  localparam int A = $clog2(DEPTH);

  // ---- fetching: each fetch takes what has arrived of one word ----
  typedef struct packed {
    logic [2:0] lane;
    logic [3:0] length;
  } part_t;

  logic running;
  logic [31:0] fetch_at, waiting;
  logic [3:0] in_word, length;
  part_t parts[MEMORY_LATENCY+1];
  logic [MEMORY_LATENCY:0] coming;
  logic [A:0] reserved;  // words on their way or waiting
  logic fetch, pop;

  assign waiting = up_to - fetch_at;
  assign in_word = 4'd8 - {1'b0, fetch_at[2:0]};
  assign length = waiting < 32'(in_word) ? waiting[3:0] : in_word;
  assign wants = running && !start && waiting != '0 && !waiting[31] && reserved < (A + 1)'(WORDS < DEPTH ? WORDS : DEPTH);
  assign fetch = wants && may;

  always_ff @(posedge clk) begin
    read <= fetch && !rst;
    read_address <= {session, fetch_at[RING_BITS-1:3]};
    parts[0] <= '{lane: fetch_at[2:0], length: length};
    for (int i = 1; i <= MEMORY_LATENCY; i++) parts[i] <= parts[i-1];
    coming <= {coming[MEMORY_LATENCY-1:0], fetch};
    if (fetch) fetch_at <= fetch_at + 32'(length);
    reserved <= reserved + (A + 1)'(fetch) - (A + 1)'(pop);
    if (start) begin
      running  <= 1'b1;
      fetch_at <= from;
      reserved <= '0;
    end
    if (start || rst) coming <= '0;
    if (rst) running <= 1'b0;
  end

  // ---- the words that came ----
  logic [63:0] words[DEPTH];
  logic [3:0] lengths[DEPTH];
  logic [A:0] head, tail;
  logic [63:0] shifted;

  assign shifted = read_data >> {parts[MEMORY_LATENCY].lane, 3'b000};

  always_ff @(posedge clk) begin
    if (coming[MEMORY_LATENCY]) begin
      for (int i = 0; i < 8; i++)
      words[tail[A-1:0]][8*i+:8] <= 4'(i) < parts[MEMORY_LATENCY].length ? shifted[8*i+:8] : 8'd0;
      lengths[tail[A-1:0]] <= parts[MEMORY_LATENCY].length;
      tail <= tail + 1'b1;
    end
    if (pop) head <= head + 1'b1;
    if (start || rst) begin
      head <= '0;
      tail <= '0;
    end
  end

  // ---- the window: up to 24 bytes, of which 16 show ----
  logic [191:0] window, left_window;
  logic [4:0] held, left;

  assign left = held - take;
  assign left_window = window >> {take, 3'b000};
  assign pop = head != tail && left <= 5'd16;
  assign bytes = window[127:0];
  assign count = held > 5'd16 ? 5'd16 : held;
  assign drained = reserved == '0 && fetch_at == up_to && held <= 5'd16;

  always_ff @(posedge clk) begin
    if (start || rst) begin
      held   <= '0;
      window <= '0;
    end else begin
      // Bytes beyond `held` are zero.
      window <= left_window | (pop ? 192'(words[head[A-1:0]]) << {left, 3'b000} : '0);
      held   <= left + (pop ? 5'(lengths[head[A-1:0]]) : 5'd0);
    end
  end

endmodule
