// Prefetches a piece of host memory: the bus replies late, and in order.
//
// `start` samples address and length; it comes only while `over`. Every requested beat has space,
// so that the bus never waits. A beat that the bus could not read has `m_error`.
//
// Parameters: BURST, maximum beats of a request, a power of two; DEPTH, prefetched beats,
// a power of two.
// Latency: the bus's plus 2 cycles. Throughput: one beat per cycle,
// if DEPTH covers the bus's latency.
module host_reader #(
    parameter int BURST = 32,
    parameter int DEPTH = 256
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       start,
    input  logic [63:0]                address,   // a multiple of 8
    input  logic [28:0]                beats,
    output logic                       over,      // all beats have been consumed
`include "host_read_ports.svh"
    // The prefetched data.
    output logic                       m_valid,
    input  logic                       m_ready,
    output logic [63:0]                m_data,
    output logic                       m_error
);

  localparam int BeatBits = $clog2(BURST + 1);
  localparam int RoomBits = $clog2(DEPTH + 1);
  localparam int LowBits = BeatBits - 1;

  if (BURST > DEPTH || DEPTH != 1 << (RoomBits - 1)) $error("DEPTH must be a power of two into which a burst fits");
  if (BURST != 1 << (BeatBits - 1)) $error("BURST must be a power of two");

  logic [28-LowBits:0]      bursts;       // full bursts to request, and beats after them
  logic [LowBits-1:0]       rest;
  logic [RoomBits-1:0]      room;
  logic                     requested, taken, unused_ready;
  logic [$clog2(DEPTH+2)-1:0] unused_level;

  // All space is free again when all requested beats have been consumed.
  assign over       = bursts == '0 && rest == '0 && room[RoomBits-1];
  assign read_beats = bursts != '0 ? BeatBits'(BURST) : BeatBits'(rest);
  assign read_valid = bursts != '0 ? |room[RoomBits-1:LowBits] : rest != '0 && room >= RoomBits'(rest);
  assign requested      = read_valid && read_ready;
  assign taken      = m_valid && m_ready;

  axis_fifo #(
      .T    (logic [64:0]),
      .DEPTH(DEPTH)
  ) u_ahead (
      .clk,
      .rst,
      .s_valid  (data_valid),
      .s_ready  (unused_ready),
      .s_payload({data_error, data}),
      .m_valid,
      .m_ready,
      .m_payload({m_error, m_data}),
      .level    (unused_level)
  );

  always_ff @(posedge clk) begin
    if (rst) begin
      bursts <= '0;
      rest   <= '0;
      room   <= RoomBits'(DEPTH);
    end else begin
      room <= room - (requested ? RoomBits'(read_beats) : '0) + RoomBits'(taken);
      if (start) begin
        {bursts, rest} <= beats;
      end else if (requested) begin
        if (bursts != '0) bursts <= bursts - 1'b1;
        else rest <= '0;
      end
    end
  end

  always_ff @(posedge clk) begin
    // After the last beats there are no requests.
    if (start) read_address <= address;
    else if (requested) read_address[63:LowBits+3] <= read_address[63:LowBits+3] + 1'b1;
  end

`ifndef SYNTHESIS
  // A beat arrives only for a request, for which there was space.
  room_holds : assert property (@(posedge clk) disable iff (rst) data_valid |-> unused_ready);
  starts_when_over : assert property (@(posedge clk) disable iff (rst) start |-> over);
  room_is_bounded : assert property (@(posedge clk) disable iff (rst) room <= RoomBits'(DEPTH));
  reads_stay : assert property (@(posedge clk) disable iff (rst)
      read_valid && !read_ready |=> read_valid && $stable({read_address, read_beats}));
`endif

endmodule
