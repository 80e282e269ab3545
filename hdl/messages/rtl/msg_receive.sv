// Receive engine: packets → a kernel's messages.
//
// An envelope without a matching receive is recorded, one for each rank: a rank sends one message
// at a time. Eager packets wait in SLOTS slots, in order; a further one is refused (FULL), but a
// packet of a stream waits, and blocks later ones. `done` is a pulse when a message has been
// received, with its outcome; a fault's payload may be incomplete. A receive with `once` ends if
// there is no message for it. From any source: the lowest rank with an envelope has priority.
//
// Parameters: SLOTS, eager packets that may wait. Latency: 1 cycle from an envelope to its reply, 3
// from an eager packet to `done`. Throughput: one beat per cycle, plus the packets' envelopes.
module msg_receive
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int SLOTS = 4
) (
    input  logic          clk,
    input  logic          rst,
    input  logic [7:0]    own,
    input  logic          s_valid,
    output logic          s_ready,
    input  receive_t      s_command,
    output logic          d_valid,  // payload
    input  logic          d_ready,
    output logic [63:0]   d_data,
    output logic          done,
    output outcome_t      outcome,
    input  logic          p_valid,  // packets
    output logic          p_ready,
    input  beat_t         p_beat,
    output logic          c_valid,  // control packets, of one beat
    input  logic          c_ready,
    output hum_envelope_t c_head
);

  localparam int SlotBits = $clog2(SLOTS);

  if (SLOTS != 1 << SlotBits || SLOTS < 2) $error("SLOTS must be a power of two");

  typedef enum logic [2:0] { Idle, Search, Compare, Wait, Data, Eager, Next, Drain } phase_t;
  typedef enum logic [2:0] { Head, Note, Store, Pass, Drop } inlet_t;

  typedef struct packed {
    logic        there;
    logic        collective;
    tag_t        tag;
    logic [3:0]  dtype;
    logic [23:0] size;
  } noted_t;

  typedef struct packed {
    logic [7:0]  source;
    logic        collective;
    tag_t        tag;
    logic [3:0]  dtype;
    logic [10:0] size;
    logic        more;
  } slot_t;

  phase_t              phase;
  inlet_t              inlet;
  receive_t            want;
  hum_envelope_t       head, late;    // of the incoming packet; of one that is being recorded
  logic                taken;         // a packet's envelope is accepted
  logic                free;          // the register of control packets is free
  logic [23:0]         got;           // bytes of the message so far

  function automatic logic tags(input receive_t wanted, input logic collective, input tag_t tag);
    return collective == wanted.collective && (wanted.any_tag || tag == wanted.tag);
  endfunction

  function automatic logic types(input logic [3:0] a, input logic [3:0] b);
    return a == b || a == CodeUntyped || b == CodeUntyped;
  endfunction

  assign head  = hum_envelope_t'(p_beat.data);
  assign free  = !c_valid || c_ready;
  assign taken = inlet == Head && p_valid && p_ready;

  // ---- recorded envelopes: by rank, all cleared by reset ----

  noted_t     noted[256];
  noted_t     found;
  logic [7:0] scan;
  logic       clearing, note, forget, fitting;

  assign note   = inlet == Note && free && !found.there;
  assign forget = phase == Compare && fitting && free;

  always_ff @(posedge clk) begin
    found <= noted[taken ? head.src : scan];
    if (clearing || note || forget)
      noted[note ? late.src : scan] <= note ? '{1'b1, late.flag[2], tag_of(late), late.dtype, late.size} : '0;
  end

  // ---- an envelope for this receive: an incoming or a recorded one ----

  logic        offer;
  logic [7:0]  offer_source;
  tag_t        offer_tag;
  logic [3:0]  offer_dtype;
  logic [23:0] offer_size;

  assign fitting = found.there && tags(want, found.collective, found.tag);
  assign offer = phase == Compare ? forget
                                  : phase == Wait && taken && head.kind == PacketEnvelope &&
                                    (want.any_source || want.source == head.src) && tags(want, head.flag[2], tag_of(head));
  assign offer_source = phase == Compare ? scan : head.src;
  assign offer_tag    = phase == Compare ? found.tag : tag_of(head);
  assign offer_dtype  = phase == Compare ? found.dtype : head.dtype;
  assign offer_size   = phase == Compare ? found.size : head.size;

  // ---- waiting eager packets: a ring, in order, with gaps where one was received out of turn ----

  slot_t               slots[SLOTS];
  logic [SLOTS-1:0]    used;
  logic [SlotBits-1:0] oldest, newest, hit_at, read_place;
  logic                hit, room, store;
  logic [63:0]         payload[SLOTS*256];
  logic [63:0]         q;
  logic [7:0]          store_at, read_at, read_beats;
  logic                read_more, fits, get, q_valid, start;

  always_comb begin
    hit = 1'b0;
    hit_at = '0;
    for (int i = SLOTS - 1; i >= 0; i--) begin
      automatic logic [SlotBits-1:0] at = oldest + SlotBits'(i);
      if (used[at] && (phase == Next ? slots[at].source == outcome.source :
                       (want.any_source || slots[at].source == want.source) &&
                       tags(want, slots[at].collective, slots[at].tag))) begin
        hit    = 1'b1;
        hit_at = at;
      end
    end
  end

  // A slot is free again when its payload has been read;
  // the end of the ring must not pass its beginning.
  assign room  = !used[newest] && !(oldest == newest && used != '0) && !(phase == Eager && read_place == newest);
  assign store = taken && (head.kind == PacketEager || head.kind == PacketStream) && room && head.size <= PacketBytes;
  assign start = hit && !offer && (phase == Wait || phase == Next || phase == Search);
  assign get = phase == Eager && read_at != read_beats && (!q_valid || d_ready || !fits) &&
      (inlet != Store || read_place != newest - 1'b1 || read_at < store_at);

  always_ff @(posedge clk) begin
    if (inlet == Store && p_valid) payload[{newest - 1'b1, store_at}] <= p_beat.data;
    if (get) q <= payload[{read_place, read_at}];
  end

  // ---- the path of packets ----

  logic       pass;    // data of the message that was cleared
  logic       missed;  // packets of this rank
  logic [7:0] missed_from;

  assign pass    = phase == Data && head.src == outcome.source && got + head.size <= outcome.size;
  assign s_ready = phase == Idle && !clearing;
  assign d_valid = inlet == Pass ? p_valid : q_valid && fits;
  assign d_data  = inlet == Pass ? p_beat.data : q;

  always_comb begin
    case (inlet)
      Head: p_ready = !clearing && free && phase != Search && phase != Compare && (room || head.kind != PacketStream);
      Pass: p_ready = d_ready;
      Store, Drop: p_ready = 1'b1;
      default: p_ready = 1'b0;
    endcase
  end

  task automatic answer(input logic [7:0] to, input logic [3:0] kind, input logic [7:0] fault);
    c_valid     <= 1'b1;
    c_head      <= '0;
    c_head.dest <= to;
    c_head.src  <= own;
    c_head.kind <= kind;
    c_head.tag  <= fault;
  endtask

  task automatic finish(input logic [7:0] fault);
    phase         <= Idle;
    done          <= 1'b1;
    outcome.fault <= fault;
  endtask

  always_ff @(posedge clk) begin
    done <= 1'b0;
    if (c_ready) c_valid <= 1'b0;
    if (get) q_valid <= 1'b1;
    else if (d_ready || !fits) q_valid <= 1'b0;
    if (get) read_at <= read_at + 1'b1;
    if (!used[oldest] && used != '0) oldest <= oldest + 1'b1;

    // The kernel's commands.
    case (phase)
      Idle: begin
        want <= s_command;
        if (!clearing) scan <= s_command.any_source ? 8'd0 : s_command.source;
        got  <= '0;
        fits <= 1'b1;
        if (s_valid && s_ready) begin
          outcome <= '0;
          phase   <= Search;
        end
      end
      Search: if (inlet != Note) phase <= Compare;  // `found` is of `scan` then
      Compare:
      if (!fitting) begin
        scan  <= scan + 1'b1;
        phase <= want.any_source && scan != 8'd255 ? Search : Wait;
      end
      Eager: if (read_at == read_beats) phase <= read_more ? Next : Drain;
      Drain: if (!q_valid || d_ready || !fits) finish(outcome.fault);
      default: ;
    endcase
    if (start) begin
      phase          <= Eager;
      used[hit_at]   <= 1'b0;
      read_place     <= hit_at;
      read_at        <= '0;
      read_beats     <= beats(slots[hit_at].size);
      read_more      <= slots[hit_at].more;
      got            <= got + 24'(slots[hit_at].size);
      outcome.source <= slots[hit_at].source;
      outcome.tag    <= slots[hit_at].tag;
      outcome.size   <= got + 24'(slots[hit_at].size);
      // A beat that is still visible belongs to the payload that fitted.
      if (!types(slots[hit_at].dtype, want.dtype)) begin
        fits          <= 1'b0;
        outcome.fault <= FaultType;
      end else if (got + 24'(slots[hit_at].size) > want.room) begin
        fits          <= 1'b0;
        outcome.fault <= FaultTruncate;
      end else if (slots[hit_at].size == '0 && !slots[hit_at].more && phase != Next) finish(FaultNone);
    end

    // Incoming packets.
    case (inlet)
      Head:
      if (taken) begin
        late     <= head;
        store_at <= '0;
        case (head.kind)
          PacketEnvelope: if (!offer) inlet <= Note;
          PacketEager, PacketStream: begin
            if (!p_beat.last) inlet <= store ? Store : Drop;
            if (!store) answer(head.src, PacketError, FaultFull);
          end
          PacketData: begin
            if (!p_beat.last) inlet <= pass ? Pass : Drop;
            if (pass) begin
              got <= got + head.size;
              if (p_beat.last && !head.flag[1]) begin
                answer(head.src, PacketDone, FaultNone);
                finish(got + head.size == outcome.size ? FaultNone : FaultLost);
              end
            end
          end
          PacketError:
          if (head.tag == FaultLost) begin
            missed      <= 1'b1;
            missed_from <= head.src;
          end
          default: if (!p_beat.last) inlet <= Drop;
        endcase
      end
      Note:
      if (free) begin
        inlet <= Head;
        if (found.there) answer(late.src, PacketError, FaultFull);
      end
      Pass:
      if (p_valid && d_ready && p_beat.last) begin
        inlet <= Head;
        if (!late.flag[1]) begin
          answer(late.src, PacketDone, FaultNone);
          finish(got == outcome.size ? FaultNone : FaultLost);
        end
      end
      default: begin
        if (p_valid) store_at <= store_at + 1'b1;
        if (p_valid && p_beat.last) inlet <= Head;
      end
    endcase
    if (phase == Wait && want.once && !offer && !start) finish(FaultNothing);
    // A loss is reported to the receive that it concerns, now or later.
    if (missed && !offer && !start &&
        (phase == Wait ? want.any_source || want.source == missed_from
                       : (phase == Data || phase == Next) && inlet == Head && !taken && outcome.source == missed_from)) begin
      outcome.source <= missed_from;
      missed         <= 1'b0;
      finish(FaultLost);
    end
    if (store) begin
      used[newest]  <= 1'b1;
      slots[newest] <= '{head.src, head.flag[2], tag_of(head), head.dtype, head.size[10:0], head.flag[1]};
      newest        <= newest + 1'b1;
    end

    if (offer) begin
      outcome.source <= offer_source;
      outcome.tag    <= offer_tag;
      outcome.size   <= offer_size;
      if (!types(offer_dtype, want.dtype)) begin
        answer(offer_source, PacketError, FaultType);
        finish(FaultType);
      end else if (offer_size > want.room) begin
        answer(offer_source, PacketError, FaultTruncate);
        finish(FaultTruncate);
      end else begin
        answer(offer_source, PacketClear, FaultNone);
        phase <= Data;
      end
    end

    if (clearing) begin
      scan     <= scan + 1'b1;
      clearing <= scan != 8'd255;
    end
    if (rst) begin
      phase    <= Idle;
      inlet    <= Head;
      clearing <= 1'b1;
      scan     <= '0;
      done     <= 1'b0;
      c_valid  <= 1'b0;
      q_valid  <= 1'b0;
      missed   <= 1'b0;
      used     <= '0;
      oldest   <= '0;
      newest   <= '0;
    end
  end

  logic unused_head;
  assign unused_head = &{1'b0, head.dest, late.dest, late.kind, late.flag[3], late.flag[0]};

`ifndef SYNTHESIS
  replies_stay : assert property (@(posedge clk) disable iff (rst)
      c_valid && !c_ready |=> c_valid && $stable(c_head));
  payload_stays : assert property (@(posedge clk) disable iff (rst)
      d_valid && !d_ready |=> d_valid && $stable(d_data));
  done_for_a_cycle : assert property (@(posedge clk) disable iff (rst) done |=> !done);
  receives_wait_for_their_end : assert property (@(posedge clk) disable iff (rst)
      s_ready |-> phase == Idle);
  stored_packets_fit : assert property (@(posedge clk) disable iff (rst) store |-> !used[newest]);
  message_is_bounded : assert property (@(posedge clk) disable iff (rst)
      phase == Data |-> outcome.size <= want.room);
`endif

endmodule
