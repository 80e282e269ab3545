// Ethernet bridge, out: packets → frames.
//
// A frame consists of the two hardware addresses, the Ethernet type, a 16-bit number of the packets
// from this rank to that one, and the packet; short frames are padded to 64 bytes. The reply to a
// PROBE about a pair of ranks (msg_eth_rx) is sent between two packets,
// with both numbers and the state of the kernel.
//
// Parameter UDP: 1, frames are UDP over IPv4 (RFC 768, 791), one datagram each: its payload is the
// number, four zero bytes, and the packet. It has no checksum; the IPv4 header does.
// Latency: 2 cycles. Throughput: one beat per cycle, plus two beats for each frame's head,
// six with UDP.
module msg_eth_tx
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int UDP = 0
) (
`include "msg_own_ports.svh"
    input  logic [47:0] put_address,  // as `own`
    input  logic [31:0] put_ip,
    input  logic        s_valid,
    output logic        s_ready,
    input  beat_t       s_beat,
    input  logic [3:0]  s_from,     // the kernel's port
    input  logic        a_valid,    // a reply to a PROBE
    output logic        a_ready,
    input  logic [3:0]  a_port,
    input  logic [7:0]  a_own,
    input  logic [7:0]  a_rank,
    input  logic [15:0] a_count,    // number of received packets of this pair
    input  logic [1:0]  a_state,
    output logic        m_valid,
    input  logic        m_ready,
    output beat_t       m_beat
);

  typedef enum logic [3:0] { Idle, To, From, Internet, Checksum, Ports, Number, Packet, Fill } state_t;

  state_t      state;
  logic        answering, rcv_notify;
  logic [47:0] addresses[256];
  logic [15:0] counts[4096];
  logic [47:0] address;
  logic [31:0] ip;
  logic [15:0] count;
  logic [11:0] pair, pair_q;
  logic [11:0] sweep;
  logic        sweeping, counted, put_count;
  logic [2:0]  fill;
  logic        advance;
  hum_envelope_t head;

  function automatic logic [47:0] turned(input logic [47:0] a);
    return {a[7:0], a[15:8], a[23:16], a[31:24], a[39:32], a[47:40]};
  endfunction

  function automatic logic [15:0] swapped(input logic [15:0] number);
    return {number[7:0], number[15:8]};
  endfunction

  assign advance = !m_valid || m_ready;
  assign pair    = a_valid ? {a_port, a_rank} : {s_from, s_beat.data[7:0]};
  assign put_count = state == (UDP != 0 ? Number : From) && advance;
  assign counted = put_count && !answering;
  assign s_ready = state == Packet && advance && !answering;
  assign a_ready = state == Packet && advance && answering && rcv_notify;

  always_comb begin
    head      = '0;
    head.dest = a_rank;
    head.src  = a_own;
    head.kind = PacketState;
    head.size = 24'd8;
  end

  always_ff @(posedge clk) begin
    if (put) addresses[put_rank] <= put_address;
    if (state == Idle) begin
      address <= addresses[pair[7:0]];
      count   <= counts[pair];
      pair_q  <= pair;
    end
    if (sweeping || counted) counts[sweeping ? sweep : pair_q] <= sweeping ? '0 : count + 1'b1;
  end

  // ---- fields of UDP's head: the packet's length, and a checksum in three steps ----

  logic [15:0] sum;       // the IPv4 header's, in one's complement
  logic [7:0]  words;     // beats after the envelope
  logic [15:0] datagram;  // its bytes
  logic [15:0] total;     // and those of the IPv4 header

  assign datagram = 16'd22 + {5'd0, words, 3'd0};
  assign total    = datagram + 16'd20;

  if (UDP != 0) begin : g_udp
    hum_envelope_t first;
    logic [31:0] ips[256];
    logic [18:0] part, all;
    logic [16:0] folded;
    assign first = hum_envelope_t'(s_beat.data);
    always_ff @(posedge clk) begin
      if (put) ips[put_rank] <= put_ip;
      if (state == Idle) begin
        ip    <= ips[pair[7:0]];
        words <= a_valid ? 8'd1 : has_payload(first.kind) ? beats(first.size[10:0]) : '0;
      end
      // Version, length, not in fragments, hops, UDP.
      part   <= 19'h4500 + 19'h4000 + 19'h4011 + 19'(own_ip[31:16]) + 19'(own_ip[15:0]);
      all    <= part + 19'(total) + 19'(ip[31:16]) + 19'(ip[15:0]);
      folded <= 17'(all[15:0]) + 17'(all[18:16]);
    end
    assign sum = folded[15:0] + 16'(folded[16]);
  end else begin : g_ethernet
    assign {ip, sum, words} = '0;
  end

  always_ff @(posedge clk) begin
    if (advance) m_valid <= 1'b0;
    case (state)
      Idle: begin
        answering <= a_valid;
        rcv_notify      <= 1'b0;
        fill      <= 3'd7;
        if ((s_valid || a_valid) && !sweeping) state <= To;
      end
      To:
      if (advance) begin
        m_valid <= 1'b1;
        m_beat  <= '{last: 1'b0, data: {own[39:32], own[47:40], turned(address)}};
        state   <= From;
      end
      From:
      if (advance) begin
        m_valid            <= 1'b1;
        m_beat.data[31:0]  <= {own[7:0], own[15:8], own[23:16], own[31:24]};
        m_beat.data[63:32] <= UDP != 0 ? 32'h0045_0008 : {count, swapped(16'(LimitEthertype))};
        fill               <= UDP != 0 ? 3'd1 : 3'd5;
        state              <= UDP != 0 ? Internet : Packet;
      end
      Internet:
      if (advance) begin
        m_valid     <= 1'b1;
        m_beat.data <= {32'h1140_0040, 16'd0, swapped(total)};
        state       <= Checksum;
      end
      Checksum:
      if (advance) begin
        m_valid     <= 1'b1;
        m_beat.data <= {swapped(ip[31:16]), swapped(own_ip[15:0]), swapped(own_ip[31:16]), swapped(~sum)};
        state       <= Ports;
      end
      Ports:
      if (advance) begin
        m_valid     <= 1'b1;
        m_beat.data <= {swapped(datagram), {2{swapped(16'(LimitUdpPort))}}, swapped(ip[15:0])};
        state       <= Number;
      end
      Number:
      if (advance) begin
        m_valid     <= 1'b1;
        m_beat.data <= {32'd0, count, 16'd0};
        state       <= Packet;
      end
      Packet:
      if (advance && (answering || s_valid)) begin
        m_valid     <= 1'b1;
        m_beat.data <= !answering ? s_beat.data : rcv_notify ? {30'd0, a_state, count, a_count} : head;
        m_beat.last <= fill == '0 && (answering ? rcv_notify : s_beat.last);
        rcv_notify        <= 1'b1;
        if (fill != '0) fill <= fill - 1'b1;
        if (answering ? rcv_notify : s_beat.last) state <= fill == '0 ? Idle : Fill;
      end
      Fill:
      if (advance) begin
        m_valid     <= 1'b1;
        m_beat      <= '{last: fill == '0, data: '0};
        fill        <= fill - 1'b1;
        if (fill == '0) state <= Idle;
      end
      default: state <= Idle;
    endcase
    if (sweeping) begin
      sweep    <= sweep + 1'b1;
      sweeping <= sweep != 12'hfff;
    end
    if (rst) begin
      state    <= Idle;
      m_valid  <= 1'b0;
      sweeping <= 1'b1;
      sweep    <= '0;
    end
  end

`ifndef SYNTHESIS
  output_stays : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_beat));
  packet_stays : assert property (@(posedge clk) disable iff (rst)
      state == Packet && s_valid && !s_ready |=> s_valid && $stable(s_beat));
  replies_have_two_beats : assert property (@(posedge clk) disable iff (rst)
      a_ready |-> a_valid && rcv_notify);
`endif

endmodule
