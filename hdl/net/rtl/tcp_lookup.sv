// Finds the session of a segment: a cuckoo hash table of the sessions' addresses and ports. Every
// key has two places, one in each table, by two keyed hashes; keys that find neither free are in a
// stash, which is searched in parallel. A new key takes its first free place, or displaces another
// key to that key's other place, and so on; a key without a place after MOVES moves goes to the
// stash. A key in transit is found, too.
// No key is lost: while the stash is full no key is displaced, and a key that needs it is refused.
//
// The hashes are linear, and the secret selects them: without the secret, nobody can choose colliding
// ports. With any secret, the lowest bits of the ports alone select different places in each table:
// a host with consecutive ports would exceed tables and stash if a secret mapped them to a few places.
//
// Parameters: SESSIONS; PLACES in each table, a power of two; KEY_BITS, the upper bits of a key,
// which distinguish keys; the others are ignored; STASH; MOVES.
// Latency: `found` one cycle after `query`, `hit` two, until two after the next; a change 3 cycles,
// plus 3 per move. No key is found in the first PLACES cycles after a reset,
// while the tables are emptied.
module tcp_lookup #(
    parameter  int SESSIONS = 16,
    parameter  int PLACES = SESSIONS > 64 ? 2 * SESSIONS : SESSIONS,
    parameter  int KEY_BITS = 64,
    parameter  int STASH = 4,
    parameter  int MOVES = 24,
    localparam int S = $clog2(SESSIONS),
    localparam int P = $clog2(PLACES)
) (
`include "tcp_lookup_ports.svh"
);

  logic own_clk;  // gated while no state changes

  if (PLACES != 1 << P) $error("PLACES must be a power of two");

  typedef struct packed {
    logic         valid;
    logic [S-1:0] index;
    logic [KEY_BITS-1:0] key;
  } cell_t;

  typedef enum logic [2:0] {
    CLEAR,
    IDLE,
    READ,    // reads the two places of the moving key
    LOOK,
    PLACE,
    DONE
  } state_t;

  state_t state;
  cell_t moving, left, right, victim;  // the moving key; the content of its two places
  cell_t lefts[PLACES], rights[PLACES], stash[STASH];
  logic driven;                        // the moving key was displaced
  logic to_right;                      // its destination, if displaced
  logic [$clog2(MOVES+1)-1:0] moves;
  logic [P-1:0] left_hash, right_hash, left_at, right_at, clear_at;

  // ---- hashes: each bit is the parity of the key bits selected by the rotated secret, where the
  // lowest bits of the ports count for one bit of a hash each ----
  logic [KEY_BITS-1:0] hashed;

  localparam logic [63:0] Lowest = {32'd0, 16'd1, 16'd1};

  function automatic logic chosen(input logic [63:0] key, input logic [63:0] mask, input int turn, input int at);
    logic [63:0] turned;
    turned = (mask << turn) | (mask >> (64 - turn));
    return ^(key & ((turned & ~(Lowest * 64'(PLACES - 1))) | (Lowest << at)));
  endfunction

  function automatic logic left_bit(input logic [63:0] key, input logic [63:0] mask, input int i);
    return chosen(key, mask, 2 * i + 1, i);
  endfunction

  function automatic logic right_bit(input logic [63:0] key, input logic [63:0] mask, input int i);
    return chosen(key, mask, 2 * i + 33, P - 1 - i);
  endfunction

  logic [63:0] mask;
  assign mask = secret ^ 64'h9e37_79b9_7f4a_7c15;  // so that a small number can serve as a secret
  assign hashed = query ? query_key[63-:KEY_BITS] : moving.key;

  always_comb begin
    for (int i = 0; i < P; i++) begin
      left_hash[i]  = left_bit(64'(hashed) << (64 - KEY_BITS), mask, i);
      right_hash[i] = right_bit(64'(hashed) << (64 - KEY_BITS), mask, i);
    end
  end

  // ---- comparison, a cycle after the hash ----
  logic [KEY_BITS-1:0] wanted;
  logic on_its_way, of_query, is_left, is_right;
  logic [STASH-1:0] is_stashed;
  logic [S-1:0] way_index;

  always_comb begin
    is_left  = left.valid && left.key == wanted;
    is_right = right.valid && right.key == wanted;
    for (int i = 0; i < STASH; i++) is_stashed[i] = stash[i].valid && stash[i].key == wanted;
    found = is_left || is_right || is_stashed != '0 || on_its_way;
    found_index = ({S{is_left}} & left.index) | ({S{is_right}} & right.index) | ({S{on_its_way}} & way_index);
    for (int i = 0; i < STASH; i++) found_index |= {S{is_stashed[i]}} & stash[i].index;
  end

  assign found_valid = of_query;

  always_ff @(posedge own_clk) begin
    of_query <= query && !rst;
    wanted <= hashed;
    // The key was removed from one place and is not yet in the next.
    on_its_way <= query && driven && moving.valid && moving.key == query_key[63-:KEY_BITS];
    way_index <= moving.index;
    if (of_query) begin
      hit   <= found;
      index <= found_index;
    end
    left  <= lefts[left_hash];
    right <= rights[right_hash];
    if (state == CLEAR) {left.valid, right.valid} <= '0;
    if (state == READ && !query) begin
      left_at  <= left_hash;
      right_at <= right_hash;
    end
  end

  // ---- changes ----
  logic was_left, was_right, left_free, right_free, stash_free;
  logic [STASH-1:0] was_stashed, stash_take;
  logic write_left, write_right;

  always_comb begin
    stash_free = 1'b0;
    stash_take = '0;
    for (int i = 0; i < STASH; i++)
    if (!stash[i].valid && !stash_free) begin
      stash_free = 1'b1;
      stash_take[i] = 1'b1;
    end
  end

  logic there, may_left, may_right, drives;
  assign there = was_left || was_right || was_stashed != '0;
  // A displaced key goes only to its other place.
  assign may_left = driven ? !to_right : left_free || !right_free;
  assign may_right = driven ? to_right : !left_free && right_free;
  assign drives = may_left ? !left_free : !right_free;

  always_comb begin
    write_left  = state == CLEAR;
    write_right = state == CLEAR;
    if (state == PLACE) begin
      if (change_remove) begin
        write_left  = was_left;
        write_right = was_right;
      end else if (driven ? !(drives && moves == '0) : !there && !(drives && !stash_free)) begin
        write_left  = may_left;
        write_right = may_right;
      end
    end
  end

  always_ff @(posedge own_clk) begin
    if (write_left) lefts[state == CLEAR ? clear_at : left_at] <= change_remove || state == CLEAR ? '0 : moving;
    if (write_right) rights[state == CLEAR ? clear_at : right_at] <= change_remove || state == CLEAR ? '0 : moving;
  end

  assign changed = state == DONE;

  always_ff @(posedge own_clk) begin
    case (state)
      CLEAR: begin
        clear_at <= clear_at + 1'b1;
        if (clear_at == '1) state <= IDLE;
      end
      IDLE: begin
        moving <= '{valid: 1'b1, index: change_index, key: change_key[63-:KEY_BITS]};
        driven <= 1'b0;
        moves <= ($clog2(MOVES + 1))'(MOVES);
        refused <= 1'b0;
        if (change_valid) state <= READ;
      end
      READ: if (!query) state <= LOOK;
      LOOK: begin
        was_left <= is_left;
        was_right <= is_right;
        was_stashed <= is_stashed;
        left_free <= !left.valid;
        right_free <= !right.valid;
        victim <= (driven ? to_right : left.valid && !right.valid) ? right : left;
        state <= PLACE;
      end
      PLACE: begin
        state <= DONE;
        if (change_remove) begin
          for (int i = 0; i < STASH; i++) if (was_stashed[i]) stash[i].valid <= 1'b0;
        end else if (!driven && (there || (drives && !stash_free))) refused <= 1'b1;
        else if (drives && moves == '0) begin
          for (int i = 0; i < STASH; i++) if (stash_take[i]) stash[i] <= moving;
        end else if (drives) begin
          moving <= victim;
          driven <= 1'b1;
          to_right <= may_left;
          moves <= moves - 1'b1;
          state <= READ;
        end
        if (!drives || moves == '0) driven <= 1'b0;
      end
      default: state <= IDLE;  // DONE
    endcase
    if (rst) begin
      state <= CLEAR;
      clear_at <= '0;
      driven <= 1'b0;
      for (int i = 0; i < STASH; i++) stash[i].valid <= 1'b0;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || query || of_query || change_valid || state != IDLE),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  // The results of all places are combined by OR.
  keys_have_one_place : assert property (@(posedge clk) disable iff (rst)
      of_query |-> $onehot0({is_left, is_right, is_stashed, on_its_way}));
  changes_stay : assert property (@(posedge clk) disable iff (rst)
      change_valid && !changed |=>
      change_valid && $stable({change_remove, change_key, change_index}));
  removals_succeed : assert property (@(posedge clk) disable iff (rst)
      changed && refused |-> !change_remove);
  moves_are_bounded : assert property (@(posedge clk) disable iff (rst)
      state == READ |-> moves <= ($clog2(MOVES + 1))'(MOVES));
  // A displaced key is never lost.
  displaced_keys_have_a_place : assert property (@(posedge clk) disable iff (rst)
      state == PLACE && driven && drives && moves == '0 |-> stash_free);
`endif

endmodule
