// Function table: maps a name to the function's number and its entry.
//
// Names are zero-padded to NAME_BYTES. A name's hash is the CRC-8 of its padded bytes (polynomial
// 0xD5, reflected); a name may be in any of PROBES slots from the hash's lower bits on, and a slot
// matches only if the whole name is equal. A function's number is its slot, and stays so until it
// is removed. One operation runs at a time; a lookup has priority over a waiting change. A
// function's entry, and the name in a slot, can be read at any time. After a reset slots are
// cleared one per cycle, and operations wait.
//
// Parameters: ENTRIES, slots, a power of two; NAME_BYTES, longest name, a multiple of 8; PROBES,
// slots that a name may occupy; ENTRY_BITS, data stored with a name.
// Latency: a lookup takes NAME_BYTES / 4 + 4 cycles if its first slot matches, 2 more for each free
// slot before it, and NAME_BYTES / 8 + 4 for each slot with another name. Throughput:
// one operation at a time.
module fn_table #(
    parameter int ENTRIES = 64,
    parameter int NAME_BYTES = 32,
    parameter int PROBES = 4,
    parameter int ENTRY_BITS = 128
) (
    input  logic                       clk,
    input  logic                       rst,
    // Lookup, and its one-cycle reply.
    input  logic                       find_valid,
    output logic                       find_ready,
    input  logic [8*NAME_BYTES-1:0]    find_name,
    output logic                       found_valid,
    output logic                       found,          // otherwise the function does not exist
    output logic [$clog2(ENTRIES)-1:0] found_function,
    output logic [ENTRY_BITS-1:0]      found_entry,
    // Change, and its one-cycle reply. Adding an existing name replaces its entry.
    // The entry is held until the reply.
    input  logic                       change_valid,
    output logic                       change_ready,
    input  logic                       change_remove,  // otherwise add
    input  logic [8*NAME_BYTES-1:0]    change_name,
    input  logic [ENTRY_BITS-1:0]      change_entry,
    output logic                       changed_valid,
    output logic                       changed,        // otherwise: no space; name not found
    output logic [$clog2(ENTRIES)-1:0] changed_function,
    // The entry of a function, a cycle later, or NAME_BYTES / 8 more while a change is written.
    input  logic [$clog2(ENTRIES)-1:0] entry_of,
    output logic [ENTRY_BITS-1:0]      entry_there,
    // The content of a slot, a cycle later: eight bytes of its name.
    input  logic [$clog2(ENTRIES)-1:0] slot_of,
    input  logic [$clog2(NAME_BYTES/8)-1:0] slot_word,
    output logic                       slot_used,
    output logic [63:0]                slot_name
);

  logic own_clk;  // gated while no state changes

  localparam int Words = NAME_BYTES / 8;
  localparam int SlotBits = $clog2(ENTRIES);
  localparam int WordBits = $clog2(Words + 3);
  localparam int ProbeBits = $clog2(PROBES + 1);
  localparam int NameBits = $clog2(ENTRIES * Words);

  if (ENTRIES != 1 << SlotBits || ENTRIES > 256) $error("ENTRIES must be a power of two, and at most 256");
  if (NAME_BYTES % 8 != 0 || NAME_BYTES < 16) $error("NAME_BYTES must be a multiple of 8, and at least 16");

  typedef enum logic [2:0] {
    Clear,
    Idle,
    Hash,     // eight bytes of the name per cycle
    Read,     // reads the first word of the slot's name
    Compare,  // compares the names, eight bytes per cycle
    Next,     // the slot does not match
    Write,
    Answer
  } state_t;

  state_t                  state;
  logic                    finding, removing, hit, room, same, last_word, compared;
  logic [7:0]              differs;          // bytes of a word that differ from the slot's
  logic [Words-1:0][63:0]  name;
  logic [$clog2(Words)-1:0] turn;            // number of the name's next word
  logic [63:0]             part;             // and that word
  logic [WordBits-1:0]     word;
  logic [ProbeBits-1:0]    probe;
  logic [SlotBits-1:0]     slot, free_slot;
  logic [7:0]              hash, hash_next;

  logic                    used[ENTRIES];
  logic                    taken;            // the slot is in use
  // Small, but wide: in distributed memory these would take more logic than the rest of the module.
  // A word read while it is written is not used; readers of entries are not affected.
  (* ram_style = "block", no_rw_check = 1 *) logic [63:0]           names[ENTRIES*Words];
  (* ram_style = "block", no_rw_check = 1 *) logic [ENTRY_BITS-1:0] entries[ENTRIES];
  logic [63:0]             read_name;
  logic [ENTRY_BITS-1:0]   read_entry;
  logic [NameBits-1:0]     name_at;

  assign find_ready   = state == Idle;
  assign change_ready = state == Idle && !find_valid;
  assign part         = name[turn];
  assign taken        = used[slot];
  assign compared     = word == WordBits'(Words + 2);
  assign last_word    = word == WordBits'(Words - 1);
  assign name_at      = NameBits'(32'(slot) * Words) + NameBits'(word);

  // The contribution of each bit of eight bytes to the hash, which is linear.
  function automatic logic [63:0][7:0] contributions();
    for (int bit_at = 0; bit_at < 64; bit_at++) begin
      logic [7:0] h;
      h = '0;
      for (int i = 0; i < 8; i++) begin
        if (i == bit_at / 8) h ^= 8'd1 << (bit_at % 8);
        for (int n = 0; n < 8; n++) h = (h >> 1) ^ (h[0] ? 8'hAB : 8'd0);
      end
      contributions[bit_at] = h;
    end
  endfunction

  localparam logic [63:0][7:0] Contributions = contributions();

  // The hash so far is added to the first byte.
  logic [63:0] hashed;
  assign hashed = part ^ 64'(hash);

  always_comb begin
    for (int i = 0; i < 8; i++) begin
      logic [63:0] counts;
      for (int n = 0; n < 64; n++) counts[n] = Contributions[n][i];
      hash_next[i] = ^(hashed & counts);
    end
  end

  always_ff @(posedge own_clk) begin
    if (state == Write) begin
      names[name_at] <= part;
      entries[slot]  <= change_entry;
    end
    read_name  <= names[name_at];
    read_entry <= entries[slot];
    if (state == Clear) used[slot] <= 1'b0;
    else if (state == Answer && hit && !finding) used[slot] <= !removing;
  end

  // These are readable at any time.
  always_ff @(posedge clk) begin
    if (state != Write) entry_there <= entries[entry_of];
    slot_name   <= names[NameBits'(32'(slot_of) * Words) + NameBits'(slot_word)];
    slot_used   <= used[slot_of];
  end

  always_ff @(posedge own_clk) begin
    if (rst) begin
      state <= Clear;
    end else begin
      unique case (state)
        Clear: if (slot == SlotBits'(ENTRIES - 1)) state <= Idle;
        Idle:  if (find_valid || change_valid) state <= Hash;
        Hash:  if (last_word) state <= Read;
        Read:  state <= taken ? Compare : Next;
        Compare: if (compared) begin
          if (!same) state <= Next;
          else state <= finding || removing ? Answer : Write;
        end
        Next: begin
          if (probe != ProbeBits'(PROBES - 1)) state <= Read;
          else state <= finding || removing || !room ? Answer : Write;
        end
        Write: if (last_word) state <= Answer;
        default: state <= Idle;
      endcase
    end
  end

  always_ff @(posedge own_clk) begin
    if (rst) slot <= '0;
    else unique case (state)
      Clear: slot <= slot + 1'b1;
      Idle: begin
        finding  <= find_valid;
        removing <= change_remove;
        name     <= find_valid ? find_name : change_name;
        hash     <= '1;
        word     <= '0;
        turn     <= '0;
        probe    <= '0;
        hit      <= 1'b0;
        room     <= 1'b0;
      end
      Hash: begin
        hash <= hash_next;
        slot <= hash_next[SlotBits-1:0];
        turn <= last_word ? '0 : turn + 1'b1;
        word <= last_word ? '0 : word + 1'b1;
      end
      Read: begin
        same <= 1'b1;
        differs <= '0;
        word <= WordBits'(taken);
        if (!taken && !room) begin
          room      <= 1'b1;
          free_slot <= slot;
        end
      end
      // A word is compared in the cycle after its address, byte by byte,
      // and the results are combined after that.
      Compare: begin
        word <= compared ? '0 : word + 1'b1;
        turn <= word >= WordBits'(Words) ? '0 : turn + 1'b1;
        for (int i = 0; i < 8; i++) differs[i] <= read_name[8*i+:8] != part[8*i+:8];
        if (!compared) same <= same && differs == '0;
        else hit <= same;
      end
      Next: begin
        probe <= probe + 1'b1;
        slot  <= slot + 1'b1;
        if (probe == ProbeBits'(PROBES - 1) && !finding && !removing && room) begin
          slot <= free_slot;
          hit  <= 1'b1;
        end
      end
      Write: begin
        turn <= turn + 1'b1;
        word <= word + 1'b1;
      end
      default: ;
    endcase
  end

  assign found_valid      = state == Answer && finding;
  assign found            = hit;
  assign found_function   = slot;
  assign found_entry      = read_entry;
  assign changed_valid    = state == Answer && !finding;
  assign changed          = hit;
  assign changed_function = slot;

  clock_gate u_gate (
      .clk,
      .wake (rst || find_valid || change_valid || state != Idle),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  probes_are_bounded : assert property (@(posedge clk) disable iff (rst)
      state inside {Read, Compare, Next} |-> probe < ProbeBits'(PROBES));
  words_are_bounded : assert property (@(posedge clk) disable iff (rst)
      word <= WordBits'(Words + 2));
  entry_stays : assert property (@(posedge clk) disable iff (rst)
      state inside {Hash, Read, Compare, Next, Write} && !finding |=> $stable(change_entry));
  replies_last_a_cycle : assert property (@(posedge clk) disable iff (rst)
      found_valid || changed_valid |=> state == Idle);
  // A name is written to a free slot, or to its own.
  writes_have_a_slot : assert property (@(posedge clk) disable iff (rst)
      state == Write |-> hit && (same || !taken));
`endif

endmodule
