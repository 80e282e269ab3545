// The board's Ethernet port with 32 bits: the stream side of a MAC in a clock domain of its own, in
// front of the shell's 64-bit ports.
//
// The shell stays 64 bits wide. 32 bits at 125 MHz are 4 Gb/s; so are the shell's 64 bits at 62.5
// MHz, and every faster clock up to the shell's limit is sufficient. The clocks may have any
// relation with these rates:
//
//   rx   `clk` at half of `port_clk` or more. Frames of up to 1,514 bytes leave the line idle for 6
//        words in 385, so `clk` may be 1.3 % slower and still sustain a line that is never idle,
//        which exceeds the difference of two crystals; with frames of 9,014 bytes 0.2 %. A slower
//        `clk` drops whole frames, which `rx_dropped` counts.
//   tx   any: a frame is sent when it is complete.
//
// Parameters: MSS, as the shell's; RX_DEPTH and TX_DEPTH, beats that wait, powers of two. Latency:
// port32_rx, port32_tx.
//
// Reset: `rst`, in `clk`, for at least 8 cycles of the slower clock; `port_rst` follows it and
// resets the MAC. A frame that is being sent is then cut. The path to the first flip-flop of
// `port_rst` is a false path.
module board_port32
  import net_pkg::*;
#(
    parameter  int MSS = 1460,
    localparam int FRAME = (MSS + 54 + 7) / 8 + 2,  // beats; one more than the shell's limit,
                                                    // beyond which it cuts
    parameter  int RX_DEPTH = 1 << $clog2(2 * FRAME),
    parameter  int TX_DEPTH = 1 << $clog2(2 * FRAME)
) (
    input  logic        port_clk,
    output logic        port_rst,
    input  logic        port_rx_valid,
    input  logic [31:0] port_rx_data,
    input  logic [ 3:0] port_rx_keep,
    input  logic        port_rx_last,
    output logic        port_tx_valid,
    input  logic        port_tx_ready,
    output logic [31:0] port_tx_data,
    output logic [ 3:0] port_tx_keep,
    output logic        port_tx_last,
    // The shell.
    input  logic        clk,
    input  logic        rst,
    output logic        rx_valid,
    output logic [63:0] rx_data,
    output logic [ 7:0] rx_keep,
    output logic        rx_last,
    output logic [15:0] rx_dropped,   // frames dropped for lack of space; wraps
    input  logic        tx_valid,
    output logic        tx_ready,
    input  logic [63:0] tx_data,
    input  logic [ 7:0] tx_keep,
    input  logic        tx_last
);

  // The port starts in reset, before `rst` has been synchronized.
  (* ASYNC_REG = "TRUE" *) logic [1:0] reset_q = '1;
  logic rst_q = 1'b1;  // a single register, so that only a step crosses the domains
  beat_t rx;

  always_ff @(posedge clk) rst_q <= rst;
  always_ff @(posedge port_clk) reset_q <= {reset_q[0], rst_q};
  assign port_rst = reset_q[1];

  port32_rx #(
      .FRAME(FRAME),
      .DEPTH(RX_DEPTH)
  ) u_rx (
      .port_clk,
      .port_rst,
      .s_valid(port_rx_valid),
      .s_data (port_rx_data),
      .s_keep (port_rx_keep),
      .s_last (port_rx_last),
      .clk,
      .rst,
      .m_valid(rx_valid),
      .m      (rx),
      .dropped(rx_dropped)
  );

  assign rx_data = rx.data;
  assign rx_keep = rx.keep;
  assign rx_last = rx.last;

  port32_tx #(
      .FRAME(FRAME),
      .DEPTH(TX_DEPTH)
  ) u_tx (
      .clk,
      .rst,
      .s_valid(tx_valid),
      .s_ready(tx_ready),
      .s      ('{data: tx_data, keep: tx_keep, last: tx_last}),
      .port_clk,
      .port_rst,
      .m_valid(port_tx_valid),
      .m_ready(port_tx_ready),
      .m_data (port_tx_data),
      .m_keep (port_tx_keep),
      .m_last (port_tx_last)
  );

`ifndef SYNTHESIS
  received_beats_are_full : assert property (@(posedge clk) disable iff (rst)
      rx_valid && !rx_last |-> rx_keep == '1);
  sent_beats_stay : assert property (@(posedge clk) disable iff (rst)
      tx_valid && !tx_ready |=> tx_valid && $stable({tx_data, tx_keep, tx_last}));
`endif

endmodule
