// Answers echo requests (RFC 792): keeps the frame while it arrives, and sends it back with its
// addresses swapped once its checksums were right. Two frames fit; a third is dropped.
//
// Parameters: BEATS, the longest frame kept. Latency: 6 cycles from the verdict.
module net_icmp
  import net_pkg::*;
#(
    parameter int BEATS = 256
) (
    input  logic        clk,
    input  logic        rst,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic        beat_valid,
    input  beat_t       beat,
    input  logic [10:0] beat_index,
    input  logic        request,     // the frame that ended three cycles ago is an echo request
    input  logic [47:0] mac,
    input  logic [31:0] ip,
    output logic        m_valid,
    input  logic        m_ready,
    output beat_t       m
);

  localparam int A = $clog2(BEATS);

  // ---- keeping ----
  // What is sent of a slot was all in it before; nothing is written to a slot that is full.
  (* no_rw_check = 1 *) beat_t store[2*BEATS];
  logic slot, slot_now, keep, keep_now, ended_slot, ended_kept;
  logic [1:0] full;
  logic drain;  // the slot that is being sent
  logic [47:0] to_mac[2];
  logic [31:0] to_ip [2];

  // Every frame changes the slot, so that the next one does not overwrite what waits for its verdict.
  assign slot_now = beat_index == '0 ? !slot : slot;
  assign keep_now = beat_index == '0 ? !full[slot_now] : keep;

  always_ff @(posedge clk) begin
    if (beat_valid && keep_now && beat_index < 11'(BEATS))
      store[{slot_now, beat_index[A-1:0]}] <= beat;
    if (rst) begin
      slot <= 1'b0;
      full <= '0;
      ended_kept <= 1'b0;
    end else begin
      if (beat_valid) begin
        slot <= slot_now;
        keep <= keep_now;
        if (beat.last) begin
          ended_slot <= slot_now;
          ended_kept <= keep_now && beat_index < 11'(BEATS);
        end
      end
      if (request && ended_kept) begin
        full[ended_slot] <= 1'b1;
        to_mac[ended_slot] <= mac;
        to_ip[ended_slot] <= ip;
      end
      if (m_valid && m_ready && m.last) full[drain] <= 1'b0;
    end
  end

  // ---- sending ----
  logic running, fetched, ready;
  logic [A-1:0] at, at_fetched, at_ready;
  beat_t read, raw;
  logic [15:0] ttl_protocol;
  logic advance, move;

  assign advance = !m_valid || m_ready;
  assign move = advance || !ready;

  always_ff @(posedge clk) begin
    if (m_valid && m_ready) m_valid <= 1'b0;
    if (!running) begin
      fetched <= 1'b0;
      ready <= 1'b0;
      at <= '0;
      // The older of two cannot be told; either order will do.
      if (|full && !(m_valid && m_ready) && !m_valid) begin
        running <= 1'b1;
        drain   <= !full[0];
      end
    end else if (move) begin
      read <= store[{drain, at}];
      at <= at + 1'b1;
      at_fetched <= at;
      fetched <= 1'b1;
      raw <= read;
      at_ready <= at_fetched;
      ready <= fetched;
      if (ready) begin
        m_valid <= 1'b1;
        m <= raw;
        case (at_ready)
          A'(0): m.data <= {swap16(own_mac[47:32]), swap48(to_mac[drain])};
          A'(1): m.data[31:0] <= swap32(own_mac[31:0]);
          A'(2): begin
            m.data[55:48] <= 8'd64;  // the time to live starts anew
            ttl_protocol  <= {raw.data[55:48], raw.data[63:56]};
          end
          // RFC 1624: the checksum changes as the one word does.
          A'(3):
          m.data <= {
            swap16(to_ip[drain][31:16]),
            swap32(own_ip),
            swap16(~fold(32'(16'(~word(raw.data, 0))) + 32'(16'(~ttl_protocol)) + 32'({8'd64, ttl_protocol[7:0]})))
          };
          A'(4):
          m.data[47:0] <= {
            swap16(~fold(32'(16'(~word(raw.data, 2))) + 32'h0000_f7ff)), 16'(raw.data[31:24]) << 8, swap16(to_ip[drain][15:0])
          };
          default: ;
        endcase
        if (raw.last) begin
          running <= 1'b0;
          fetched <= 1'b0;
          ready   <= 1'b0;
        end
      end
    end
    if (rst) begin
      running <= 1'b0;
      m_valid <= 1'b0;
      fetched <= 1'b0;
      ready   <= 1'b0;
    end
  end

endmodule
