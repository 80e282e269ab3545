// Sends UDP (RFC 768) datagrams, with their checksum: the payload is stored until its checksum is
// complete, because the checksum is sent first. One datagram at a time.
//
// Parameters: BYTES, the longest payload. Latency: 5 cycles from the payload's last beat.
// Throughput: 8 bytes a cycle, each way.
module net_udp_tx
  import net_pkg::*;
#(
    parameter int BYTES = 1472
) (
    input  logic        clk,
    input  logic        rst,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    // datagrams: full beats except the last, which may be empty; `to` is read with the last beat
    input  datagram_t   to,
    input  logic        s_valid,
    output logic        s_ready,
    input  beat_t       s,
    output logic        m_valid,
    input  logic        m_ready,
    output beat_t       m
);

  logic own_clk;  // gated while no state changes

  localparam int WORDS = 1 << $clog2(BYTES / 8 + 1);
  localparam int A = $clog2(WORDS);

  typedef enum logic [2:0] {
    TAKE,
    ADD,     // addresses, ports and lengths, in three steps
    FOLD,
    READ,
    SEND
  } state_t;

  state_t state;
  logic [63:0] store[WORDS];
  datagram_t out;
  logic [A:0] place;
  logic [31:0] sum, parts, ip_sum;
  logic [15:0] ip_check, check, udp_length, ip_length, folded;
  logic [10:0] sent, last_beat;
  logic [63:0] current, carried;
  logic [1:0] step;

  assign s_ready = state == TAKE;
  assign udp_length = out.length + 16'd8;
  assign ip_length = out.length + 16'd28;
  assign folded = fold(sum);

  // Read in one place, so that it fits block RAM.
  logic next;
  assign next = state == READ || (state == SEND && (!m_valid || m_ready) && sent >= 11'd5);
  always_ff @(posedge own_clk) if (next) current <= store[place[A-1:0]];

  always_ff @(posedge own_clk) begin
    if (m_valid && m_ready) m_valid <= 1'b0;
    case (state)
      TAKE: begin
        if (s_valid) begin
          if (!place[A]) store[place[A-1:0]] <= masked(s.data, s.keep);
          if (!place[A]) place <= place + 1'b1;
          sum <= sum + 32'(sum_beat(masked(s.data, s.keep)));
          out <= to;
          step <= '0;
          // Oversized datagrams are dropped.
          if (s.last) state <= ADD;
        end
      end
      ADD: begin
        step <= step + 2'd1;
        if (step == 2'd0) begin
          parts <= 32'(out.ip[31:16]) + 32'(out.ip[15:0]) + 32'(own_ip[31:16]) + 32'(own_ip[15:0]);
          sum <= sum + 32'(out.port) + 32'(out.own_port) + 32'(udp_length) + 32'(udp_length) + 32'(PROTOCOL_UDP);
        end else begin
          ip_sum <= parts + 32'(ip_length) + (32'h4500 + 32'h4000 + {16'h0, 8'd64, PROTOCOL_UDP});
          sum <= sum + parts;
          state <= FOLD;
        end
      end
      FOLD: begin
        ip_check <= ~fold(ip_sum);
        // 0 would mean that there is no checksum.
        check <= folded == 16'hffff ? 16'hffff : ~folded;
        last_beat <= 11'((16'd41 + out.length) >> 3);
        sent <= '0;
        state <= out.length > 16'(BYTES) ? TAKE : READ;
        sum <= out.length > 16'(BYTES) ? '0 : sum;
        place <= '0;
      end
      READ: begin  // the first word
        state <= SEND;
        place <= (A + 1)'(1);
      end
      default:  // SEND
      if (!m_valid || m_ready) begin
        m_valid <= 1'b1;
        m.last <= sent == last_beat;
        m.keep <= sent == last_beat ? 8'hff >> (3'd6 - out.length[2:0]) : 8'hff;
        sent <= sent + 11'd1;
        case (sent)
          11'd0: m.data <= {swap16(own_mac[47:32]), swap48(out.mac)};
          11'd1: m.data <= {16'h0045, swap16(ETHERTYPE_IPV4), swap32(own_mac[31:0])};
          11'd2: m.data <= {PROTOCOL_UDP, 8'd64, 16'h0040, 16'h0000, swap16(ip_length)};
          11'd3: m.data <= {swap16(out.ip[31:16]), swap32(own_ip), swap16(ip_check)};
          11'd4: m.data <= {swap16(udp_length), swap16(out.port), swap16(out.own_port), swap16(out.ip[15:0])};
          11'd5: m.data <= {current[47:0], swap16(check)};
          default: m.data <= {current[47:0], carried[63:48]};
        endcase
        if (sent >= 11'd5) begin
          carried <= current;
          place <= place + 1'b1;
        end
        if (sent == last_beat) begin
          state <= TAKE;
          place <= '0;
          sum <= '0;
        end
      end
    endcase
    if (rst) begin
      state <= TAKE;
      m_valid <= 1'b0;
      place <= '0;
      sum <= '0;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || s_valid || state != TAKE || m_valid),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  payload_is_full : assert property (@(posedge clk) disable iff (rst)
      s_valid && !s.last |-> s.keep == '1);
  offers_stay : assert property (@(posedge clk) disable iff (rst)
      s_valid && !s_ready |=> s_valid && $stable(s));
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m));
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m.last |-> m.keep == '1);
  sent_datagrams_fit : assert property (@(posedge clk) disable iff (rst)
      state inside {READ, SEND} |-> out.length <= 16'(BYTES));
  sent_is_bounded : assert property (@(posedge clk) disable iff (rst)
      state == SEND |-> sent <= last_beat);
`endif

endmodule
