// Builds TCP segments (RFC 9293) in IPv4 in Ethernet: reads the payload from the session's transmit
// ring, computes the checksum, and sends headers and payload.
// One segment is read while another is sent.
//
// The first header beats leave while the end of the payload is still being summed: the checksum is
// not needed before beat 6. Frames are not padded to Ethernet's 60 bytes; the MAC does that.
//
// Parameters: SESSIONS; RING_BITS, log2 of a ring's bytes; STEADY, whether the words of a segment
// arrive one per cycle after the first one; MSS, the maximum payload; SCALE. Latency: 6 cycles,
// plus the memory's, plus one per beat beyond six, or per beat if the words are not steady. A beat
// is assembled in one cycle and summed in the next.
module tcp_tx
  import net_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RING_BITS = 21,
    parameter  bit STEADY = 1,
    parameter  int MSS = 1460,
    parameter  int SCALE = 6,        // the shift in the window scale option
    localparam int S = $clog2(SESSIONS)
) (
`include "tcp_tx_ports.svh"
);

  logic own_clk;  // gated while no state changes

  localparam int BEATS_BITS = $clog2(MSS + 14) - 3;

  // Two slots: the reader fills one while the sender empties the other. The sender copies a slot's
  // header fields with its first beat, before which no other segment arrives.
  logic fill, drain;                 // which slot
  logic [1:0] full;
  segment_t segment;
  logic [31:0] sums[2];
  // A beat is in the store before it is read for sending.
  (* no_rw_check = 1 *) logic [63:0] store[2 << BEATS_BITS];

  // ---- reading ----
  typedef enum logic [1:0] {
    READ_IDLE,
    READ_WORDS,
    READ_REST
  } read_state_t;
  read_state_t read_state;
  logic [15:0] span, words_left;      // of the next segment; to request
  logic [BEATS_BITS:0] words_due;     // that have not arrived
  logic [RING_BITS-4:0] word_at;
  logic [S-1:0] session;
  logic [2:0] turn;                   // rotation from a ring lane to a frame lane
  logic late;                         // the first word has no bytes for the first beat
  logic first_word;
  logic [63:0] turned, turned_before;
  logic [BEATS_BITS-1:0] beat_at;
  logic [15:0] end_byte, beats;       // payload starts at byte 6 of its first beat
  logic [7:0] low_lanes, lanes, before_end;
  logic [16:0] to_end;  // bytes from the beat's first one on
  logic [63:0] merged;
  logic produce, tail;
  logic early, produced, summed;      // the checksum will be ready in time; all words have arrived;
                                      // the checksum is ready
  logic adding, add_last;
  logic [BEATS_BITS-1:0] add_at;
  logic [63:0] added;

  assign span = (16'(s_segment.seq[2:0]) + s_segment.length + 16'd7) >> 3;
  assign s_ready = read_state == READ_IDLE && !full[fill];
  assign to_end = {1'b0, end_byte} - 17'({beat_at, 3'b000});
  assign before_end = ~(8'hff << to_end[2:0]);

  always_comb begin
    turned = turned_by(word_data, turn);
    for (int i = 0; i < 8; i++) begin
      low_lanes[i] = 3'(i) < turn;
      lanes[i] = (beat_at != '0 || i >= 6) && !to_end[16] && (|to_end[15:3] || before_end[i]);
    end
    for (int i = 0; i < 8; i++)
    merged[8*i+:8] = low_lanes[i] ? turned_before[8*i+:8] : turned[8*i+:8];
    merged = masked(merged, lanes);
  end

  assign tail = read_state == READ_REST && words_due == '0 && !produced;
  assign produce = (word_valid && !(first_word && late)) || tail;

  always_ff @(posedge own_clk) begin
    read <= 1'b0;
    if (word_valid) begin
      turned_before <= turned;
      first_word <= 1'b0;
      words_due <= words_due - 1'b1;
    end
    adding <= produce && !rst;
    add_last <= 16'(beat_at) + 16'd1 == beats;
    add_at <= beat_at;
    added <= merged;
    if (produce) begin
      beat_at <= beat_at + 1'b1;
      if (16'(beat_at) + 16'd1 == beats) produced <= 1'b1;
    end
    if (adding) begin
      store[{fill, add_at}] <= added;
      sums[fill] <= sums[fill] + 32'(sum_beat(added));
      if (add_last) summed <= 1'b1;
    end
    // If words arrive one per cycle after the first one, six more have arrived when beat 6 leaves.
    early <= read_state != READ_IDLE &&
        (summed || (STEADY && produce && 16'(beat_at) + 16'd6 >= beats));
    case (read_state)
      READ_IDLE:
      if (s_valid && s_ready) begin
        segment <= s_segment;
        session <= s_session;
        word_at <= s_segment.seq[RING_BITS-1:3];
        words_left <= span;
        words_due <= s_segment.length == '0 ? '0 : (BEATS_BITS + 1)'(span);
        turn <= 3'd6 - s_segment.seq[2:0];
        late <= s_segment.seq[2:0] == 3'd7;
        end_byte <= 16'd6 + s_segment.length;
        beats <= (16'd13 + s_segment.length) >> 3;
        beat_at <= '0;
        first_word <= 1'b1;
        produced <= s_segment.length == '0;
        summed <= s_segment.length == '0;
        early <= s_segment.length == '0;
        sums[fill] <= '0;
        read_state <= s_segment.length == '0 ? READ_REST : READ_WORDS;
      end
      READ_WORDS:
      if (read_ready) begin
        read <= 1'b1;
        read_address <= {session, word_at};
        word_at <= word_at + 1'b1;
        words_left <= words_left - 16'd1;
        if (words_left == 16'd1) read_state <= READ_REST;
      end
      default:
      if (summed && words_due == '0) begin
        read_state <= READ_IDLE;
        fill <= !fill;
      end
    endcase
    if (rst) begin
      read_state <= READ_IDLE;
      read <= 1'b0;
      fill <= 1'b0;
    end
  end

  // ---- sending ----
  logic sending;
  logic [15:0] sent;                   // beats
  logic [15:0] last_beat;
  logic [7:0] last_keep;
  segment_t out;
  logic [15:0] ip_length, ip_sum, tcp_length;
  logic [31:0] fixed_sum, ip_part, own_part, length_part, place_part, sequence_part;
  logic [15:0] fixed_folded;
  logic [3:0] words;
  logic [15:0] tcp_sum;
  logic [63:0] stored;
  logic [7:0] option_bytes;
  logic advance, take;

  assign option_bytes = segment.with_scale ? 8'd8 : segment.with_mss ? 8'd4 : 8'd0;
  assign take = !sending && (full[drain] || (fill == drain && early && read_state != READ_IDLE));
  assign advance = sending && (!m_valid || m_ready);

  // The constant part of the checksums is summed in the first cycles of sending, one step per
  // cycle: the IPv4 header's is needed for beat 3, the segment's for beat 6.
  always_ff @(posedge own_clk) begin
    own_part <= 32'(own_ip[31:16]) + 32'(own_ip[15:0]);
    ip_part <= 32'(out.ip[31:16]) + 32'(out.ip[15:0]) + own_part;
    length_part <= 32'(ip_length) + (32'h4500 + 32'h4000 + {16'h0, 8'd64, PROTOCOL_TCP});
    place_part <= 32'(tcp_length) + 32'(out.own_port) + 32'(out.port) +
        {16'h0, words, 4'd0, out.flags};
    sequence_part <= 32'(out.seq[31:16]) + 32'(out.seq[15:0]) + 32'(out.ack[31:16]) + 32'(out.ack[15:0]) +
        32'(out.window);
    ip_sum <= ~fold(ip_part + length_part);
    fixed_sum <= ip_part + place_part + sequence_part + 32'(PROTOCOL_TCP) +
        (out.with_mss ? 32'h0204 + 32'(MSS) : 32'd0) + (out.with_scale ? 32'h0103 + 32'h0300 + 32'(SCALE) : 32'd0);
    fixed_folded <= fold(fixed_sum);
    tcp_sum <= ~fold(sums[drain] + 32'(fixed_folded));
  end

  // Payload is summed through this number of registers.
  logic [4:0] settles;
  always_ff @(posedge own_clk) settles <= {settles[3:0], take && !rst};

  assign ip_length  = tcp_length + 16'd20;
  assign words = 4'd5 + 4'(out.with_mss) + 4'(out.with_scale);
  assign tcp_length = out.length + {10'd0, words, 2'd0};

  always_ff @(posedge own_clk) begin
    if (advance) stored <= store[{drain, BEATS_BITS'(sent - 16'd5)}];
    if (m_valid && m_ready) m_valid <= 1'b0;
    if (take) begin
      sending <= 1'b1;
      sent <= '0;
      out <= segment;
      last_beat <= (16'd53 + segment.length + 16'(option_bytes)) >> 3;
      last_keep <= 8'hff >> (3'd2 - 3'(segment.length) - 3'(option_bytes));
    end
    if (advance) begin
      m_valid <= 1'b1;
      m.last <= sent == last_beat;
      m.keep <= sent == last_beat ? last_keep : 8'hff;
      sent <= sent + 16'd1;
      case (sent)
        16'd0: m.data <= {swap16(own_mac[47:32]), swap48(out.mac)};
        16'd1: m.data <= {16'h0045, swap16(ETHERTYPE_IPV4), swap32(own_mac[31:0])};
        // Not a fragment; identification 0 is then correct (RFC 6864).
        16'd2: m.data <= {PROTOCOL_TCP, 8'd64, 16'h0040, 16'h0000, swap16(ip_length)};
        16'd3: m.data <= {swap16(out.ip[31:16]), swap32(own_ip), swap16(ip_sum)};
        16'd4: m.data <= {swap16(out.seq[31:16]), swap16(out.port), swap16(out.own_port), swap16(out.ip[15:0])};
        16'd5:
        m.data <= {
          out.flags, words, 4'd0, swap32(out.ack), swap16(out.seq[15:0])
        };
        16'd6:
        m.data <= {
          out.with_mss ? 16'h0402 : stored[63:48], 16'h0000, swap16(tcp_sum), swap16(out.window)
        };
        16'd7: m.data <= out.with_mss ? {16'd0, 8'(SCALE), 24'h03_0301, swap16(16'(MSS))} : stored;
        default: m.data <= stored;
      endcase
      if (sent == last_beat) begin
        sending <= 1'b0;
        drain <= !drain;
      end
    end
    if (rst) begin
      m_valid <= 1'b0;
      sending <= 1'b0;
      drain   <= 1'b0;
    end
  end

  always_ff @(posedge own_clk) begin
    if (read_state == READ_REST && summed && words_due == '0) full[fill] <= 1'b1;
    if (advance && sent == last_beat) full[drain] <= 1'b0;
    if (rst) full <= '0;
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || s_valid || read_state != READ_IDLE || full != '0 || sending || m_valid || adding || settles != '0),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  payload_fits : assert property (@(posedge clk) disable iff (rst)
      s_valid |-> s_segment.length <= 16'(MSS));
  read_slots_are_free : assert property (@(posedge clk) disable iff (rst)
      read_state != READ_IDLE |-> !full[fill]);
  sent_slots_are_read : assert property (@(posedge clk) disable iff (rst)
      sending |-> full[drain] || fill == drain);
  sent_is_bounded : assert property (@(posedge clk) disable iff (rst)
      sending |-> sent <= last_beat);
  words_were_read : assert property (@(posedge clk) disable iff (rst)
      word_valid |-> read_state != READ_IDLE && 16'(words_due) > words_left);
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m));
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m.last |-> m.keep == '1);
`endif

endmodule
