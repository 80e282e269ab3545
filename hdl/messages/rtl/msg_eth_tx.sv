// Ethernet bridge, out: packets → frames.
//
// A frame is the two hardware addresses, the Ethernet type, 16 bits that count the packets from this rank to that one, and
// the packet; short ones are filled up to 64 bytes. A question about a pair of ranks (msg_eth_rx) is answered between two
// packets, with both counts and what has become of the kernel.
//
// Latency: 2 cycles. Throughput: a beat a cycle, and two beats for each frame's head.
module msg_eth_tx
  import hum_envelope_pkg::*;
  import msg_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic [47:0] own,        // hardware addresses: the first byte is the highest
    input  logic        put,        // a rank's
    input  logic [7:0]  put_rank,
    input  logic [47:0] put_address,
    input  logic        s_valid,
    output logic        s_ready,
    input  beat_t       s_beat,
    input  logic [3:0]  s_from,     // the kernel's port
    input  logic        a_valid,    // an answer
    output logic        a_ready,
    input  logic [3:0]  a_port,
    input  logic [7:0]  a_own,
    input  logic [7:0]  a_rank,
    input  logic [15:0] a_count,    // packets that have come of this pair
    input  logic [1:0]  a_state,
    output logic        m_valid,
    input  logic        m_ready,
    output beat_t       m_beat
);

  typedef enum logic [2:0] { Idle, To, From, Packet, Fill } state_t;

  state_t      state;
  logic        answering, told;
  logic [47:0] addresses[256];
  logic [15:0] counts[4096];
  logic [47:0] address;
  logic [15:0] count;
  logic [11:0] pair, pair_q;
  logic [11:0] sweep;
  logic        sweeping, counted;
  logic [2:0]  fill;
  logic        advance;
  hum_envelope_t head;

  function automatic logic [47:0] turned(input logic [47:0] a);
    return {a[7:0], a[15:8], a[23:16], a[31:24], a[39:32], a[47:40]};
  endfunction

  assign advance = !m_valid || m_ready;
  assign pair    = a_valid ? {a_port, a_rank} : {s_from, s_beat.data[7:0]};
  assign counted = state == From && advance && !answering;
  assign s_ready = state == Packet && advance && !answering;
  assign a_ready = state == Packet && advance && answering && told;

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

  always_ff @(posedge clk) begin
    if (advance) m_valid <= 1'b0;
    case (state)
      Idle: begin
        answering <= a_valid;
        told      <= 1'b0;
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
        m_valid     <= 1'b1;
        m_beat.data <= {count, LimitEthertype[7:0], LimitEthertype[15:8], own[7:0], own[15:8], own[23:16], own[31:24]};
        fill        <= 3'd5;
        state       <= Packet;
      end
      Packet:
      if (advance && (answering || s_valid)) begin
        m_valid     <= 1'b1;
        m_beat.data <= !answering ? s_beat.data : told ? {30'd0, a_state, count, a_count} : head;
        m_beat.last <= fill == '0 && (answering ? told : s_beat.last);
        told        <= 1'b1;
        if (fill != '0) fill <= fill - 1'b1;
        if (answering ? told : s_beat.last) state <= fill == '0 ? Idle : Fill;
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

endmodule
