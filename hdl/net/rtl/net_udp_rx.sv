// Receives UDP (RFC 768) for one port: stores a datagram's payload while its frame arrives, and
// passes it on after the checksums were verified. Two datagrams fit; further ones are dropped,
// which UDP permits.
//
// A port of 0 receives nothing. A datagram without a checksum is accepted, as in RFC 768.
//
// Parameters: BYTES, the longest payload. Latency: 2 cycles from the verdict. Throughput:
// 8 bytes a cycle.
module net_udp_rx
  import net_pkg::*;
#(
    parameter int BYTES = 1472
) (
    input  logic        clk,
    input  logic        rst,
    input  logic [15:0] port,
    // net_parse
    input  logic        beat_valid,
    input  beat_t       beat,
    input  logic [10:0] beat_index,
    input  logic        good,        // the frame that ended three cycles ago is a valid datagram
    input  head_t       head,        // its head
    // datagrams: the source stays valid until the last beat;
    // an empty datagram has one beat without bytes
    output datagram_t   from,
    output logic        m_valid,
    input  logic        m_ready,
    output beat_t       m
);

  logic own_clk;  // gated while no state changes

  localparam int WORDS = 1 << $clog2(BYTES / 8 + 1);
  localparam int A = $clog2(WORDS);

  // The payload begins with byte 42, the third of beat 5.
  logic [63:0] store[2*WORDS];
  logic slot, slot_now, keep, keep_now, ended_slot, ended_kept, drain;
  logic [1:0] full;
  datagram_t froms[2];
  logic [47:0] carried;
  logic [A:0] place;
  logic flush, write;
  logic [63:0] word_now;

  // Every frame changes the slot, so that the next one does not overwrite a frame that waits for
  // its verdict.
  assign slot_now = beat_index == '0 ? !slot : slot;
  assign keep_now = beat_index == '0 ? !full[slot_now] : keep;
  assign write = flush || (beat_valid && beat_index >= 11'd6);
  assign word_now = {flush ? 16'd0 : beat.data[15:0], carried};

  always_ff @(posedge own_clk) begin
    if (write && keep && !place[A]) store[{slot, place[A-1:0]}] <= word_now;
    flush <= beat_valid && beat.last;
    if (write) place <= place + 1'b1;
    if (beat_valid) begin
      slot <= slot_now;
      keep <= keep_now;
      carried <= beat.data[63:16];
      if (beat_index <= 11'd5) place <= '0;
      if (beat.last) begin
        ended_slot <= slot_now;
        ended_kept <= keep_now;
      end
    end
    if (good && ended_kept && head.own_port == port && port != '0 && head.length <= 16'(BYTES)) begin
      full[ended_slot]  <= 1'b1;
      froms[ended_slot] <= '{mac: head.mac, ip: head.ip, port: head.port, own_port: head.own_port, length: head.length};
    end
    if (m_valid && m_ready && m.last) full[drain] <= 1'b0;
    // Of the frame in which a port is set first, not all was seen.
    if (port == '0) {keep, ended_kept} <= '0;
    if (rst) begin
      slot <= 1'b0;
      full <= '0;
      ended_kept <= 1'b0;
      flush <= 1'b0;
    end
  end

  // ---- passing on, in the order in which they came ----
  logic running, turn;
  logic [A-1:0] at;
  logic [15:0] left;

  assign from = froms[drain];

  always_ff @(posedge own_clk) begin
    if (m_valid && m_ready) m_valid <= 1'b0;
    if (!running) begin
      // Slots are filled in turn, but for those whose frame was none of these.
      if (full != '0 && !m_valid) begin
        running <= 1'b1;
        drain <= full[turn] ? turn : !turn;
        at <= '0;
        left <= froms[full[turn] ? turn : !turn].length;
      end
    end else if (!m_valid || m_ready) begin
      m_valid <= 1'b1;
      m.data <= store[{drain, at}];
      m.keep <= left >= 16'd8 ? 8'hff : 8'hff >> (4'd8 - left[3:0]);
      m.last <= left <= 16'd8;
      at <= at + 1'b1;
      left <= left - 16'd8;
      if (left <= 16'd8) begin
        running <= 1'b0;
        turn <= !drain;
      end
    end
    if (rst) begin
      running <= 1'b0;
      m_valid <= 1'b0;
      turn <= 1'b0;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || port != '0 || keep || ended_kept || flush || full != '0 || running || m_valid),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  sent_slots_are_full : assert property (@(posedge clk) disable iff (rst) running |-> full[drain]);
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m));
  source_stays : assert property (@(posedge clk) disable iff (rst)
      m_valid && !(m_ready && m.last) |=> $stable(from));
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m.last |-> m.keep == '1);
  payload_fits : assert property (@(posedge clk) disable iff (rst)
      m_valid |-> from.length <= 16'(BYTES));
`endif

endmodule
