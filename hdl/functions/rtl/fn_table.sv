// Function table: from a name to the function's number and its entry.
//
// Names are zero-padded to NAME_BYTES. A name's hash is the CRC-8 of its padded bytes (polynomial 0xD5, reflected); a
// name may stand in any of PROBES slots from the hash's lower bits on, and a slot answers only if the whole name is the
// same. A function's number is its slot, and stays so until it is removed. One operation runs at a time;
// a lookup goes before a change that waits. A function's entry, and what stands in a slot, can be read at any time. After a reset
// slots are cleared one a cycle, and operations wait.
//
// Parameters: ENTRIES, slots, a power of two; NAME_BYTES, longest name, a multiple of 8; PROBES, slots that a
// name may take; ENTRY_BITS, what is stored with a name.
// Latency: a lookup takes NAME_BYTES / 4 + 4 cycles if its first slot is its own, 2 more for each free slot before it, and
// NAME_BYTES / 8 + 4 for each that another has. Throughput: one operation at a time.
module fn_table #(
    parameter int ENTRIES = 64,
    parameter int NAME_BYTES = 32,
    parameter int PROBES = 4,
    parameter int ENTRY_BITS = 128
) (
    input  logic                       clk,
    input  logic                       rst,
    // Lookup, and its one-cycle answer.
    input  logic                       find_valid,
    output logic                       find_ready,
    input  logic [8*NAME_BYTES-1:0]    find_name,
    output logic                       found_valid,
    output logic                       found,          // or there is no such function
    output logic [$clog2(ENTRIES)-1:0] found_function,
    output logic [ENTRY_BITS-1:0]      found_entry,
    // Change, and its one-cycle answer. To add a name that is there replaces its entry. The entry stays until the answer.
    input  logic                       change_valid,
    output logic                       change_ready,
    input  logic                       change_remove,  // else add
    input  logic [8*NAME_BYTES-1:0]    change_name,
    input  logic [ENTRY_BITS-1:0]      change_entry,
    output logic                       changed_valid,
    output logic                       changed,        // or: no room; nothing to remove
    output logic [$clog2(ENTRIES)-1:0] changed_function,
    // The entry of a function, a cycle later, or NAME_BYTES / 8 more while a change is written.
    input  logic [$clog2(ENTRIES)-1:0] entry_of,
    output logic [ENTRY_BITS-1:0]      entry_there,
    // What stands in a slot, a cycle later: eight bytes of its name.
    input  logic [$clog2(ENTRIES)-1:0] slot_of,
    input  logic [$clog2(NAME_BYTES/8)-1:0] slot_word,
    output logic                       slot_used,
    output logic [63:0]                slot_name
);

  logic own_clk;  // stands still while nothing would change

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
    Hash,     // eight bytes of the name a cycle
    Read,     // the first word of the slot's name comes out of memory
    Compare,  // the names, eight bytes a cycle
    Next,     // the slot was not it
    Write,
    Answer
  } state_t;

  state_t                  state;
  logic                    finding, removing, hit, room, same, last_word, compared;
  logic [7:0]              differs;          // bytes of a word from the slot's
  logic [Words-1:0][63:0]  name;
  logic [$clog2(Words)-1:0] turn;            // the name's word that is wanted next
  logic [63:0]             part;             // and that word
  logic [WordBits-1:0]     word;
  logic [ProbeBits-1:0]    probe;
  logic [SlotBits-1:0]     slot, free_slot;
  logic [7:0]              hash, hash_next;

  logic                    used[ENTRIES];
  logic                    taken;            // the slot is
  // Small, but wide: in distributed memory they would take more logic than all the rest. What is read while it is
  // written is not looked at; who reads entries at any time sees none of it.
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

  // What each bit of eight bytes adds to the hash: it is linear.
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

  // The hash so far counts as if added to the first byte.
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

  // These are looked at at any time.
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
      // A word is compared in the cycle after its address, byte by byte, and the bytes are put together after that.
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

endmodule
