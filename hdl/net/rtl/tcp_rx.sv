// Receives TCP payload: finds the session and writes the bytes within its window directly to the
// session's receive ring, while the frame is still arriving. The ring position of a byte is its
// sequence number modulo the ring's size. Data counts only after the frame's checksum was verified:
// then `next` of the session moves, or, after a gap, an island of bytes is recorded.
//
// A frame may turn out damaged only at its end, so it never overwrites valid bytes: the accepted
// part of a segment is that from the first missing byte to the next island.
//
// Every good TCP frame, kept or not, results in one descriptor for the engine.
//
// The state of a session is in memories that are read with the lookup's result and written in one
// place.
//
// Parameters: SESSIONS; RING_BITS, log2 of a ring's bytes; ISLANDS, the number of recorded islands,
// an even number; with none, data after a gap has to be retransmitted; POSITION_BITS,
// the width of read positions.
// Latency: 6 cycles from a frame's last beat to the descriptor, 6 to `rcv_notify` (7 if a session
// is opened at that moment). The ring may be read two cycles after `rcv_notify`.
module tcp_rx
  import net_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RING_BITS = 21,
    parameter  int ISLANDS = 4,
    parameter  int POSITION_BITS = position_bits(RING_BITS),
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
    // the lookup: receives the key when beat 5 leaves; `found` a cycle later, `hit` two
    output logic               query,
    output logic        [63:0] query_key,
    input  logic        [ S-1:0] found_index,
    input  logic               hit,
    input  logic        [ S-1:0] index,
    // from the engine: the start of a stream, or that there is none yet
