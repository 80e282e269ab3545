// Replies to echo requests (RFC 792): stores the frame while it arrives, and sends it back with its
// addresses swapped after its checksums were verified. Two frames fit; a third is dropped.
//
// ARP's frames (net_arp) leave through the same register, each as a whole;
// waiting frames of both alternate.
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
    input  logic        arp_valid,   // a frame waits or leaves
    output logic        arp_go,
    output logic        arp_ready,
    input  beat_t       arp,         // zero while no frame leaves
    output logic        m_valid,
    input  logic        m_ready,
    output beat_t       m
);

  localparam int A = $clog2(BEATS);

  // ---- storing ----
  // A slot is sent only when it is complete, and is not written while it is full.
  (* no_rw_check = 1 *) beat_t store[2*BEATS];
  logic slot, slot_now, keep, keep_now, ended_slot, ended_kept;
  logic [1:0] full;
  logic drain;  // the slot being sent
  logic arp_last;  // the last frame was ARP's

  // Every frame changes the slot, so that the next one does not overwrite a frame that waits for
  // its verdict.
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
      if (request && ended_kept) full[ended_slot] <= 1'b1;
      // Not with a frame of ARP, which leaves through the same register.
      if (m_valid && m_ready && m.last && !arp_last) full[drain] <= 1'b0;
    end
  end

  // ---- sending ----
  // The requester's addresses are in the frame: the Ethernet address in the first two beats, of
  // which the second follows directly, the IP address in the fourth.
  logic running, fetched, ready, free;
  logic arp_running;  // an ARP frame leaves
  logic [A-1:0] at;
  logic [5:0] place;  // one-hot number of the next beat: one of the first five, or a later one;
                      // zero while no frame leaves
  beat_t read, raw;
  logic [15:0] from_ip_low;
  logic advance, move;

  assign advance = !m_valid || m_ready;
  assign move = advance || !ready;
  assign free = !running && !arp_running && !m_valid;
  assign arp_go = free && arp_valid && !(|full && arp_last);
  assign arp_ready = arp_running && advance;

  // RFC 1624: a checksum changes by the change of the word. The lower byte of the IP header's word
  // is unchanged; the ICMP header's word is 0800 before and 0 after,
  // so that its checksum grows by 0800, plus the carry.
  logic [16:0] ttl_change;
  function automatic logic [15:0] ip_check();
    return ~fold(32'(16'(~word(raw.data, 0))) + 32'(ttl_change));
  endfunction

  function automatic logic [15:0] icmp_check(input logic [15:0] old);
    return old + {5'd1, 10'd0, old[15:11] == '1 || old == 16'hf7ff};
  endfunction

  // At most one of the positions is active, or one of ARP's beats.
  function automatic beat_t leaving();
    leaving.keep = ({8{running}} & raw.keep) | arp.keep;
    leaving.last = (running && raw.last) || arp.last;
    leaving.data = arp.data
        | ({64{place[0]}} & {swap16(own_mac[47:32]), read.data[31:0], raw.data[63:48]})
        | ({64{place[1]}} & {raw.data[63:32], swap32(own_mac[31:0])})
        | ({64{place[2]}} & {raw.data[63:56], 8'd64, raw.data[47:0]})  // the time to live is reset
        | ({64{place[3]}} & {raw.data[31:16], swap32(own_ip), swap16(ip_check())})
        | ({64{place[4]}} & {raw.data[63:48], swap16(icmp_check(word(raw.data, 2))), raw.data[31:24], 8'd0, from_ip_low})
        | ({64{place[5]}} & raw.data);
  endfunction

  always_ff @(posedge clk) begin
    if (m_valid && m_ready) m_valid <= 1'b0;
    if ((running && move && ready) || arp_ready) begin
      m_valid <= 1'b1;
      m <= leaving();
    end
    if (!running) begin
      fetched <= 1'b0;
      ready <= 1'b0;
      at <= '0;
      place <= '0;
      // The older of two frames is not recorded; either order is correct.
      if (free && |full && !arp_go) begin
        running  <= 1'b1;
        drain    <= !full[0];
        arp_last <= 1'b0;
      end
    end else if (move) begin
      read <= store[{drain, at}];
      at <= at + 1'b1;
      fetched <= 1'b1;
      raw <= read;
      place <= ready ? {place[5] || place[4], place[3:0], 1'b0} : 6'd1;
      ready <= fetched;
      if (ready) begin
        ttl_change <= 17'(8'(~raw.data[55:48])) * 17'd256 + 17'h040ff;
        from_ip_low <= raw.data[47:32];
        if (raw.last) begin
          running <= 1'b0;
          fetched <= 1'b0;
          ready   <= 1'b0;
          place   <= '0;
        end
      end
    end
    if (arp_go) begin
      arp_running <= 1'b1;
      arp_last    <= 1'b1;
    end else if (arp_ready && arp.last) begin
      arp_running <= 1'b0;
    end
    if (rst) begin
      running <= 1'b0;
      arp_running <= 1'b0;
      m_valid <= 1'b0;
      fetched <= 1'b0;
      ready   <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  one_beat : assert property (@(posedge clk) disable iff (rst) $onehot0(place));
  one_source : assert property (@(posedge clk) disable iff (rst) !(running && arp_running));
  sent_slots_are_full : assert property (@(posedge clk) disable iff (rst) running |-> full[drain]);
  beats_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m));
  // A frame of ARP does not release the slot of a waiting frame.
  waiting_frames_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && m_ready && m.last && arp_last |=> ($past(full) & ~full) == '0);
  arp_beats_are_arps : assert property (@(posedge clk) disable iff (rst)
      !arp_running |-> arp == '0);
`endif

endmodule
