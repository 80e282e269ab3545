// The message port of a region's fixed boundary: the board's protection from the kernel's side of
// packets (msg_pkg).
//
// Whatever a kernel does, the router receives whole packets from the region's own rank: the source in
// their envelope is replaced, a packet ends with the bytes that its envelope announces (the rest is
// discarded, what is missing is zeros), and one that announces too many is discarded. From `off`
// (reset, reconfiguration, a killed run) until the next `start` the kernel's packets are ignored, and
// packets for it are discarded, except before the first `start` after `put`: then they wait, as the
// ranks of a job start one after another. After the end of a run its engines still exchange packets.
//
// Latency: 1 cycle to the router, none from it. Throughput: 1 beat per cycle.
module region_packets
  import fn_pkg::*;
  import hum_envelope_pkg::*;
  import msg_pkg::*;
(
`include "region_packets_ports.svh"
    // The kernel.
    input  packets_t   kernel,
    output packets_t   kernel_reply,
    // The router.
    output logic       k_valid,
    input  logic       k_ready,
    output beat_t      k_beat,
    input  logic       m_valid,
    output logic       m_ready,
    input  beat_t      m_beat
);

  typedef enum logic [1:0] {
    Head,    // an envelope is next
    Body,
    Fill,    // the kernel has ended the packet early
    Discard  // and late
  } state_t;

  logic          on, expected;   // `expected`: the rank's run has not begun yet
  logic [7:0]    rank;
  state_t        state;
  logic [7:0]    left;       // beats of the packet
  hum_envelope_t head;
  logic          too_long, out_valid, out_ready, taken;
  beat_t         out;

  always_ff @(posedge clk) begin
    if (put) rank <= put_rank;
    if (off || rst) on <= 1'b0;
    else if (start) on <= 1'b1;
    if (put) expected <= 1'b1;
    else if (start) expected <= 1'b0;
    if (rst) expected <= 1'b0;
  end

  // ---- from the kernel ----
  always_comb begin
    head     = hum_envelope_t'(kernel.data);
    too_long = has_payload(head.kind) && head.size > PacketBytes;
    head.src = rank;
  end

  logic [7:0] announced;
  assign announced = has_payload(head.kind) ? beats(head.size[10:0]) : '0;
  assign taken     = on && kernel.valid && kernel_reply.ready;

  always_comb begin
    out_valid = 1'b0;
    out       = '{last: left == 8'd1, data: kernel.data};
    unique case (state)
      Head: begin
        out_valid = on && kernel.valid && !too_long;
        out       = '{last: announced == '0, data: head};
      end
      Body: out_valid = on && kernel.valid;
      Fill: begin
        out_valid = 1'b1;
        out.data  = '0;
      end
      default: ;
    endcase
    kernel_reply.ready = on && (state == Discard || ((state == Head || state == Body) && (out_ready || (state == Head && too_long))));
  end

  always_ff @(posedge clk) begin
    unique case (state)
      Head: if (taken) begin
        left <= announced;
        if (too_long) state <= kernel.last ? Head : Discard;
        else if (announced == '0) state <= kernel.last ? Head : Discard;
        else state <= kernel.last ? Fill : Body;
      end
      Body: begin
        if (taken) begin
          left <= left - 1'b1;
          if (left == 8'd1) state <= kernel.last ? Head : Discard;
          else if (kernel.last) state <= Fill;
        end
        // A run that is killed in a packet.
        if (!on) state <= Fill;
      end
      Fill: if (out_ready) begin
        left <= left - 1'b1;
        if (left == 8'd1) state <= Head;
      end
      default: if (!on || (taken && kernel.last)) state <= Head;
    endcase
    if (rst) state <= Head;
  end

  axis_skid #(
      .T(beat_t)
  ) u_out (
      .clk,
      .rst,
      .s_valid  (out_valid),
      .s_ready  (out_ready),
      .s_payload(out),
      .m_valid  (k_valid),
      .m_ready  (k_ready),
      .m_payload(k_beat)
  );

  // ---- to the kernel ----
  logic inside_packet, discarding, passes, holds;

  assign passes = on && (inside_packet ? !discarding : 1'b1);
  assign holds  = expected && !on && !inside_packet;
  assign kernel_reply.valid = m_valid && passes;
  assign kernel_reply.last  = m_beat.last;
  assign kernel_reply.data  = m_beat.data;
  assign m_ready = passes ? kernel.ready : !holds;

  always_ff @(posedge clk) begin
    if (m_valid && m_ready) begin
      inside_packet <= !m_beat.last;
      if (!inside_packet) discarding <= !on;
    end
    if (!on) discarding <= 1'b1;
    if (rst) begin
      inside_packet <= 1'b0;
      discarding    <= 1'b1;
    end
  end

`ifndef SYNTHESIS
  packets_stay : assert property (@(posedge clk) disable iff (rst)
      k_valid && !k_ready |=> k_valid && $stable(k_beat));
  packets_have_beats : assert property (@(posedge clk) disable iff (rst)
      state inside {Body, Fill} |-> left != '0);
  off_is_silent : assert property (@(posedge clk) disable iff (rst)
      !on |-> !kernel_reply.valid && !kernel_reply.ready);
  // A packet for the rank whose run has not begun waits.
  packets_wait : assert property (@(posedge clk) disable iff (rst) holds && m_valid |-> !m_ready);
`endif

endmodule
