// A kernel without engines: its AXI streams ↔ its port of the router.
//
// Out: a packet of AXI4-Stream is sent to rank TDEST as STREAM packets of at most PacketBytes. Each
// is sent when it is complete, because its envelope contains its size; all except the last have
// FlagMore. TUSER is the tag. All beats except the last are full. In: payload is passed on
// unchanged, with the sender in TID, its tag in TUSER, and TLAST at the end of a message; pieces of
// several senders may alternate. An empty message is a beat without bytes. Senders with engines get
// their replies from here, so every kind of send reaches such a kernel;
// it takes no part in collectives.
//
// Only the back-pressure of the streams blocks a sender. `fault`: a packet is missing, a receiver
// refused one, or TDEST is not another rank; the envelope's number of the fault, until reset.
//
// Latency: out 2 cycles from a packet's last beat, in 2. Throughput: one beat per cycle,
// plus the packets' envelopes.
module msg_axis
  import hum_envelope_pkg::*;
  import msg_pkg::*;
(
    // The router.
`include "msg_packet_ports.svh"
`include "msg_axis_ports.svh"
    output tag_t        in_tuser
);

  localparam logic [7:0] PacketBeats = beats(PacketBytes[10:0]);

  // ---- out: beats of an incomplete packet, and the data for its envelope ----

  typedef struct packed {
    logic [7:0]  dest;
    tag_t        tag;
    logic        more;
    logic [10:0] size;
  } piece_t;

  logic [7:0] count;         // beats of the piece so far
  logic [7:0] dest;
  tag_t       tag;
  logic       going;         // sending a packet of the kernel
  logic       beat_room, piece_room, put, full, lost;
  piece_t     piece, first;
  logic       first_valid, first_ready, beat_valid, beat_ready;
  logic [63:0] beat;

  function automatic logic [3:0] bytes(input logic [7:0] keep);
    logic [3:0] sum;
    sum = '0;
    for (int i = 0; i < 8; i++) sum += 4'(keep[i]);
    return sum;
  endfunction

  assign out_tready = beat_room && piece_room;
  assign put  = out_tvalid && out_tready;
  assign full = count == PacketBeats - 1'b1;
  assign lost = put && !going && ({1'b0, out_tdest} >= ranks || out_tdest == own);
  assign piece = '{
    dest: going ? dest : out_tdest,
    tag:  going ? tag : out_tuser,
    more: !out_tlast,
    size: {count, 3'b0} + (out_tlast ? 11'(bytes(out_tkeep)) : 11'd8)
  };

  always_ff @(posedge clk) begin
    if (put) begin
      count  <= out_tlast || full ? '0 : count + 1'b1;
      going <= !out_tlast;
      if (!going) begin
        dest <= out_tdest;
        tag  <= out_tuser;
      end
    end
    if (rst) begin
      count  <= '0;
      going <= 1'b0;
    end
  end

  // A last beat without bytes belongs to no piece, unless it is the only one: then it is an empty
  // message, which is only an envelope.
  fifo #(
      .T    (logic [63:0]),
      .DEPTH(512),
      .BLOCK(1)
  ) u_beats (
      .clk,
      .rst,
      .s_valid  (put && !(out_tlast && out_tkeep == '0)),
      .s_ready  (beat_room),
      .s_payload(out_tdata),
      .m_valid  (beat_valid),
      .m_ready  (beat_ready),
      .m_payload(beat)
  );

  fifo #(
      .T    (piece_t),
      .DEPTH(8)
  ) u_pieces (
      .clk,
      .rst,
      .s_valid  (put && (out_tlast || full)),
      .s_ready  (piece_room),
      .s_payload(piece),
      .m_valid  (first_valid),
      .m_ready  (first_ready),
      .m_payload(first)
  );

  // ---- to the router: replies have priority over the next piece ----

  logic          c_valid, c_ready;
  hum_envelope_t c_head, head;
  logic [7:0]    left;      // remaining beats of the piece being sent
  logic          step, to_valid, to_room;
  beat_t         to;

  always_comb begin
    head      = '0;
    head.dest = first.dest;
    head.src  = own;
    head.kind = PacketStream;
    head.size = 24'(first.size);
    {head.tag_high, head.tag} = first.tag;
    head.flag = first.more ? FlagMore : '0;
  end

  assign c_ready     = to_room && left == '0;
  assign first_ready = to_room && left == '0 && !c_valid;
  assign beat_ready  = to_room && left != '0;
  assign to_valid    = left != '0 ? beat_valid : c_valid || first_valid;
  assign step        = to_room && to_valid;
  assign to.data     = left != '0 ? beat : c_valid ? c_head : head;
  assign to.last     = left != '0 ? left == 8'd1 : c_valid || first.size == '0;
  assign idle        = !m_valid && !first_valid && left == '0 && !c_valid && !out_tvalid;

  always_ff @(posedge clk) begin
    if (step) left <= left != '0 ? left - 1'b1 : c_valid ? '0 : beats(first.size);
    if (rst) left <= '0;
  end

  fifo #(
      .T    (beat_t),
      .DEPTH(4)
  ) u_out (
      .clk,
      .rst,
      .s_valid  (step),
      .s_ready  (to_room),
      .s_payload(to),
      .m_valid,
      .m_ready,
      .m_payload(m_beat)
  );

  // ---- in ----

  logic          in_valid, in_ready, midway, taken, payload, requested;
  beat_t         in;
  hum_envelope_t in_head, of;   // of the incoming packet; of the packet of the present beats
  logic [10:0]   in_left;       // its bytes that have not arrived
  logic          free, in_more;

  fifo #(
      .T(beat_t),
      .DEPTH(4)
  ) u_in (
      .s_valid  (s_valid && s_ready),
      .s_payload(s_beat),
      .m_valid  (in_valid),
      .m_ready  (in_ready),
      .m_payload(in),
      .*
  );

  assign in_head = hum_envelope_t'(in.data);
  assign free    = !in_tvalid || in_tready;
  assign payload = has_payload(in_head.kind) && in_head.size <= PacketBytes && (in_head.flag & FlagCollective) == '0;
  // Heads of packets that need a reply wait for its register.
  assign in_ready = midway ? free : free && (!c_valid || c_ready);
  assign taken    = in_valid && in_ready && !midway;
  assign in_more  = in_left > 11'd8;
  assign requested    = taken && in_head.kind == PacketEnvelope;

  task automatic answer(input logic [7:0] to_rank, input logic [3:0] kind, input logic [7:0] fault_of);
    c_valid     <= 1'b1;
    c_head      <= '0;
    c_head.dest <= to_rank;
    c_head.src  <= own;
    c_head.kind <= kind;
    c_head.tag  <= fault_of;
  endtask

  // A message's tag is in its envelope, not in its pieces. A rank sends one message at a time.
  tag_t       tags[256];
  tag_t       in_tag, of_tag;
  logic       drop;  // the incoming packet is dropped

  assign in_tag = in_head.kind == PacketData ? tags[in_head.src] : tag_of(in_head);

  always_ff @(posedge clk) if (requested) tags[in_head.src] <= tag_of(in_head);

  always_ff @(posedge clk) begin
    if (c_ready) c_valid <= 1'b0;
    if (in_tready) in_tvalid <= 1'b0;
    if (lost) fault <= FaultRank;
    if (taken) begin
      of      <= in_head;
      in_left <= in_head.size[10:0];
      midway  <= !in.last;
      drop    <= !payload;
      of_tag  <= in_tag;
      if (payload && in.last) begin
        in_tvalid <= 1'b1;
        in_tkeep  <= '0;
        in_tlast  <= (in_head.flag & FlagMore) == '0;
        in_tid    <= in_head.src;
        in_tuser  <= in_tag;
        if (in_head.kind == PacketData && (in_head.flag & FlagMore) == '0) answer(in_head.src, PacketDone, FaultNone);
      end
      if (has_payload(in_head.kind) && !payload) answer(in_head.src, PacketError, FaultRank);
      if (in_head.kind == PacketError) fault <= in_head.tag;
    end
    if (requested) answer(in_head.src, (in_head.flag & FlagCollective) == '0 ? PacketClear : PacketError,
                      (in_head.flag & FlagCollective) == '0 ? FaultNone : FaultRank);
    if (midway && in_valid && in_ready) begin
      midway    <= !in.last;
      in_left   <= in_left - 11'd8;
      in_tvalid <= !drop;
      in_tdata  <= in.data;
      in_tkeep  <= in_more ? '1 : 8'((9'd1 << in_left[3:0]) - 1'b1);
      in_tlast  <= !in_more && (of.flag & FlagMore) == '0;
      in_tid    <= of.src;
      in_tuser  <= of_tag;
      if (in.last && !drop && of.kind == PacketData && (of.flag & FlagMore) == '0) answer(of.src, PacketDone, FaultNone);
    end
    if (rst) begin
      midway    <= 1'b0;
      c_valid   <= 1'b0;
      in_tvalid <= 1'b0;
      fault     <= FaultNone;
    end
  end

  logic unused_head;
  assign unused_head = &{1'b0, of.dest, of.size, of.dtype, of.tag, of.tag_high, in_head.dest, in_head.dtype};

`ifndef SYNTHESIS
  pieces_are_bounded : assert property (@(posedge clk) disable iff (rst) count < PacketBeats);
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      out_tvalid && !out_tlast |-> out_tkeep == '1);
  output_stays : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_beat));
  input_stays : assert property (@(posedge clk) disable iff (rst)
      in_tvalid && !in_tready |=>
      in_tvalid && $stable({in_tdata, in_tkeep, in_tlast, in_tid, in_tuser}));
  replies_stay : assert property (@(posedge clk) disable iff (rst)
      c_valid && !c_ready |=> c_valid && $stable(c_head));
`endif

endmodule
