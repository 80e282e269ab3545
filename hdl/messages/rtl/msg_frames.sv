// The frames of messages among those that a MAC receives, for msg_eth_rx: those of their Ethernet type.
//
// A MAC cannot wait: frames of messages are stored, and one for which there is no space is dropped
// whole and counted; its packet is then missing like one that the network has lost. Other frames are
// ignored.
//
// Parameters: DEPTH, beats that are stored, a power of two above FRAME; FRAME, beats of the longest
// frame; TYPE, the frames' Ethernet type. Latency: 4 cycles from the second beat.
module msg_frames
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int DEPTH = 1024,
    parameter int FRAME = 192,
    parameter logic [15:0] TYPE = hum_envelope_pkg::LimitEthertype
) (
    input  logic           clk,
    input  logic           rst,
    input  logic           rx_valid,
    input  net_pkg::beat_t rx,
    output logic           m_valid,
    input  logic           m_ready,
    output beat_t          m_beat,
    output logic [15:0]    dropped,
    output logic           pause     // a frame that begins now would be dropped
);

  typedef enum logic [1:0] {
    First,   // the next beat is a frame's first
    Second,
    Keep,    // the rest of a frame that is stored
    Ignore
  } state_t;

  state_t         state;
  logic           held_valid, is_message, put, room;
  net_pkg::beat_t held;    // the beat before the present one
  logic [7:0]     left;    // beats that may still be stored
  beat_t          entry;

  assign pause = !room;

  // A beat is stored when the next one has arrived, or at once if it is the last.
  assign is_message = rx.data[47:32] == {TYPE[7:0], TYPE[15:8]};
  assign put        = held_valid && (held.last || (rx_valid && (state == Keep || (state == Second && is_message && room))));
  assign entry.last = held.last || left == 8'd1;
  for (genvar i = 0; i < 8; i++) begin : g_byte
    assign entry.data[8*i+:8] = held.keep[i] ? held.data[8*i+:8] : '0;
  end

  always_ff @(posedge clk) begin
    if (put) begin
      held_valid <= 1'b0;
      left       <= left - 1'b1;
    end
    if (rx_valid) begin
      held       <= rx;
      held_valid <= 1'b0;
      unique case (state)
        First: begin
          left       <= 8'(FRAME);
          held_valid <= !rx.last;
          if (!rx.last) state <= Second;
        end
        Second: begin
          held_valid <= is_message && room;
          state      <= rx.last ? First : is_message && room ? Keep : Ignore;
          if (is_message && !room) dropped <= dropped + 1'b1;
        end
        Keep: begin
          // The rest of a frame that is too long is cut off.
          held_valid <= left > 8'd1;
          if (rx.last) state <= First;
        end
        default: if (rx.last) state <= First;
      endcase
    end
    if (rst) begin
      state      <= First;
      held_valid <= 1'b0;
      dropped    <= '0;
    end
  end

  fifo #(
      .T    (beat_t),
      .DEPTH(DEPTH),
      .SPARE(FRAME),
      .BLOCK(1)
  ) u_fifo (
      .clk,
      .rst,
      .s_valid  (put),
      .s_ready  (room),
      .s_payload(entry),
      .m_valid,
      .m_ready,
      .m_payload(m_beat)
  );

`ifndef SYNTHESIS
  frames_are_bounded : assert property (@(posedge clk) disable iff (rst) put |-> left != '0);
  frames_are_whole : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_beat));
`endif

endmodule
