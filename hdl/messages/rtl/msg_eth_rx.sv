// Ethernet bridge, in: frames → packets.
//
// Frames for other boards, of another type, or for a rank that is not on this board are dropped.
// Packets of a pair of ranks are numbered: duplicates and late ones are dropped; if some are
// missing, the kernel gets an error (LOST) from that rank instead of the packet. A frame that ends
// before its packet is padded with zeros. A PROBE about a pair is passed to msg_eth_tx.
//
// Parameter UDP: 1, frames are UDP datagrams as from msg_eth_tx. IPv4's header must be valid,
// without options and fragments; a datagram's checksum is ignored.
// Latency: 4 cycles from a frame's first beat (three are its head), with UDP 8 (seven).
// Throughput: one beat per cycle.
module msg_eth_rx
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int UDP = 0
) (
`include "msg_own_ports.svh"
    input  logic [4:0]  put_port,   // a port of this board is below 16
    input  logic [31:0] states,     // two bits per kernel: 0 running, 1 ended, 2 failed
`include "msg_packet_ports.svh"
    output logic        a_valid,
    input  logic        a_ready,
    output logic [3:0]  a_port,
    output logic [7:0]  a_own,
    output logic [7:0]  a_rank,
    output logic [15:0] a_count,
    output logic [1:0]  a_state,
    output logic [15:0] lost,       // lost packets, and dropped ones: duplicates, or not for this
                                    // board
    output logic [15:0] repeated,
    output logic [15:0] strange
);

  typedef enum logic [3:0] { To, From, Internet, Checksum, Ports, Number, Envelope, Judge, Packet, Rest, Zeroes } state_t;

  state_t        state;
  logic [4:0]    ports[256];
  logic [15:0]   counts[4096];
  logic [15:0]   count, expected, ahead;
  logic [7:0]    left;
  logic [11:0]   pair;
  logic [11:0]   sweep;
  logic          sweeping, mine, ended, good;
  logic [4:0]    port, source_port;
  hum_envelope_t head, in;
  logic          full;      // SIZE bytes follow
  logic [18:0]   sum;       // of the IPv4 header, in words in memory order
  logic [16:0]   folded;

  function automatic logic [15:0] swapped(input logic [15:0] number);
    return {number[7:0], number[15:8]};
  endfunction

  function automatic logic [18:0] words(input logic [63:0] beat);
    return 19'(beat[15:0]) + 19'(beat[31:16]) + 19'(beat[47:32]) + 19'(beat[63:48]);
  endfunction

  assign in          = hum_envelope_t'(s_beat.data);
  assign port        = ports[in.dest];
  assign source_port = ports[in.src];
  assign full        = has_payload(in.kind);
  assign good        = mine && !port[4] && source_port == 5'd16 && (!full || in.size <= PacketBytes) &&
      (UDP == 0 || folded[15:0] + 16'(folded[16]) == '1);
  assign ahead       = count - expected;

  always_ff @(posedge clk) begin
    if (put) ports[put_rank] <= put_port;
    if (state == Envelope) expected <= counts[{port[3:0], in.src}];
    // Lost packets are given up: the next expected number follows this packet.
    if (sweeping || (state == Judge && (!m_valid || m_ready) && head.kind != PacketProbe && !ahead[15]))
      counts[sweeping ? sweep : pair] <= sweeping ? '0 : count + 1'b1;
  end

  always_comb begin
    case (state)
      Judge, Zeroes: s_ready = 1'b0;
      Packet: s_ready = !m_valid || m_ready;
      default: s_ready = !sweeping;
    endcase
  end

  always_ff @(posedge clk) begin
    if (m_ready) m_valid <= 1'b0;
    if (a_ready) a_valid <= 1'b0;
    case (state)
      To:
      if (s_valid && s_ready) begin
        mine  <= s_beat.data[47:0] == {own[7:0], own[15:8], own[23:16], own[31:24], own[39:32], own[47:40]};
        state <= s_beat.last ? To : From;
      end
      From:
      if (s_valid) begin
        count <= s_beat.data[63:48];
        sum   <= 19'(s_beat.data[63:48]);
        if (UDP != 0 ? s_beat.data[55:32] != 24'h45_0008 : s_beat.data[47:32] != swapped(16'(LimitEthertype))) mine <= 1'b0;
        state <= s_beat.last ? To : UDP != 0 ? Internet : Envelope;
      end
      Internet:
      if (s_valid) begin
        sum <= sum + words(s_beat.data);
        if ((s_beat.data[47:32] & 16'hffbf) != '0 || s_beat.data[63:56] != 8'h11) mine <= 1'b0;
        state <= s_beat.last ? To : Checksum;
      end
      Checksum:
      if (s_valid) begin
        sum <= sum + words(s_beat.data);
        if (s_beat.data[63:48] != swapped(own_ip[31:16])) mine <= 1'b0;
        state <= s_beat.last ? To : Ports;
      end
      Ports:
      if (s_valid) begin
        sum <= sum + 19'(s_beat.data[15:0]);
        if (s_beat.data[15:0] != swapped(own_ip[15:0]) || s_beat.data[47:32] != swapped(16'(LimitUdpPort))) mine <= 1'b0;
        state <= s_beat.last ? To : Number;
      end
      Number:
      if (s_valid) begin
        folded <= 17'(sum[15:0]) + 17'(sum[18:16]);
        count  <= s_beat.data[31:16];
        state  <= s_beat.last ? To : Envelope;
      end
      Envelope:
      if (s_valid) begin
        head  <= in;
        ended <= s_beat.last;
        pair  <= {port[3:0], in.src};
        left  <= full ? beats(in.size[10:0]) : '0;
        if (good) state <= Judge;
        else begin
          if (mine) strange <= strange + 1'b1;
          state <= s_beat.last ? To : Rest;
        end
      end
      Judge:
      // A PROBE waits for the reply to the previous one.
      if ((!m_valid || m_ready) && !(head.kind == PacketProbe && a_valid && !a_ready)) begin
        state <= ended ? To : Rest;
        if (head.kind == PacketProbe) begin
          a_valid <= 1'b1;
          a_port  <= pair[11:8];
          a_own   <= head.dest;
          a_rank  <= head.src;
          a_count <= expected;
          a_state <= states[{pair[11:8], 1'b0}+:2];
        end else if (ahead == '0) begin
          m_valid <= 1'b1;
          m_beat  <= '{last: left == '0, data: head};
          if (left != '0) state <= ended ? Zeroes : Packet;
        end else if (!ahead[15]) begin
          lost          <= lost + ahead;
          m_valid       <= 1'b1;
          m_beat        <= '{last: 1'b1, data: {4'd0, CodeUntyped, FaultLost, 24'd0, 4'd0, PacketError, head.src, head.dest}};
        end else repeated <= repeated + 1'b1;
      end
      Packet:
      if (s_valid && s_ready) begin
        left    <= left - 1'b1;
        m_valid <= 1'b1;
        m_beat  <= '{last: left == 8'd1, data: s_beat.data};
        if (left == 8'd1) state <= s_beat.last ? To : Rest;
        else if (s_beat.last) state <= Zeroes;
      end
      Zeroes:
      if (!m_valid || m_ready) begin
        left    <= left - 1'b1;
        m_valid <= 1'b1;
        m_beat  <= '{last: left == 8'd1, data: '0};
        if (left == 8'd1) state <= To;
      end
      Rest: if (s_valid && s_beat.last) state <= To;
      default: state <= To;
    endcase
    if (sweeping) begin
      sweep    <= sweep + 1'b1;
      sweeping <= sweep != 12'hfff;
    end
    if (rst) begin
      state    <= To;
      m_valid  <= 1'b0;
      a_valid  <= 1'b0;
      sweeping <= 1'b1;
      sweep    <= '0;
      lost     <= '0;
      repeated <= '0;
      strange  <= '0;
    end
  end

`ifndef SYNTHESIS
  output_stays : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_beat));
  probes_stay : assert property (@(posedge clk) disable iff (rst)
      a_valid && !a_ready |=> a_valid && $stable({a_port, a_own, a_rank, a_count, a_state}));
  packets_have_beats : assert property (@(posedge clk) disable iff (rst)
      state inside {Packet, Zeroes} |-> left != '0);
`endif

endmodule
