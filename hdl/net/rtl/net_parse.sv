// Parses frames: Ethernet II, ARP, IPv4 (RFC 791, no options, no fragments), ICMP, TCP and UDP
// headers; verifies the IPv4, ICMP, TCP and UDP checksums. All other frames, and damaged ones, are
// FRAME_OTHER, and so is a TCP frame of fewer than eight beats, which is below Ethernet's minimum.
//
// Beats leave one cycle after they arrive, with their number in the frame. `head` fills meanwhile:
// addresses and ports are valid when beat 5 leaves, the other fields when beat 6 does. `verdict`
// comes with a pulse of `done`, three cycles after the last beat, together with the final head,
// which stays. The port never stalls, because a MAC cannot wait.
module net_parse
  import net_pkg::*;
(
`include "net_rx_ports.svh"
    output logic        beat_valid,
    output beat_t       beat,
    output logic [10:0] beat_index,  // saturates
    output head_t       head,
    output logic [13:0] payload_start,  // of the TCP payload, in bytes from the frame's start
    output logic        done,
    output frame_kind_t verdict,
    output head_t       verdict_head
);

  logic is_arp, is_ip, header_ok, to_me, to_all, arp_request, arp_reply, source_ok;
  logic [7:0] protocol, icmp_type;
  logic [15:0] ip_length;
  logic [31:0] target_ip;
  logic [3:0] data_offset;

  always_ff @(posedge clk) begin
    beat_valid <= rx_valid && !rst;
    if (rx_valid) beat <= rx;
    if (rst) beat_index <= '0;
    else if (beat_valid) begin
      if (beat.last) beat_index <= '0;
      else if (!(&beat_index)) beat_index <= beat_index + 11'd1;
    end
  end

  // ---- options: two aligned words a beat from byte 54 on ----
  // The usual layouts of TCP's options are supported: each starts with an option, or with a word
  // that gives the number of words to skip. Parsing stops at the first other word.
  typedef struct packed {
    logic        over;
    logic [3:0]  left;    // words
    logic [1:0]  pass;    // words to skip
    logic [15:0] mss;
    logic        scaled;
    logic [3:0]  scale;
  } options_t;

  function automatic options_t option(input options_t from, input logic [31:0] w);
    option = from;
    if (!from.over) begin
      option.left = from.left - 4'd1;
      option.over = from.left == 4'd1;
      if (from.pass != '0) option.pass = from.pass - 2'd1;
      else if (w[31:16] == 16'h0204) option.mss = w[15:0];
      else if (w[31:8] == 24'h010303) begin
        option.scaled = 1'b1;
        option.scale  = w[7:0] > 8'd14 ? 4'd14 : w[3:0];
      end else if (w[15:0] == 16'h080a && (w[31:16] == 16'h0402 || w[31:16] == 16'h0101))
        option.pass = 2'd2;  // timestamps, which are ignored
      else if (!((w[31:16] == 16'h0402 && (w[15:0] == 16'h0101 || w[15:0] == 16'h0000)) || w == 32'h0101_0402))
        option.over = 1'b1;
    end
  endfunction

  options_t options, options_q;
  logic [15:0] option_start;  // the last two bytes of the previous beat

  always_comb begin
    options = options_q;
    if (beat_index == 11'd6) begin
      options = '0;
      options.left = data_offset - 4'd5;
      options.over = data_offset <= 4'd5;
    end else if (beat_index > 11'd6) begin
      options = option(options, {option_start, word(beat.data, 0)});
      options = option(options, {word(beat.data, 1), word(beat.data, 2)});
    end
  end

  always_ff @(posedge clk) begin
    if (beat_valid) begin
      options_q <= options;
      option_start <= word(beat.data, 3);
    end
  end

  // ---- fields ----
  head_t h;

  always_ff @(posedge clk) begin
    if (beat_valid) begin
      case (beat_index)
        11'd0: begin
          to_me  <= swap48(beat.data[47:0]) == own_mac;
          to_all <= &beat.data[47:0];
          h.mac[47:32] <= word(beat.data, 3);
          // A group address cannot be a sender (IEEE 802.3 clause 3.2.3).
          source_ok <= !beat.data[48];
        end
        11'd1: begin
          h.mac[31:0] <= swap32(beat.data[31:0]);
          is_arp <= word(beat.data, 2) == ETHERTYPE_ARP;
          is_ip  <= word(beat.data, 2) == ETHERTYPE_IPV4 && beat.data[55:48] == 8'h45;
        end
        11'd2: begin
          ip_length <= word(beat.data, 0);
          protocol  <= beat.data[63:56];
          // IPv4: not a fragment. ARP: Ethernet and IPv4, a request or a reply (RFC 826).
          header_ok   <= (word(beat.data, 2) & 16'h3fff) == 16'd0;
          arp_request <= beat.data[47:0] == 48'h0100_0406_0008;
          arp_reply <= beat.data[47:0] == 48'h0200_0406_0008;
        end
        11'd3: begin
          h.ip <= is_arp ? swap32(beat.data[63:32]) : swap32(beat.data[47:16]);
          target_ip[31:16] <= word(beat.data, 3);
        end
        11'd4: begin
          if (is_arp) target_ip[31:16] <= word(beat.data, 3);
          else target_ip[15:0] <= word(beat.data, 0);
          icmp_type <= beat.data[23:16];
          h.port <= word(beat.data, 1);
          h.own_port <= word(beat.data, 2);
          h.seq[31:16] <= word(beat.data, 3);
          // The board's own address, the null address and groups cannot be senders (RFC 1122
          // section 3.2.1.3).
          if (h.ip == own_ip || h.ip[31:24] == 8'd0 || h.ip[31:29] == 3'b111)
            source_ok <= 1'b0;
        end
        11'd5: begin
          if (is_arp) target_ip[15:0] <= word(beat.data, 0);
          h.seq[15:0] <= word(beat.data, 0);
          h.ack <= swap32(beat.data[47:16]);
          data_offset <= beat.data[55:52];
          h.flags <= beat.data[63:56];
        end
        11'd6: h.window <= word(beat.data, 0);
        default: ;
      endcase
      h.mss <= options.mss;
      h.scaled <= options.scaled;
      h.scale <= options.scale;
    end
  end

  assign payload_start = 14'd34 + {8'd0, data_offset, 2'b00};
  always_comb begin
    head = h;
    head.length = ip_length - 16'd20 - (protocol == PROTOCOL_UDP ? 16'd8 : {10'd0, data_offset, 2'b00});
  end

  // ---- checksums ----
  // `left` is the number of bytes of the IP packet from the next beat on. The words of each beat
  // are added first, and then, a cycle later, to the sum of the frame.
  logic [15:0] left, left_now;
  logic [ 7:0] l4_keep;
  logic [63:0] ip_data, l4_data;
  logic [17:0] ip_beat, l4_beat;
  logic [31:0] ip_sum, l4_sum;
  logic summing, summing_first;
  logic [5:0] nth;  // one-hot number of the first beats; the last bit is for all later ones

  assign left_now = beat_index == 11'd3 ? (ip_length > 16'd18 ? ip_length - 16'd18 : 16'd0) :
      left > 16'd8 ? left - 16'd8 : 16'd0;

  always_comb begin
    case (1'b1)
      nth[1]: ip_data = masked(beat.data, 8'hc0);
      nth[2], nth[3]: ip_data = beat.data;
      nth[4]: ip_data = masked(beat.data, 8'h03);
      default: ip_data = '0;
    endcase
    case (1'b1)
      nth[0], nth[1], nth[2]: l4_data = '0;
      // The pseudo-header of TCP and UDP: both addresses, the protocol and the length.
      nth[3]:
      l4_data = protocol inside {PROTOCOL_TCP, PROTOCOL_UDP} ?
          {beat.data[63:16], swap16(ip_length - 16'd20 + 16'(protocol))} : '0;
      nth[4]:
      l4_data = masked(beat.data, protocol inside {PROTOCOL_TCP, PROTOCOL_UDP} ? l4_keep : (l4_keep & 8'hfc));
      default: l4_data = masked(beat.data, l4_keep);
    endcase
  end

  always_ff @(posedge clk) begin
    if (rst) nth <= 6'd1;
    else if (beat_valid) nth <= beat.last ? 6'd1 : {nth[5] | nth[4], nth[3:0], 1'b0};
    if (beat_valid) begin
      left <= left_now;
      l4_keep <= |left_now[15:3] ? '1 : ~(8'hff << left_now[2:0]);
      ip_beat <= sum_beat(ip_data);
      l4_beat <= sum_beat(l4_data);
    end
    summing <= beat_valid;
    summing_first <= beat_index == '0;
    if (summing) begin
      ip_sum <= summing_first ? '0 : ip_sum + 32'(ip_beat);
      l4_sum <= summing_first ? '0 : l4_sum + 32'(l4_beat);
    end
  end

  // ---- verdict: three cycles after the last beat ----
  logic ended, ended_2, whole, least, tcp_sane, mine;
  logic [15:0] bytes;
  frame_kind_t kind;

  // The folded sum is all ones: both halves together are, possibly with a carry to add.
  function automatic logic sums_up(input logic [31:0] sum);
    logic [16:0] once;
    once = 17'(sum[15:0]) + 17'(sum[31:16]);
    return once == 17'h0ffff || once == 17'h1fffe;
  endfunction

  head_t head_2;

  always_ff @(posedge clk) begin
    ended <= beat_valid && beat.last && !rst;
    if (beat_valid && beat.last) begin
      bytes <= {2'b00, beat_index, 3'b000} + 16'($countones(beat.keep));
      whole <= beat_index >= 11'd4 && !(&beat_index);
      least <= beat_index >= 11'd7;  // Ethernet's minimum frame has 60 bytes
    end
  end

  assign mine = (to_me || (to_all && is_arp)) && source_ok && target_ip == own_ip;
  assign tcp_sane = data_offset >= 4'd5 && 17'(payload_start) <= 17'(ip_length) + 17'd14;

  always_ff @(posedge clk) begin
    ended_2   <= ended && !rst;
    head_2    <= head;
    kind      <= FRAME_OTHER;
    if (whole && mine) begin
      if (is_arp && arp_request && bytes >= 16'd42) kind <= FRAME_ARP;
      else if (is_arp && arp_reply && to_me && bytes >= 16'd42) kind <= FRAME_ARP_REPLY;
      else if (is_ip && header_ok && 17'(bytes) >= 17'(ip_length) + 17'd14) begin
        if (protocol == PROTOCOL_ICMP && icmp_type == 8'd8 && ip_length >= 16'd28)
          kind <= FRAME_ICMP;
        else if (protocol == PROTOCOL_TCP && least && tcp_sane && ip_length >= 16'd40) kind <= FRAME_TCP;
        // UDP's own length and its checksum are at the position of TCP's sequence number.
        else if (protocol == PROTOCOL_UDP && ip_length >= 16'd28 && h.seq[31:16] == ip_length - 16'd20) kind <= FRAME_UDP;
      end
    end
  end

  always_ff @(posedge clk) begin
    done <= ended_2 && !rst;
    if (ended_2) verdict_head <= head_2;
    verdict <= kind;
    // A datagram may come without a checksum.
    if (kind inside {FRAME_ICMP, FRAME_TCP, FRAME_UDP} &&
        !(sums_up(ip_sum) && (sums_up(l4_sum) || (kind == FRAME_UDP && head_2.seq[15:0] == '0))))
      verdict <= FRAME_OTHER;
  end

`ifndef SYNTHESIS
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      rx_valid && !rx.last |-> rx.keep == '1);
  nth_is_number : assert property (@(posedge clk) disable iff (rst)
      beat_valid |-> nth == 6'd1 << (beat_index < 11'd5 ? beat_index[2:0] : 3'd5));
  scale_is_bounded : assert property (@(posedge clk) disable iff (rst)
      beat_valid && beat_index > 11'd7 |-> head.scale <= 4'd14);
  // A TCP frame has at least its headers.
  tcp_has_headers : assert property (@(posedge clk) disable iff (rst)
      ended_2 && kind == FRAME_TCP |-> bytes >= 16'd54);
`endif

endmodule