`include "tcp_rx_stream_ports.svh"
    output logic               arrived,       // by received data, not by opening
    // this frame, which has just been verified, may open a session
    output logic               stranger,
    // descriptors
    output logic               desc_valid,
    input  logic               desc_ready,
    output head_t              desc_head,
    output logic               desc_hit,
    output logic        [ S-1:0] desc_index,
    output logic               desc_kept,     // payload continued the stream
    output logic               desc_gap,      // there was a gap before the payload
    output logic               desc_fin,      // the FIN is in order
    output logic               desc_exact,    // the segment starts at the next expected byte
    output logic               desc_inside,   // or within the window
    output logic               desc_near       // or at most a window away from the window
);

  if (ISLANDS % 2 != 0) $error("ISLANDS must be even");

  localparam int PLACES = ISLANDS == 0 ? 2 : ISLANDS;  // unused if ISLANDS is 0
  localparam int NEAR_BITS = near_bits(RING_BITS);

  // The address has arrived with beat 4, the ports with beat 5.
  // The beat's number is computed a cycle early, because the lookup's hash is a long path.
  logic fifth;
  always_ff @(posedge clk) begin
    if (beat_valid) fifth <= beat_index == 11'd4 && !beat.last;
    if (rst) fifth <= 1'b0;
  end
  assign query = beat_valid && fifth;
  assign query_key = {head.ip, head.port, head.own_port};

  assign stranger = done && verdict == FRAME_TCP && !hit && verdict_head.flags[ACK] &&
      !verdict_head.flags[SYN] && !verdict_head.flags[RST];

  typedef struct packed {
    logic        valid;
    logic [31:0] from, to;
  } island_t;

  // ---- state of each session ----
  typedef struct packed {
    logic        ended;
    logic        islands;  // there are islands
    logic [31:0] next;
  } stream_t;

  stream_t streams[SESSIONS], stream, stream_in;
  logic [31:0] sents[SESSIONS], sent_now;
  logic [POSITION_BITS-1:0] reads[SESSIONS], read_now;
  island_t [PLACES-1:0] islands[SESSIONS], islands_now, after;
  logic stream_write, islands_write;
  logic [S-1:0] stream_at;

  always_ff @(posedge clk) begin
    if (stream_write) streams[stream_at] <= stream_in;
    if (islands_write) islands[index] <= after;
    if (sent_write) sents[sent_at] <= sent_to;
    if (read_write) reads[read_at] <= POSITION_BITS'(read_to);
    stream <= streams[found_index];
    islands_now <= islands[found_index];
    sent_now <= sents[found_index];
    read_now <= reads[found_index];
  end

  // The position of a stream, until it is written to the memory.
  logic moved, moved_on;
  stream_t moved_in;
  logic [S-1:0] moved_at;

  // Step 1, two cycles after beat 5: the first byte that may be missing.
  logic [31:0] wanted, base, seq, seq_end, begin_at, sent;  // base: ring place of byte 0
  logic [POSITION_BITS-1:0] taken_to, ring_used;
  island_t [PLACES-1:0] noted;
  logic [13:0] whole_end;
  logic taking, acking, plain, step_1, step_2, step_3, step_4;
  logic [1:0] queried;

  assign step_1 = queried[1];

  // The stream has advanced in the cycle in which it was read: a frame followed directly while
  // another session was opened.
  logic late;
  stream_t stream_now;
  assign stream_now = late ? moved_in : stream;

  always_ff @(posedge clk) begin
    late <= moved && !open && moved_at == found_index;
    queried <= rst ? '0 : {queried[0], query};
    step_2 <= step_1 && !rst;
    if (step_1) begin
      wanted <= stream_now.next;
      begin_at <= precedes(head.seq, stream_now.next) ? stream_now.next : head.seq;
      noted <= islands_now;
      for (int i = 0; i < PLACES; i++)
      noted[i].valid <= ISLANDS != 0 && islands_now[i].valid && stream_now.islands;
      seq <= head.seq;
      seq_end <= head.seq + 32'(head.length);
      whole_end <= payload_start + head.length[13:0];
      base <= head.seq - 32'(payload_start);
      sent <= sent_now;
      taken_to <= read_now;
      taking <= !stream_now.ended;
      acking <= head.flags[ACK];
      // Positions in a frame fit 14 bits; otherwise its length is damaged.
      plain <= !head.flags[SYN] && !head.flags[RST] && head.length < 16'h3f00;
    end
  end

  // The session's slot has another stream since the lookup.
  logic another, opened;
  logic [S-1:0] opened_at;
  always_ff @(posedge clk) begin
    opened <= open;
    opened_at <= at;
    if (step_1) another <= (opened && opened_at == index) || (open && at == index);
    else if (open && at == index) another <= 1'b1;
  end

  // Step 2: the position of the segment relative to the stream and to each island.
  logic [31:0] start_now, start, from_wanted, ack_age;
  logic [PLACES-1:0] ahead_now, ahead;  // the island begins within the rest of the segment
  logic [13:0] cut[PLACES];             // the position, from the frame's start
  logic near_now, in_place, fits, ack_ok;

  assign from_wanted = seq - wanted;
  assign ack_age = sent - head.ack;
  assign ring_used = POSITION_BITS'(seq_end) - taken_to;

  always_comb begin
    start_now = begin_at;
    for (int i = 0; i < PLACES; i++) begin
      // Islands are disjoint and not adjacent: at most one contains this byte,
      // and the byte after that island is missing.
      if (noted[i].valid && !precedes(begin_at, noted[i].from) && precedes(begin_at, noted[i].to))
        start_now = noted[i].to;
      ahead_now[i] = noted[i].valid && precedes(begin_at, noted[i].from) && precedes(noted[i].from, seq_end);
    end
  end

  always_ff @(posedge clk) begin
    step_3 <= step_2 && !rst;
    if (step_2) begin
      start <= start_now;
      ahead <= ahead_now;
      for (int i = 0; i < PLACES; i++) cut[i] <= 14'(noted[i].from - base);
      // Within the reach of a window on either side.
      near_now <= (&from_wanted[31:NEAR_BITS]) || !(|from_wanted[31:NEAR_BITS]);
      in_place <= !precedes(wanted, seq) && !precedes(seq_end, wanted);
      fits <= ring_used <= POSITION_BITS'(1 << RING_BITS);
      // RFC 5961 section 5: the acknowledged position was sent, and not too long ago.
      ack_ok <= acking && ack_age <= 32'h0040_0000;
    end
  end

  // Step 3: the accepted part of the segment, up to the next island.
  logic [13:0] first, limit, lowest_cut;  // of that part, from the frame's start
  logic [13:0] pair[PLACES/2];
  logic in_order, taken, reaches, usable, cut_found;

  always_comb begin
    for (int i = 0; i < PLACES / 2; i++)
    pair[i] = ahead[2*i] && (!ahead[2*i+1] || cut[2*i] < cut[2*i+1]) ? cut[2*i] : cut[2*i+1];
    lowest_cut = pair[0];
    cut_found = |ahead[1:0];
    for (int i = 1; i < PLACES / 2; i++) begin
      if (|ahead[2*i+:2] && (!cut_found || pair[i] < lowest_cut)) lowest_cut = pair[i];
      cut_found = cut_found || |ahead[2*i+:2];
    end
  end

  always_ff @(posedge clk) begin
    step_4 <= step_3 && !rst;
    if (step_3) begin
      first <= 14'(start - base);
      limit <= |ahead ? lowest_cut : whole_end;
      in_order <= start == wanted;
      taken <= near_now && precedes(start, seq_end);
      // The segment's end is the new position of the stream: a FIN there is in order.
      reaches <= near_now && in_place && ahead == '0;
      usable <= hit && taking && fits && ack_ok && plain;
    end
  end

  logic writable;
  logic [31:0] stop;
  assign writable = usable && taken && !another;
  always_ff @(posedge clk) if (step_4) stop <= base + 32'(limit);

  // ---- realigning the payload, four cycles later ----
  // Selects its bytes, then rotates by the position of byte 0 in its word.
  localparam int BEHIND = 4;
  logic [BEHIND:1] valid_behind;
  beat_t beat_behind[BEHIND+1];
  logic [10:0] index_behind[BEHIND+1];
  logic valid_keep, last_keep;
  logic [63:0] data_keep;
  logic [31:0] place;
  logic [7:0] keep_now, keep, keep_turned, keep_before, low_lanes, spill_keep;
  logic [63:0] turned, turned_before;
  logic flush;
  logic [RING_BITS-4:0] flush_place;
  logic [13:0] offset;
  logic [14:0] to_first, to_limit;

  always_ff @(posedge clk) begin
    valid_behind <= {valid_behind[BEHIND-1:1], beat_valid};
    beat_behind[1]  <= beat;
    index_behind[1] <= beat_index;
    for (int i = 2; i <= BEHIND; i++) begin
      beat_behind[i]  <= beat_behind[i-1];
      index_behind[i] <= index_behind[i-1];
    end
    if (rst) valid_behind <= '0;
  end

  assign offset = {index_behind[BEHIND], 3'b000};

  always_comb begin
    // Negative: the whole beat is after that position.
    to_first = {1'b0, first} - {1'b0, offset};
    to_limit = {1'b0, limit} - {1'b0, offset};
    keep_now = index_behind[BEHIND] >= 11'd6 && writable ? beat_behind[BEHIND].keep : '0;
    if (!to_first[14]) keep_now &= |to_first[13:3] ? '0 : 8'hff << to_first[2:0];
    if (to_limit[14]) keep_now = '0;
    else if (to_limit[13:3] == '0) keep_now &= ~(8'hff << to_limit[2:0]);
    turned = turned_by(data_keep, base[2:0]);
    for (int i = 0; i < 8; i++) begin
      low_lanes[i] = 3'(i) < base[2:0];
      keep_turned[i] = keep[3'(3'(i)-base[2:0])];
    end
  end

  always_ff @(posedge clk) begin
    valid_keep <= valid_behind[BEHIND] && !rst;
    last_keep <= beat_behind[BEHIND].last;
    data_keep <= beat_behind[BEHIND].data;
    keep <= keep_now;
    place <= base + 32'(offset);
    write <= 1'b0;
    flush <= 1'b0;
    if (valid_keep) begin
      turned_before <= turned;
      // No bytes from before the payload remain.
      keep_before <= keep_turned & low_lanes;
      spill_keep <= keep_turned & low_lanes;
      flush <= last_keep && |(keep_turned & low_lanes);
      flush_place <= place[RING_BITS-1:3] + 1'b1;
      write <= |(keep_turned & ~low_lanes) || |(keep_before & low_lanes);
      write_address <= {index, place[RING_BITS-1:3]};
      for (int i = 0; i < 8; i++)
      write_data[8*i+:8] <= low_lanes[i] ? turned_before[8*i+:8] : turned[8*i+:8];
      write_keep <= (keep_turned & ~low_lanes) | (keep_before & low_lanes);
      if (last_keep) keep_before <= '0;
    end
    // Six beats of headers precede the next payload, which leaves time for the rest of this one.
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

  // ---- the verdict, a cycle later, when `stop` is valid: islands that touch the new part ----
  logic good, good_q, judged, judged_hit, kept, fin_ok, free_there;
  logic [PLACES-1:0] joins_below, joins_above;
  logic [31:0] lowest, highest, exact, past_fin;
  head_t judged_head;
  assign good = done && verdict == FRAME_TCP && desc_ready && !rst;

  always_ff @(posedge clk) begin
    good_q <= good;
    judged <= good_q && !rst;
    judged_hit <= hit;
    judged_head <= verdict_head;
    exact <= seq - wanted;
    past_fin <= seq_end + 32'd1;
    for (int i = 0; i < PLACES; i++) begin
      joins_below[i] <= noted[i].valid && noted[i].to == start;
      joins_above[i] <= noted[i].valid && noted[i].from == stop;
    end
  end

  // Islands that touch the new part are merged with it.
  always_comb begin
    lowest = start;
    highest = stop;
    after = noted;
    for (int i = 0; i < PLACES; i++) begin
      if (joins_below[i]) begin
        lowest = noted[i].from;
        after[i].valid = 1'b0;
      end
      if (joins_above[i]) begin
        highest = noted[i].to;
        after[i].valid = 1'b0;
      end
    end
    free_there = 1'b0;
    if (!in_order && ISLANDS != 0)
      for (int i = 0; i < PLACES; i++)
      if (!after[i].valid && !free_there) begin
        free_there = 1'b1;
        after[i]   = '{valid: 1'b1, from: lowest, to: highest};
      end
  end

  assign kept = writable && in_order;
  // There is no data after a FIN.
  assign fin_ok = usable && !another && judged_head.flags[FIN] && reaches && (!taken || joins_above == '0);
  assign islands_write = judged && judged_hit && writable && (in_order || free_there);

  // ---- notifications of the stream's position ----
  // An opening has priority, others wait for a cycle.
  logic some_after;

  always_comb begin
    some_after = 1'b0;
    for (int i = 0; i < PLACES; i++) some_after |= after[i].valid;
  end

  assign stream_write = open || moved;
  assign stream_at = open ? at : moved_at;
  assign stream_in = open ? '{ended: open_ended, islands: 1'b0, next: open_next} : moved_in;
  assign rcv_notify = stream_write;
  assign rcv_notify_at = stream_at;
  assign rcv_notify_next = stream_in.next;
  assign rcv_notify_ended = stream_in.ended;
  assign arrived = moved && moved_on && !open;

  always_ff @(posedge clk) begin
    desc_valid <= judged && !rst;
    desc_head <= judged_head;
    desc_hit <= judged_hit;
    desc_index <= index;
    desc_kept <= kept;
    desc_fin <= fin_ok;
    desc_exact <= exact == '0;
    desc_inside <= exact < 32'(1 << RING_BITS);
    desc_near <= exact + 32'(1 << NEAR_BITS) < 32'(2 << NEAR_BITS);
    desc_gap <= 1'b0;
    for (int i = 0; i < PLACES; i++) if (noted[i].valid) desc_gap <= 1'b1;
    // A new stream has not reached the position of the previous one.
    if (!open || at == moved_at) moved <= 1'b0;
    if (judged && judged_hit && (kept || fin_ok || islands_write) && !(open && at == index)) begin
      moved <= 1'b1;
      moved_on <= kept || fin_ok;
      moved_at <= index;
      moved_in.ended <= fin_ok;
      moved_in.islands <= some_after;
      moved_in.next <= fin_ok ? past_fin : kept ? highest : wanted;
    end
    if (rst) moved <= 1'b0;
  end

`ifndef SYNTHESIS
  frames_have_one_key : assert property (@(posedge clk) disable iff (rst) query |=> !query);
  // Part of a word at the end of a frame is written while the headers of the next one pass.
  flush_is_between_payloads : assert property (@(posedge clk) disable iff (rst)
      flush && valid_keep |-> keep_turned == '0);
  streams_advance : assert property (@(posedge clk) disable iff (rst)
      judged && judged_hit && kept |-> !precedes(highest, wanted));
  islands_have_bytes : assert property (@(posedge clk) disable iff (rst)
      islands_write && !in_order |-> precedes(lowest, highest));
  // Bytes are written only for a session.
  writes_have_a_session : assert property (@(posedge clk) disable iff (rst)
      write && !$past(flush) |-> $past(hit, 1));
`endif

endmodule
