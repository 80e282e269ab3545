// Receives TCP payload: finds the session and writes what belongs into its window straight into the
// session's receive ring, while the frame is still arriving. A byte's place in the ring is its
// sequence number modulo the ring's size. Nothing counts until the frame's checksum has: only then
// does `next` of the session move, or, behind a gap, an island of bytes get noted.
//
// A frame may turn out damaged only at its end, so it is never written over bytes that count: of a
// segment, the part from the first missing byte to the next island is taken, and no other.
//
// Every good TCP frame, kept or not, ends in one descriptor for the engine.
//
// Parameters: SESSIONS; RING_BITS, log2 of a ring's bytes; ISLANDS, how many of them are noted.
// Latency: 4 cycles from a frame's last beat to `arrived` and the descriptor.
module tcp_rx
  import net_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RING_BITS = 21,
    parameter  int ISLANDS = 4,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic               clk,
    input  logic               rst,
    // net_parse
    input  logic               beat_valid,
    input  beat_t              beat,
    input  logic        [10:0] beat_index,
    input  head_t              head,
    input  logic        [13:0] payload_start,
    input  logic               done,
    input  frame_kind_t        verdict,
    input  head_t              verdict_head,
    // the receive rings
    output logic               write,
    output logic [S+RING_BITS-4:0] write_address,
    output logic        [63:0] write_data,
    output logic        [ 7:0] write_keep,
    // the engine opens and closes sessions
    input  logic               open,
    input  logic               close,
    input  logic        [ S-1:0] at,
    input  logic        [63:0] open_key,
    input  logic        [31:0] open_next,
    input  logic        [31:0] snd_max   [SESSIONS],
    // how far the application has read
    input  logic        [31:0] read_to   [SESSIONS],
    // how far each stream has come, and whether it has ended
    output logic        [31:0] next      [SESSIONS],
    output logic [SESSIONS-1:0] ended,
    output logic               arrived,
    output logic        [ S-1:0] arrived_at,
    // descriptors
    output logic               desc_valid,
    input  logic               desc_ready,
    output head_t              desc_head,
    output logic               desc_hit,
    output logic        [ S-1:0] desc_index,
    output logic               desc_kept,     // payload continued the stream
    output logic               desc_gap,      // there was a gap before
    output logic               desc_fin,      // the FIN is in order
    output logic               desc_exact,    // the segment starts where the stream goes on
    output logic               desc_inside,   // or within the window
    output logic               desc_near       // or at most a window away from it
);

  logic [SESSIONS-1:0] taking;  // the stream is open
  logic [1:0] generation[SESSIONS];

  // ---- lookup: addresses and ports have come with beat 4, numbers with beat 5 ----
  logic hit, hit_now;
  logic [S-1:0] index, index_now;
  logic [1:0] seen_generation;

  tcp_lookup #(
      .SESSIONS(SESSIONS)
  ) u_lookup (
      .clk,
      .rst,
      .key    ({head.ip, head.port, head.own_port}),
      .hit    (hit_now),
      .index  (index_now),
      .add    (open),
      .remove (close),
      .at,
      .new_key(open_key)
  );

  typedef struct packed {
    logic        valid;
    logic [31:0] from, to;
  } island_t;
  island_t [ISLANDS-1:0] islands[SESSIONS];

  // Step 1, when beat 6 leaves: the session's numbers.
  logic [31:0] wanted, base, seq, seq_end;  // base: ring place of the frame's byte 0
  island_t [ISLANDS-1:0] noted;
  logic [13:0] origin;
  logic fits, ack_ok, plain, step_2;
  logic [31:0] ack_age;

  assign ack_age = snd_max[index] - head.ack;

  always_ff @(posedge clk) begin
    if (beat_valid && beat_index == 11'd5) begin
      hit <= hit_now;
      index <= index_now;
      seen_generation <= generation[index_now];
    end
    step_2 <= beat_valid && beat_index == 11'd6 && !rst;
    if (beat_valid && beat_index == 11'd6) begin
      wanted <= next[index];
      noted <= islands[index];
      seq <= head.seq;
      seq_end <= head.seq + 32'(head.length);
      origin <= payload_start;
      base <= head.seq - 32'(payload_start);
      fits <= (head.seq + 32'(head.length) - read_to[index]) <= 32'(1 << RING_BITS);
      // RFC 5961 section 5: what it acknowledges was sent, and not too long ago.
      ack_ok <= head.flags[ACK] && ack_age <= 32'h0002_0000;
      plain <= !head.flags[SYN] && !head.flags[RST];
    end
  end

  // Step 2: which part of the segment is taken.
  logic [31:0] start_now, end_now, start, stop;
  logic in_order, near_now, taken, reaches;
  logic [13:0] first, limit;  // of that part, from the frame's start

  always_comb begin
    start_now = precedes(seq, wanted) ? wanted : seq;
    end_now   = seq_end;
    for (int i = 0; i < ISLANDS; i++)
    if (noted[i].valid && !precedes(start_now, noted[i].from) && precedes(start_now, noted[i].to))
      start_now = noted[i].to;
    for (int i = 0; i < ISLANDS; i++)
    if (noted[i].valid && !precedes(noted[i].from, start_now) && precedes(noted[i].from, end_now))
      end_now = noted[i].from;
    // Within a window's reach on either side.
    near_now = (seq - wanted + 32'h0001_0000) < 32'h0002_0000;
  end

  always_ff @(posedge clk) begin
    if (step_2) begin
      start <= start_now;
      stop <= end_now;
      first <= origin + 14'(start_now - seq);
      limit <= origin + 14'(end_now - seq);
      in_order <= start_now == wanted;
      taken <= near_now && precedes(start_now, end_now);
      // The segment's end is where the stream will have come to: a FIN there is in order.
      reaches <= near_now && !precedes(wanted, seq) && !precedes(seq_end, wanted) && end_now == seq_end;
    end
  end

  logic usable, writable;
  assign usable = hit && taking[index] && fits && ack_ok && plain;
  assign writable = usable && taken;

  // ---- realign the payload, two cycles behind: turn it by the place of byte 0 in its word ----
  logic valid_1, valid_2, last_2;
  logic [10:0] index_1, index_2;
  beat_t beat_1, beat_2;
  logic [63:0] turned, turned_before;
  logic [7:0] keep, keep_turned, keep_before, low_lanes, spill_keep;
  logic [31:0] place;
  logic flush;
  logic [RING_BITS-4:0] flush_place;

  always_ff @(posedge clk) begin
    valid_1 <= beat_valid && !rst;
    beat_1  <= beat;
    index_1 <= beat_index;
    valid_2 <= valid_1 && !rst;
    beat_2  <= beat_1;
    index_2 <= index_1;
  end

  logic [13:0] offset;
  assign offset = {index_2, 3'b000};
  assign last_2 = valid_2 && beat_2.last;

  always_comb begin
    for (int i = 0; i < 8; i++) begin
      keep[i] = beat_2.keep[i] && index_2 >= 11'd6 && writable && offset + 14'(i) >= first && offset + 14'(i) < limit;
      low_lanes[i] = 3'(i) < base[2:0];
    end
    for (int i = 0; i < 8; i++) begin
      turned[8*i+:8] = beat_2.data[8*3'(3'(i)-base[2:0])+:8];
      keep_turned[i] = keep[3'(3'(i)-base[2:0])];
    end
  end

  assign place = base + 32'(offset);

  always_ff @(posedge clk) begin
    write <= 1'b0;
    flush <= 1'b0;
    if (valid_2) begin
      turned_before <= turned;
      // Nothing is left over from before the payload.
      keep_before <= keep_turned & low_lanes;
      spill_keep <= keep_turned & low_lanes;
      flush <= last_2 && |(keep_turned & low_lanes);
      flush_place <= place[RING_BITS-1:3] + 1'b1;
      write <= |(keep_turned & ~low_lanes) || |(keep_before & low_lanes);
      write_address <= {index, place[RING_BITS-1:3]};
      for (int i = 0; i < 8; i++)
      write_data[8*i+:8] <= low_lanes[i] ? turned_before[8*i+:8] : turned[8*i+:8];
      write_keep <= (keep_turned & ~low_lanes) | (keep_before & low_lanes);
      if (last_2) keep_before <= '0;
    end
    // Six beats of headers come before the next payload: there is room for the rest of this one.
    if (flush) begin
      write <= 1'b1;
      write_address <= {index, flush_place};
      write_data <= turned_before;
      write_keep <= spill_keep;
    end
    if (rst) begin
      write <= 1'b0;
      flush <= 1'b0;
      keep_before <= '0;
    end
  end


  // ---- the verdict ----
  logic accept, kept, fin_ok, free_there;
  logic [31:0] lowest, highest, exact;
  island_t [ISLANDS-1:0] after;
  assign accept = done && verdict == FRAME_TCP && desc_ready && hit &&
      generation[index] == seen_generation;
  assign kept = writable && in_order;
  assign exact = verdict_head.seq - next[index];

  // Islands that the new part touches become one with it.
  always_comb begin
    lowest = start;
    highest = stop;
    after = noted;
    for (int i = 0; i < ISLANDS; i++) begin
      if (noted[i].valid && noted[i].to == start) begin
        lowest = noted[i].from;
        after[i].valid = 1'b0;
      end
      if (noted[i].valid && noted[i].from == stop) begin
        highest = noted[i].to;
        after[i].valid = 1'b0;
      end
    end
    free_there = 1'b0;
    if (!in_order)
      for (int i = 0; i < ISLANDS; i++)
      if (!after[i].valid && !free_there) begin
        free_there = 1'b1;
        after[i]   = '{valid: 1'b1, from: lowest, to: highest};
      end
  end

  assign fin_ok = usable && verdict_head.flags[FIN] && reaches && (!taken || highest == seq_end);

  always_ff @(posedge clk) begin
    arrived <= 1'b0;
    arrived_at <= index;
    desc_valid <= done && verdict == FRAME_TCP && desc_ready && !rst;
    desc_head <= verdict_head;
    desc_hit <= hit && generation[index] == seen_generation;
    desc_index <= index;
    desc_kept <= kept;
    desc_fin <= fin_ok;
    desc_exact <= exact == '0;
    desc_inside <= exact < 32'h0000_ffff;
    desc_near <= exact + 32'h0001_0000 < 32'h0002_0000;
    desc_gap <= 1'b0;
    for (int i = 0; i < ISLANDS; i++) if (noted[i].valid) desc_gap <= 1'b1;
    if (accept && writable && (in_order || free_there)) islands[index] <= after;
    if (accept && (kept || fin_ok)) begin
      next[index] <= (kept ? highest : seq_end) + 32'(fin_ok);
      arrived <= !rst;
      if (fin_ok) begin
        taking[index] <= 1'b0;
        ended[index]  <= 1'b1;
      end
    end
    if (open) begin
      next[at] <= open_next;
      taking[at] <= 1'b1;
      ended[at] <= 1'b0;
      generation[at] <= generation[at] + 2'd1;
      islands[at] <= '0;
    end
    if (close) taking[at] <= 1'b0;
    if (rst) begin
      taking <= '0;
      ended  <= '0;
      for (int i = 0; i < SESSIONS; i++) generation[i] <= '0;
    end
  end

endmodule
