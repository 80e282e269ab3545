// Proof harness: every segment leaves as one frame of the right length, whose payload equals the
// bytes of its session's ring from its position on, and whose checksum is complete when it is sent,
// although the frame's head leaves earlier.
//
// Two sessions, rings of 64 bytes in a memory that takes two cycles, payload of at most 50 bytes,
// which is seven beats: more than the head. The solver picks the word of a ring whose bytes are
// followed.
module tcp_tx_f
  import net_pkg::*;
(
    input logic        clk,
    input logic        rst,
    input logic        s_valid,
    input logic        s_session,
    input logic [5:0]  place,        // position of the payload in the ring
    input logic [5:0]  length,
    input logic        with_mss,
    input logic        with_scale,
    input logic [63:0] word_data,
    input logic        m_ready,
    input logic [3:0]  pick,         // a session, and a word of its ring
    input logic [63:0] pick_data
);

  localparam int MSS = 50;

  typedef struct packed {
    logic       session;
    logic [5:0] place, length;
    logic [3:0] options;  // bytes
  } sent_t;

  logic        started, s_ready, read, m_valid;
  logic [3:0]  read_address;
  segment_t    s_segment;
  beat_t       m;

  logic [1:0]  arriving;  // words that arrive in this cycle, and in the next one

  initial started = 1'b0;

  always_comb begin
    s_segment            = '0;
    s_segment.seq        = 32'(place);
    s_segment.length     = 16'(length);
    s_segment.with_mss   = with_mss;
    s_segment.with_scale = with_scale;
  end

  tcp_tx #(
      .SESSIONS(2),
      .RING_BITS(6),
      .MSS(MSS)
  ) dut (
      .own_mac('0),
      .own_ip ('0),
      .read_ready(1'b1),
      .word_valid(arriving[0]),
      .*
  );

  // ---- the segment of each slot, and its written part ----
  sent_t       sent[2], out, shown;       // of the frame being sent; of the visible beat
  logic [3:0]  written[2];                // beats
  logic [3:0]  came;                      // words of the segment being read
  logic [3:0]  next, coming, last;        // addresses: of words that arrive in the next cycle, in
                                          // this one; of the previous one
  logic [3:0]  number, number_shown;      // of the frame's next beat; of the visible one
  logic        was_whole;                 // the checksum of the segment was complete in the
                                          // previous cycle
  logic        stalled;
  beat_t       was;
  logic [3:0]  pick_before;
  logic [63:0] data_before;

  // Whether payload of a beat equals the ring, for the followed word.
  function automatic logic right(input sent_t of, input logic [3:0] beat, input logic [63:0] data);
    logic [7:0] byte_of, at;
    right = 1'b1;
    for (int i = 0; i < 8; i++) begin
      byte_of = {1'b0, beat, 3'(i)} - 8'd6;
      at      = 8'(of.place) + byte_of;
      if (byte_of < 8'(of.length) && pick == {of.session, at[5:3]} && data[8*i+:8] != pick_data[8*at[2:0]+:8]) right = 1'b0;
    end
  endfunction

  // A frame's bytes, minus one.
  function automatic logic [6:0] span(input sent_t of);
    return 7'd53 + 7'(of.length) + 7'(of.options);
  endfunction

  logic whole;
  assign whole = dut.full[dut.drain] || (dut.fill == dut.drain && dut.read_state != 2'd0 && dut.summed);

  always_ff @(posedge clk) begin
    started     <= 1'b1;
    pick_before <= pick;
    data_before <= pick_data;
    arriving    <= rst ? '0 : {read, arriving[1]};
    next        <= read_address;
    coming      <= next;
    was_whole   <= whole;
    stalled     <= m_valid && !m_ready && !rst;
    was         <= m;
    if (arriving[0]) begin
      came <= came + 1'b1;
      last <= coming;
    end
    if (dut.adding) written[dut.fill] <= 4'(dut.add_at) + 1'b1;
    if (s_valid && s_ready) begin
      sent[dut.fill]    <= '{s_session, place, length, with_scale ? 4'd8 : with_mss ? 4'd4 : 4'd0};
      written[dut.fill] <= '0;
      came              <= '0;
    end
    if (dut.take) begin
      out    <= sent[dut.drain];
      number <= '0;
    end
    if (dut.advance) begin
      number       <= number + 1'b1;
      number_shown <= number;
      shown        <= out;
    end
  end

  // Whether the module's copy of a segment is correct.
  function automatic logic is_of(input segment_t segment, input sent_t of);
    return of.options[1:0] == '0 && of.options < 4'd12 && segment.length == 16'(of.length) &&
      segment.with_mss == (of.options != '0) && segment.with_scale == (of.options == 4'd8);
  endfunction

  // Of the segment being read: its words and beats, remaining requests, remaining writes.
  logic [3:0] words, beats, left, rest;
  logic       busy;
  sent_t      now;
  logic [1:0]  on_way;   // words
  logic [2:0]  at_word;  // of the ring, the next one to arrive

  always_comb begin
    now     = sent[dut.fill];
    busy    = dut.read_state != 2'd0;
    on_way  = 2'(arriving[0]) + 2'(arriving[1]);
    at_word = now.place[5:3] + 3'(came);
    words   = 4'((7'(now.place[2:0]) + 7'(now.length) + 7'd7) >> 3);
    beats   = 4'((7'd13 + 7'(now.length)) >> 3);
    left    = dut.words_left[3:0];
    rest    = now.length == '0 ? '0 : beats - written[dut.fill];
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before && pick_data == data_before);
      assume (length <= 6'(MSS));
      // Only SYNs have options, and they have no payload.
      assume (!with_scale || with_mss);
      assume (!with_mss || length == '0);
      if (arriving[0] && coming == pick) assume (word_data == pick_data);
      if (!rst) begin
        // An offered segment stays.
        if (stalled) assert (m_valid && m == was);
        if (m_valid) begin
          assert (m.last == (number_shown == 4'(span(shown) >> 3)));
          assert (m.keep == (m.last ? 8'hff >> (3'd7 - span(shown) [2:0]) : 8'hff));
          if (number_shown > 4'd5) assert (right(shown, number_shown - 4'd6, m.data));
        end
        if (dut.advance && number == 4'd6) assert (was_whole);
        // Invariants that the solver cannot find itself. The reader: words arrive one per cycle,
        // in order.
        assert (dut.read_state != 2'd3);
        if (!busy) assert (!read && arriving == '0 && !dut.adding);
        else begin
          assert (!dut.full[dut.fill] && dut.session == now.session && dut.beats == 16'(beats) && dut.end_byte == 16'd6 + 16'(now.length));
          assert (dut.turn == 3'd6 - now.place[2:0] && dut.late == (now.place[2:0] == 3'd7));
          assert (is_of(dut.segment, now) && now.length <= 6'(MSS) && (now.options == '0 || now.length == '0));
          assert (4'(dut.beat_at) == written[dut.fill] + 4'(dut.adding) && written[dut.fill] <= beats);
          if (now.length == '0) assert (dut.read_state == 2'd2 && !read && arriving == '0 &&
            !dut.adding && dut.beat_at == '0 && dut.produced && dut.summed && dut.words_due == '0);
          else begin
            assert (dut.summed == (written[dut.fill] == beats) && dut.produced == (4'(dut.beat_at) == beats));
            assert (6'(came) + 6'(on_way) + 6'(read) + 6'(left) == 6'(words));
            assert ((dut.read_state == 2'd1) == (left != '0) && dut.words_left == 16'(left));
            assert (4'(dut.words_due) == words - came && dut.first_word == (came == '0));
            if (arriving[0] && (read || left != '0)) assert (arriving[1]);
            if (arriving[1] && left != '0) assert (read);
            if (came != '0 && came != words) assert (arriving[0]);
            if (arriving[1] && !arriving[0]) assert (came == '0);
            if (read && !arriving[1]) assert (came == '0 && !arriving[0]);
            if (!dut.produced) assert (4'(dut.beat_at) == came - 4'(dut.late && came != '0));
            else assert (came == words);
            if (arriving[0]) assert (coming == {now.session, at_word});
            if (arriving[1]) assert (next == {now.session, at_word + 3'(arriving[0])});
            if (read) assert (read_address == {now.session, at_word + 3'(on_way)});
            assert (dut.word_at == at_word + 3'(on_way) + 3'(read));
            if (came != '0) assert (last == {now.session, now.place[5:3] + 3'(came) - 3'd1});
            if (came != '0 && last == pick) assert (dut.turned_before == turned_by(pick_data, dut.turn));
            if (dut.adding) assert (dut.add_at + 3'd1 == dut.beat_at && dut.add_last == (4'(dut.beat_at) == beats) && right(now, 4'(dut.add_at), dut.added));
            if (dut.early && !dut.summed) assert (dut.adding && rest <= 4'd6);
          end
        end
        for (int s = 0; s < 2; s++) begin
          if (dut.full[s]) assert (sent[s].length <= 6'(MSS) && (sent[s].options == '0 || sent[s].length == '0) &&
            (sent[s].length == '0 || written[s] == 4'((7'd13 + 7'(sent[s].length)) >> 3)));
          if (dut.full[s] || (busy && dut.fill == 1'(s)))
            for (int j = 0; j < 8; j++) if (4'(j) < written[s]) assert (right(sent[s], 4'(j), dut.store[8*s+j]));
        end
        // The sender: a slot that is full, or that misses at most as many beats as the head has
        // before the checksum.
        assert ((dut.fill == dut.drain) == (dut.full[0] == dut.full[1]));
        if (dut.full[0] != dut.full[1]) assert (dut.full[dut.drain]);
        if (dut.full == 2'd3) assert (dut.sending);
        if (dut.full[dut.drain] && !dut.sending) assert (!busy && is_of(dut.segment, sent[dut.drain]));
        if (dut.full[!dut.drain]) assert (is_of(dut.segment, sent[!dut.drain]));
        if (dut.sending) begin
          assert (out == sent[dut.drain] && is_of(dut.out, out) && dut.sent == 16'(number));
          assert (dut.last_beat == 16'(span(out) >> 3) && dut.last_keep == 8'hff >> (3'd7 - span(out) [2:0]) && 16'(number) <= dut.last_beat);
          if (dut.full[dut.drain]) assert (was_whole);
          else begin
            assert (busy && dut.fill == dut.drain && number <= 4'd5);
            if (!dut.summed) assert (dut.adding && rest + number <= 4'd5);
          end
          if (number > 4'd5) assert (right(out, number - 4'd6, dut.stored));
        end
      end
    end
  end

endmodule
