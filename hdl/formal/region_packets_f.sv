// Proof harness: whatever a kernel does, and whenever its run ends, whole packets leave from the
// region's rank, of the length that their envelopes announce; the kernel receives beats only in its
// run, and the first one is the beginning of a packet.
//
// Packets are observed before the skid buffer that they leave through (axis_skid_f).
module region_packets_f
  import fn_pkg::*;
  import hum_envelope_pkg::*;
  import msg_pkg::*;
(
`include "region_packets_ports.svh"
    input packets_t   kernel,
    input logic       k_ready,
    input logic       m_valid,
    input beat_t      m_beat
);

  packets_t      kernel_reply;
  beat_t         k_beat, sent;
  logic          started, ran, runs, k_valid, m_ready, sends, inside_sent, inside_given, inside_router;
  logic [7:0]    rank, left, announced;
  hum_envelope_t head;

  initial started = 1'b0;

  region_packets dut (
      .*
  );

  assign sends     = dut.out_valid;
  assign sent      = dut.out;
  assign head      = hum_envelope_t'(sent.data);
  assign announced = has_payload(head.kind) ? beats(head.size[10:0]) : '0;

  always_ff @(posedge clk) begin
    started   <= 1'b1;
    if (put) rank <= put_rank;
    ran  <= !rst && (ran || start);
    runs <= !rst && !off && (runs || start);
    if (sends && dut.out_ready) begin
      left        <= inside_sent ? left - 1'b1 : announced;
      inside_sent <= inside_sent ? left != 8'd1 : announced != '0;
    end
    if (m_valid && m_ready) inside_router <= !m_beat.last;
    if (!runs) inside_given <= 1'b0;
    else if (kernel_reply.valid && kernel.ready) inside_given <= !kernel_reply.last;
    if (rst) begin
      inside_sent   <= 1'b0;
      inside_router <= 1'b0;
      inside_given  <= 1'b0;
    end
  end

  always_comb begin
    if (!started) begin
      assume (rst);
    end else if (!rst) begin
      // The rank does not change while its packets are on their way.
      assume (!(put && (ran || start)));
      if (sends) begin
        if (inside_sent) begin
          assert (left != '0);
          assert (sent.last == (left == 8'd1));
        end else begin
          assert (head.src == rank);
          assert (!has_payload(head.kind) || head.size <= PacketBytes);
          assert (sent.last == (announced == '0));
        end
      end
      if (kernel_reply.valid) begin
        assert (runs && m_valid);
        assert (kernel_reply.last == m_beat.last && kernel_reply.data == m_beat.data);
        assert (inside_given || !inside_router);
        assert (m_ready == kernel.ready);
      end
    end
  end

endmodule
