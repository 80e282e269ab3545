// Proof harness: a key is found if and only if it was inserted and not removed, and then with its
// session. A key is in at most one place, which is one of its own. A key that is inserted twice is
// refused, and keeps its session.
//
// Two sessions, two places in each table, one in the stash; keys of three bits, so that each key
// collides with others in both of its places. The solver picks the key that is followed.
module tcp_lookup_f (
    input logic       clk,
    input logic       rst,
    input logic       query,
    input logic [2:0] key,
    input logic       change_valid,
    input logic       change_remove,
    input logic [2:0] change,
    input logic       change_index,
    input logic [2:0] pick
);

  localparam int Clear = 0, Idle = 1, Look = 3, Place = 4, Done = 5;  // the table's states

  logic       started, found_valid, found, found_index, hit, index, changed, refused;
  logic       changing, remove_before, index_before, of_pick, is_in, its_index, ends, adds, removed;
  logic [2:0] change_before, pick_before;

  initial started = 1'b0;

  tcp_lookup #(
      .SESSIONS(2),
      .STASH   (1),
      .MOVES   (2)
  ) dut (
      .secret    (64'h0123_4567_89ab_cdef),
      .query_key ({key, 61'd0}),
      .change_key({change, 61'd0}),
      .*
  );

  // The table's operations on a moving key, one after another: reads its two places, and writes.
  logic       at_work, left_is, right_is, left_used, right_used;
  logic       left_home, right_home;  // the places of the key that is followed

  always_comb begin
    at_work    = dut.state > Idle;
    left_used  = dut.lefts[dut.left_at].valid;
    right_used = dut.rights[dut.right_at].valid;
    left_is    = left_used && dut.lefts[dut.left_at].key == dut.moving.key;
    right_is   = right_used && dut.rights[dut.right_at].key == dut.moving.key;
    left_home  = dut.left_bit({pick, 61'd0}, dut.mask, 0);
    right_home = dut.right_bit({pick, 61'd0}, dut.mask, 0);
  end

  // The places that contain the key.
  logic [1:0] in_left, in_right;
  logic       in_stash, on_its_way, there, was_left, was_right, was_on_its_way, was_there, was_index, was_leaving;
  logic [2:0] places;

  always_comb begin
    for (int i = 0; i < 2; i++) begin
      in_left[i]  = dut.lefts[i].valid && dut.lefts[i].key == {pick, 61'd0};
      in_right[i] = dut.rights[i].valid && dut.rights[i].key == {pick, 61'd0};
    end
    in_stash   = dut.stash[0].valid && dut.stash[0].key == {pick, 61'd0};
    on_its_way = dut.driven && dut.moving.key == {pick, 61'd0};
    places     = 3'(in_left[0]) + 3'(in_left[1]) + 3'(in_right[0]) + 3'(in_right[1]) + 3'(in_stash) + 3'(on_its_way);
    // In progress: inserted, with others still being moved; or being removed.
    ends    = change_valid && changed;
    adds    = change_valid && !change_remove && change == pick && (dut.driven || (ends && !refused));
    removed = ends && change_remove && change == pick;
    there   = (is_in || adds) && !removed;
  end

  always_ff @(posedge clk) begin
    started        <= 1'b1;
    pick_before    <= pick;
    of_pick        <= query && key == pick && !rst;
    was_left       <= in_left != '0 && dut.state != Clear;
    was_right      <= in_right != '0 && dut.state != Clear;
    was_on_its_way <= on_its_way;
    was_there      <= there && dut.state != Clear;
    was_leaving    <= change_valid && change_remove && change == pick;
    was_index      <= is_in ? its_index : change_index;
    changing       <= change_valid && !changed && !rst;
    remove_before  <= change_remove;
    index_before   <= change_index;
    change_before  <= change;
    if (rst) begin
      is_in <= 1'b0;
    end else if (ends && change == pick) begin
      if (change_remove) is_in <= 1'b0;
      else if (!refused) begin
        is_in     <= 1'b1;
        its_index <= change_index;
      end
    end
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else begin
      assume (pick == pick_before);
      // A change is held until it has ended.
      if (changing) assume (change_valid && change_remove == remove_before && change_index == index_before && change == change_before);
      if (!rst) begin
        if (of_pick) assert (found_valid);
        // While the key is being removed, both results are permitted.
        if (of_pick && !was_leaving) begin
          assert (found == was_there);
          if (found) assert (found_index == was_index);
        end
        if (ends && change == pick && !change_remove) assert (refused || !is_in);
        if (dut.state != Clear) begin
          assert (places == 3'(there));
          // In one of its own places, and with its session.
          assert (!in_left[!left_home] && !in_right[!right_home]);
          for (int i = 0; i < 2; i++) begin
            if (in_left[i]) assert (dut.lefts[i].index == (is_in ? its_index : change_index));
            if (in_right[i]) assert (dut.rights[i].index == (is_in ? its_index : change_index));
          end
          if (in_stash) assert (dut.stash[0].index == (is_in ? its_index : change_index));
          if (on_its_way) assert (dut.moving.index == (is_in ? its_index : change_index));
        end
        // Invariants that the solver cannot find itself: the table's state during a change.
        assert (dut.state <= Done && (!at_work || change_valid) && (at_work || !dut.driven));
        if (of_pick) assert (dut.wanted == {pick, 61'd0} && dut.on_its_way == was_on_its_way &&
          (dut.left.valid && dut.left.key == {pick, 61'd0}) == was_left && (dut.right.valid && dut.right.key == {pick, 61'd0}) == was_right);
        if (dut.driven) assert (dut.moving.valid && !change_remove && !dut.stash[0].valid && !refused);
        else if (at_work && dut.state != Done) assert (dut.moving.valid && dut.moving.key == {change, 61'd0} && dut.moving.index == change_index && !refused);
        if (dut.state == Done) assert (!dut.driven);
        if (dut.state == Look) assert (dut.left == dut.lefts[dut.left_at] && dut.right == dut.rights[dut.right_at] && dut.wanted == dut.moving.key);
        if (dut.state == Place) begin
          assert (dut.left_free == !left_used && dut.right_free == !right_used);
          assert (dut.was_left == left_is && dut.was_right == right_is);
          assert (dut.was_stashed == (dut.stash[0].valid && dut.stash[0].key == dut.moving.key));
          assert (dut.victim == ((dut.driven ? dut.to_right : left_used && !right_used) ? dut.rights[dut.right_at] : dut.lefts[dut.left_at]));
        end
      end
    end
  end

endmodule
