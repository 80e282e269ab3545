// Proof harness: a session is notified only of bytes that came in frames with a correct checksum,
// and each of them is in its ring then, until it has been read. The position of a stream never goes
// back, and there is no notification of a stream that has ended or has not begun; it ends with a
// FIN, after all earlier bytes. Payload is written only into the window of the frame's session:
// from the first missing byte to a ring after the read position.
// A damaged frame causes no notification.
//
// Includes net_parse, whose guarantees are proven, too. Two sessions, rings of 64 bytes, no
// islands, frames of any length below 2,047 beats; positions of 32 bits (tcp_position_f). The
// solver picks a session and a byte of its stream to follow.
//
// Assumptions: the port's beats are full except the last; the lookup replies two cycles after a
// query, holds its result, and finds only established sessions; the application reads no further
// than notified; the read position of a stream that begins is set in the previous cycle, or
// earlier; no two streams begin in successive cycles.
module tcp_rx_f
  import net_pkg::*;
(
`include "net_rx_ports.svh"
    input logic        found_index,
    input logic        hit,
    input logic        index,
    input logic        open,
    input logic        open_ended,
    input logic        at,
    input logic [31:0] open_next,
    input logic        sent_write,
    input logic        sent_at,
    input logic [31:0] sent_to,
    input logic        read_write,
    input logic        read_at,
    input logic [31:0] read_to,
    input logic        desc_ready,
    input logic        pick_session,
    input logic [31:0] pick           // a byte of its stream
);

  localparam int RING_BITS = 6;
  localparam logic [31:0] Ring = 32'(1 << RING_BITS);

  logic         beat_valid, done, write, query, rcv_notify, rcv_notify_at, rcv_notify_ended, arrived, stranger;
  beat_t        beat;
  logic [10:0]  beat_index;
  head_t        head, verdict_head, desc_head;
  logic [13:0]  payload_start;
  frame_kind_t  verdict;
  logic [3:0]   write_address;
  logic [63:0]  write_data, query_key;
  logic [7:0]   write_keep;
  logic [31:0]  rcv_notify_next;
  logic         desc_valid, desc_hit, desc_index, desc_kept, desc_gap, desc_fin, desc_exact, desc_inside, desc_near;

  net_parse parse (
      .*
  );

  tcp_rx #(
      .SESSIONS(2),
      .RING_BITS(RING_BITS),
      .ISLANDS(0),
      .POSITION_BITS(32)
  ) dut (
      .*
  );

  // ---- the frame that was looked up last ----
  logic         started, had, fresh;
  logic [3:0]   age;            // cycles since the query, 15: that many or more
  logic         current;        // its head is still in the parser
  logic [31:0]  frame_seq;
  logic [15:0]  frame_length;
  logic [13:0]  frame_start;
  logic         frame_fin;
  logic [63:0]  frame_key;
  logic [12:1]  last_left;      // the last beat of a frame left this number of cycles ago
  logic [7:4]   well;           // a valid TCP frame's verdict came this number of cycles after its
                                // last beat
  logic         found_before, hit_before, index_before, pick_session_before, open_before;
  logic [31:0]  pick_before;
  beat_t        left_beat[6];
  logic [10:0]  left_index[6];
  logic [5:1]   left_valid;
  logic [10:0]  past, past_6;   // the last selected beat; the one whose bytes were rotated
  logic         past_last, past_6_last;
  logic [14:0]  past_end;       // bytes

  initial started = 1'b0;

  // ---- the session's stream ----
  logic         known, renewed, passed, passed_1;
  logic         forward;
  logic         seen;
  logic [7:0]   byte_seen;
  logic         got, got_1, got_2, old;  // old: before this frame
  logic [31:0]  carry_at, write_at;      // sequence numbers
  logic [7:0]   got_byte;
  logic [7:0]   ring_byte;      // at its position in the ring

  logic [31:0]  next_of, read_of;  // notified position, and read position
  logic         ended_of;
  assign next_of  = dut.streams[pick_session].next;
  assign ended_of = dut.streams[pick_session].ended;
  assign read_of  = dut.reads[pick_session];
  assign forward  = read_to - read_of <= next_of - read_of;

  // The position of the byte in the frame.
  logic [31:0]  spot;
  logic         covered, reading, counted, in_write, in_carry, in_keep;
  logic [7:0]   carry, of_keep;
  logic [7:0]   value_1, value_2, value_3;
  logic [31:0]  kept_at;

  always_comb begin
    spot     = pick - dut.base;
    covered  = pick - dut.start < 32'(dut.limit) - 32'(dut.first);
    reading  = dut.valid_behind[4] && dut.index_behind[4] >= 11'd6 && spot[31:3] == 29'(dut.index_behind[4]) &&
      dut.beat_behind[4].keep[spot[2:0]];
    counted  = dut.judged && dut.judged_hit && dut.index == pick_session && dut.writable && covered && dut.in_order;
    in_write = write && write_address == {pick_session, pick[5:3]} && write_keep[pick[2:0]];
    carry    = dut.flush ? dut.spill_keep : dut.keep_before;
    in_carry = carry[pick[2:0]] && index == pick_session && dut.flush_place == pick[5:3];
    kept_at  = pick - dut.place;
    in_keep  = dut.valid_keep && index == pick_session && kept_at[5:3] == '0 && dut.keep[kept_at[2:0]];
    value_1  = in_write ? write_data[8*pick[2:0]+:8] : ring_byte;
    value_2  = in_carry ? dut.turned_before[8*pick[2:0]+:8] : value_1;
    value_3  = in_keep ? dut.data_keep[8*kept_at[2:0]+:8] : value_2;
  end

  always_ff @(posedge clk) begin
    started             <= 1'b1;
    pick_before         <= pick;
    pick_session_before <= pick_session;
    found_before        <= found_index;
    hit_before          <= hit;
    index_before        <= index;
    open_before         <= open && !rst;
    last_left           <= {last_left[11:1], beat_valid && beat.last};
    well                <= {well[6:4], done && verdict == FRAME_TCP && desc_ready};
    left_valid          <= {left_valid[4:1], beat_valid};
    left_beat[1]        <= beat;
    left_index[1]       <= beat_index;
    for (int i = 2; i < 6; i++) begin
      left_beat[i]  <= left_beat[i-1];
      left_index[i] <= left_index[i-1];
    end
    age                 <= query ? 4'd1 : age == 4'd15 ? age : age + 4'd1;
    if (query) begin
      had       <= 1'b1;
      frame_key <= query_key;
    end
    if (dut.judged) fresh <= 1'b0;
    if (beat_valid && beat_index == 11'd2) current <= 1'b0;
    if (dut.step_1) begin
      fresh        <= 1'b1;
      current      <= 1'b1;
      seen         <= 1'b0;
      frame_seq    <= head.seq;
      frame_length <= head.length;
      frame_start  <= payload_start;
      frame_fin    <= head.flags[FIN];
    end else if (reading) begin
      seen      <= 1'b1;
      byte_seen <= left_beat[4].data[8*spot[2:0]+:8];
    end
    if (left_valid[4]) begin
      past      <= left_index[4];
      past_last <= left_beat[4].last;
      past_end  <= {1'b0, left_index[4], 3'b000} + 15'($countones(left_beat[4].keep));
    end
    if (left_valid[5]) begin
      past_6      <= left_index[5];
      past_6_last <= left_beat[5].last;
      carry_at    <= {dut.place[31:3] + 29'd1, 3'd0};
    end
    write_at <= dut.flush ? carry_at : {dut.place[31:3], 3'd0};
    if (dut.step_1) old <= got;
    // The session.
    if (in_write) ring_byte <= write_data[8*pick[2:0]+:8];
    if (counted) begin
      got      <= 1'b1;
      got_byte <= byte_seen;
    end
    got_1 <= got;
    got_2 <= got_1 && got;
    if (rcv_notify && rcv_notify_at == pick_session && !open && pick - next_of < rcv_notify_next - 32'(rcv_notify_ended) - next_of) passed <= 1'b1;
    passed_1 <= passed;
    renewed <= 1'b0;
    if (read_write && read_at == pick_session) begin
      renewed <= !forward || !known;
      if (pick - read_of < read_to - read_of) {got, got_1, got_2, old, passed, passed_1} <= '0;
    end
    if (open && at == pick_session) begin
      known <= 1'b1;
      {got, got_1, got_2, old, passed, passed_1} <= '0;
    end
    if (rst) begin
      {known, renewed, got, got_1, got_2, old, passed, passed_1, had, fresh, current, seen, past, past_6, past_end} <= '0;
      {past_last, past_6_last} <= 2'b11;
      age        <= 4'd15;
      last_left  <= '0;
      well       <= '0;
      left_valid <= '0;
    end
  end

  // The expected number of the next beat after each step of the pipeline.
  logic [10:0] expected[6];
  always_comb begin
    expected[0] = beat_index;
    for (int k = 1; k < 6; k++) expected[k] = left_valid[k] ? left_index[k] : expected[k-1];
  end

  function automatic logic [10:0] behind(input logic [10:0] number, input logic last);
    return last ? 11'd0 : number + 11'd1;
  endfunction

  function automatic logic is_whole(input beat_t last, input logic [10:0] number);
    return frame_start >= 14'd54 && number >= 11'd7 && !(&number) && last.last && 17'({number, 3'd0}) + 17'($countones(last.keep)) >= 17'(frame_start) + 17'(frame_length);
  endfunction

  function automatic logic shaped(input beat_t b);
    return b.keep[0] && ((b.keep + 8'd1) & b.keep) == '0 && (b.last || b.keep == '1);
  endfunction

  // Within the window at the time of the lookup.
  function automatic logic fitting(input logic [31:0] byte_at);
    return byte_at - dut.wanted < Ring && byte_at - dut.taken_to < Ring;
  endfunction

  function automatic logic is_its(input head_t of);
    return of.seq == frame_seq && of.length == frame_length && of.flags[FIN] == frame_fin && {of.ip, of.port, of.own_port} == frame_key;
  endfunction

  logic its;
  logic mine;    // the frame belongs to the session, which was not opened again
  logic moves;   // its position is about to be notified
  logic [31:0] reached, unread;
  assign mine    = had && age >= 4'd3 && hit && index == pick_session && !dut.another && !renewed;
  assign its     = had && age != 4'd2 && hit && index == pick_session && !dut.another;
  assign moves   = dut.moved && dut.moved_at == pick_session && !renewed;
  assign unread  = next_of - read_of - 32'(ended_of && next_of != read_of);
  assign reached = dut.moved_in.next - 32'(dut.moved_in.ended);

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before && pick_session == pick_session_before);
      // The port's beats are full, but the last.
      assume (shaped(rx));
      // Frames are cut before (net_hold).
      assume (!(&beat_index));
      // The lookup.
      if (dut.step_1) assume (index == found_before);
      else assume (index == index_before && hit == hit_before);
      if (dut.step_1 && hit && index == pick_session) assume (known);
      // The engine and the application.
      if (open_before) assume (!open);
      if (open && at == pick_session) assume (open_next == read_of && !(read_write && read_at == pick_session));
      if (renewed) assume (open && at == pick_session);
      if (!rst) begin
        // ---- notifications ----
        if (rcv_notify && !open) assert (well[6] || (well[7] && open_before));
        if (rcv_notify && !open && rcv_notify_at == pick_session && !renewed) begin
          assert (known && !ended_of);
          assert (rcv_notify_next - next_of <= Ring + 32'(rcv_notify_ended) && rcv_notify_next != next_of);
          if (pick - next_of < rcv_notify_next - 32'(rcv_notify_ended) - next_of) assert (got);
          if (rcv_notify_ended) assert (frame_fin && rcv_notify_next == frame_seq + 32'(frame_length) + 32'd1);
        end
        if (passed_1) assert (ring_byte == got_byte);
        // ---- the parser's frames ----
        if (beat_valid) assert (shaped(beat));
        for (int k = 1; k < 6; k++) if (left_valid[k]) begin
          assert (shaped(left_beat[k]) && !(&left_index[k]));
          assert (expected[k-1] == behind(left_index[k], left_beat[k].last));
        end
        assert (!(&past) && !(&past_6) && (!last_left[6] || past_6_last));
        assert (expected[4] == behind(past, past_last) && expected[5] == behind(past_6, past_6_last));
        if (left_valid[5]) assert (past == left_index[5] && past_last == left_beat[5].last && past_end == {1'b0, past, 3'd0} + 15'($countones(left_beat[5].keep)));
        if (!past_last) assert (past_end == {1'b0, past, 3'd0} + 15'd8);
        for (int m = 1; m < 13; m++) if (last_left[m]) assert (beat_index < 11'(m));
        for (int k = 1; k < 6; k++) assert (last_left[k] == (left_valid[k] && left_beat[k].last));
        assert (dut.fifth == (beat_index == 11'd5));
        assert (parse.ended == last_left[1] && parse.ended_2 == last_left[2] && done == last_left[3]);
        if (last_left[1]) assert (parse.bytes == 16'({left_index[1], 3'd0}) + 16'($countones(left_beat[1].keep)) &&
          parse.whole == (left_index[1] >= 11'd4 && !(&left_index[1])) && parse.least == (left_index[1] >= 11'd7));
        if (last_left[1] && left_index[1] >= 11'd7) assert (had && age >= 4'd3 && current && fresh);
        if (last_left[2] && parse.kind == FRAME_TCP) assert (had && age >= 4'd4 && fresh && current && is_its(parse.head_2) && is_whole(left_beat[2], left_index[2]));
        if (last_left[3] && verdict == FRAME_TCP) assert (had && age >= 4'd5 && fresh && current && is_its(verdict_head) && is_whole(left_beat[3], left_index[3]));
        if (well[4]) assert (last_left[4] && had && age >= 4'd6 && fresh && is_its(verdict_head) && is_whole(left_beat[4], left_index[4]));
        if (well[5]) assert (last_left[5] && had && age >= 4'd7 && fresh && is_its(dut.judged_head) && is_whole(left_beat[5], left_index[5]) && dut.judged_hit == hit);
        if (well[6]) assert (last_left[6] && had && age >= 4'd8 && !fresh);
        if (well[7]) assert (last_left[7] && had && (age >= 4'd9 || age == 4'd1) && !fresh);
        assert (dut.good_q == well[4] && dut.judged == well[5]);
        if (had && age <= 4'd5) assert (beat_index >= 11'd6 || beat_index < 11'(age));
        if (had && age <= 4'd2) assert ({head.ip, head.port, head.own_port} == frame_key);
        if (current) assert (had && age >= 4'd3 && !(beat_index inside {[11'd3:11'd5]}) && is_its(head) && payload_start == frame_start);
        if (current && age >= 4'd4) assert (is_its(parse.head_2));
        if (had && age >= 4'd3 && beat_index >= 11'd6) assert (current && fresh);
        // ---- the pipeline ----
        for (int k = 1; k < 5; k++) begin
          assert (dut.valid_behind[k] == left_valid[k]);
          if (left_valid[k]) assert (dut.beat_behind[k] == left_beat[k] && dut.index_behind[k] == left_index[k]);
        end
        assert (dut.valid_keep == left_valid[5]);
        if (dut.valid_keep) assert (dut.last_keep == left_beat[5].last && dut.data_keep == left_beat[5].data);
        for (int k = 1; k < 6; k++) if (left_valid[k] && left_index[k] >= 11'd6) assert (had && age > 4'(k) && (age < 4'd3 || fresh));
        if (beat_index >= 11'd6) assert (had && 11'(age) + 11'd5 >= (beat_index > 11'd20 ? 11'd20 : beat_index));
        if (past >= 11'd6 && !past_last) assert (had && age >= 4'd6);
        assert (dut.queried[0] == (age == 4'd1) && dut.queried[1] == (age == 4'd2) && dut.step_2 == (age == 4'd3) &&
                dut.step_3 == (age == 4'd4) && dut.step_4 == (age == 4'd5));
        assert (age != '0);
        if (!had) assert (age == 4'd15 && !fresh && !current && !got);
        // ---- invariants of the frame, step by step ----
        if (had && age >= 4'd3) begin
          assert (dut.seq == frame_seq && dut.base == frame_seq - 32'(frame_start) && dut.seq_end == frame_seq + 32'(frame_length));
          assert (dut.whole_end == frame_start + frame_length[13:0] && frame_start >= 14'd34 && frame_start <= 14'd94);
          if (dut.plain) assert (frame_length < 16'h3f00);
          assert (dut.begin_at == (precedes(frame_seq, dut.wanted) ? dut.wanted : frame_seq));
        end
        if (had && age >= 4'd4) begin
          assert (dut.start == dut.begin_at && dut.past_fin == dut.seq_end + 32'd1);
          assert (dut.near_now == (&dut.from_wanted[31:16] || !(|dut.from_wanted[31:16])));
          assert (dut.in_place == (!precedes(dut.wanted, dut.seq) && !precedes(dut.seq_end, dut.wanted)));
          assert (dut.fits == (dut.ring_used <= Ring));
        end
        if (had && age >= 4'd5) begin
          assert (dut.first == 14'(dut.start - dut.base) && dut.limit == dut.whole_end);
          assert (dut.in_order == (dut.start == dut.wanted));
          assert (dut.taken == (dut.near_now && precedes(dut.start, dut.seq_end)));
          assert (dut.reaches == (dut.near_now && dut.in_place));
          if (dut.usable) assert (hit && frame_length < 16'h3f00 && dut.taking && dut.fits);
        end
        if (had && age >= 4'd6) assert (dut.stop == dut.base + 32'(dut.limit));
        // ---- data on its way to the ring ----
        for (int i = 0; i < 8; i++) begin
          if (left_valid[5] && dut.keep[i]) begin
            assert (left_index[5] >= 11'd6 && dut.usable && 14'({left_index[5], 3'(i)}) >= dut.first);
            if (its) assert (fitting(dut.place + 32'(i)));
          end
          if (carry[i]) assert (3'(i) < dut.base[2:0]);
          if (its && carry[i]) assert (fitting(carry_at + 32'(i)));
          if (its && write && write_keep[i]) assert (fitting(write_at + 32'(i)));
        end
        if (left_valid[5] && left_index[5] >= 11'd6) assert (dut.place == dut.base + {18'd0, left_index[5], 3'd0});
        if (carry != '0) begin
          assert (had && hit && age >= 4'd7 && dut.flush_place == carry_at[5:3] && (fresh || last_left[6]));
          if (!dut.flush) assert (!past_6_last && past_6 >= 11'd6 && carry_at[31:3] == 29'((dut.base + {18'd0, past_6, 3'd0}) >> 3) + 29'd1);
        end
        if (dut.flush) assert (last_left[6] && dut.keep_before == '0 && dut.spill_keep != '0);
        if (write) assert (had && hit && (age >= 4'd7 || (age == 4'd1 && last_left[7])) && write_address == {index, write_at[5:3]} && (fresh || last_left[6] || last_left[7]));
        // ---- the session ----
        if (known && !renewed) begin
          assert (next_of - read_of <= Ring + 32'(ended_of));
          if (got && !moves) assert (pick - read_of < unread);
          if (got && moves) assert (pick - read_of < reached - read_of);
          if (pick - read_of < unread) assert (got);
        end
        if (!known || (dut.opened && dut.opened_at == pick_session)) assert (!got);
        if (got_1 || old) assert (got);
        if (got_2) assert (got_1);
        if (got) assert (value_2 == got_byte && !in_keep);
        if (got_1) assert (value_1 == got_byte && !in_carry);
        if (got_2) assert (ring_byte == got_byte && !in_write);
        if (passed) assert (got_1);
        if (passed_1) assert (got_2);
        if (moves) begin
          assert (known && !ended_of && reached - read_of <= Ring && dut.moved_in.next - next_of <= Ring + 32'(dut.moved_in.ended) && dut.moved_in.next != next_of);
          if (pick - next_of < reached - next_of) assert (got);
        end
        if (dut.moved) begin
          assert (well[6] || (well[7] && open_before));
          if (dut.moved_in.ended) assert (frame_fin && dut.moved_in.next == frame_seq + 32'(frame_length) + 32'd1);
        end
        if (age == 4'd2 && hit && index == pick_session && !renewed && !(dut.opened && dut.opened_at == index)) begin
          assert (dut.stream_now.next == next_of && dut.stream_now.ended == ended_of);
          assert (read_of - dut.read_now <= next_of - dut.read_now && next_of - dut.read_now <= Ring + 32'(ended_of));
        end
        if (had && age >= 4'd3 && hit && index == pick_session) begin
          assert (known);
          if (dut.another) assert (!got);
        end
        if (mine && fresh) begin
          assert (dut.wanted == next_of && dut.taking == !ended_of);
          assert (read_of - dut.taken_to <= next_of - dut.taken_to && next_of - dut.taken_to <= Ring + 32'(ended_of));
          if (got) assert (old);
          if (seen && covered && dut.writable) assert (value_3 == byte_seen && !got);
        end
        if (mine) assert (dut.wanted - dut.taken_to <= Ring + 32'd1);
        if (its && old) assert (pick - dut.taken_to < dut.wanted - dut.taken_to && dut.wanted - dut.taken_to <= Ring + 32'd1);
        if (had && age < 4'd6) assert (past < 11'd6 && (age < 4'd3 || !seen));
        if (had && age >= 4'd6 && past >= 11'd6 && spot >= 32'd48 && spot < 32'(past_end)) assert (seen);
      end
    end
  end

endmodule
