// The memory of the sessions' receive and transmit rings.
//
// Data from the network cannot wait (`rx_write`); the assembly of chunked bodies (`fill`) can, and is
// written in cycles that the network leaves.
//
// Parameters: SESSIONS; log2 of the bytes of each session's rings; LATENCY of reads in cycles.
module board_rings
  import net_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int LATENCY = 4,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic        clk,
    input  logic        rst,
    input  ring_write_t rx_write,
    input  ring_write_t fill,
    output logic        fill_ready,
    output logic        fill_waits,   // some of it is not written yet
    input  ring_read_t  rx_read,
    output logic [63:0] rx_read_data,
    input  ring_write_t tx_write,
    input  ring_read_t  tx_read,
    output logic [63:0] tx_read_data
);

  typedef struct packed {
    logic [S+RX_RING_BITS-4:0] address;
    logic [63:0] data;
    logic [7:0] keep;
  } fill_t;
  fill_t filled;

  fifo #(
      .T(fill_t),
      .DEPTH(4),
      .SPARE(2)
  ) u_fill (
      .clk,
      .rst,
      .s_valid(fill.valid),
      .s_ready(fill_ready),
      .s_payload('{address: fill.address[S+RX_RING_BITS-4:0], data: fill.data, keep: fill.keep}),
      .m_valid(fill_waits),
      .m_ready(!rx_write.valid),
      .m_payload(filled)
  );

  board_memory #(
      .ADDRESS_BITS(S + RX_RING_BITS - 3),
      .LATENCY(LATENCY)
  ) u_rx_memory (
      .clk,
      .write(rx_write.valid || fill_waits),
      .write_address(rx_write.valid ? rx_write.address[S+RX_RING_BITS-4:0] : filled.address),
      .write_data(rx_write.valid ? rx_write.data : filled.data),
      .write_keep(rx_write.valid ? rx_write.keep : filled.keep),
      .read(rx_read.valid),
      .read_address(rx_read.address[S+RX_RING_BITS-4:0]),
      .read_data(rx_read_data)
  );

  board_memory #(
      .ADDRESS_BITS(S + TX_RING_BITS - 3),
      .LATENCY(LATENCY)
  ) u_tx_memory (
      .clk,
      .write(tx_write.valid),
      .write_address(tx_write.address[S+TX_RING_BITS-4:0]),
      .write_data(tx_write.data),
      .write_keep(tx_write.keep),
      .read(tx_read.valid),
      .read_address(tx_read.address[S+TX_RING_BITS-4:0]),
      .read_data(tx_read_data)
  );

`ifndef SYNTHESIS
  // The network is written first.
  fills_wait : assert property (@(posedge clk) disable iff (rst)
      rx_write.valid && fill_waits |=> fill_waits && $stable(filled));
`endif

endmodule
