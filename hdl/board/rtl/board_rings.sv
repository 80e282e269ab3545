// The sessions' receive and transmit rings: on the chip (board_memory), or in board memory
// (ring_memory).
//
// Data from the network is written first (`rx_write`); the assembly of chunked bodies (`fill`) is
// written in cycles that the network leaves. A read after a write returns what was written.
//
// Parameters: SESSIONS; log2 of the bytes of each session's rings; LATENCY of reads on the chip in
// cycles; IN_MEMORY, whether the rings are in board memory, those for receiving first.
module board_rings
  import axi_pkg::*;
  import board_pkg::*;
  import net_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int LATENCY = 4,
    parameter  bit IN_MEMORY = 0,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic             clk,
    input  logic             rst,
    input  ring_write_t      rx_write,
    output logic             rx_write_ready,  // there is place for RX_WRITES_LATE words
    input  ring_write_t      fill,
    output logic             fill_ready,
    output logic             fill_waits,      // some of it is not written yet
    input  ring_read_t       rx_read,
    output logic             rx_read_ready,   // permits a read in the next cycle
    output ring_word_t       rx_word,
    input  ring_write_t      tx_write,
    output logic             tx_write_ready,  // there is place for TX_WRITES_LATE words
    input  ring_read_t       tx_read,
    output logic             tx_read_ready,
    output ring_word_t       tx_word,
    // Board memory: for receiving, and for sending.
    output axi_write_t       axi_write[2],
    input  axi_write_reply_t axi_write_reply[2],
    output axi_read_t        axi_read[2],
    input  axi_read_reply_t  axi_read_reply[2],
    output logic             busy
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
      .m_ready(!rx_write.valid && rx_write_ready),
      .m_payload(filled)
  );

  ring_write_t rx_written;
  assign rx_written = rx_write.valid ? rx_write : '{
    valid:   fill_waits && rx_write_ready,
    address: 32'(filled.address),
    data:    filled.data,
    keep:    filled.keep
  };

  if (IN_MEMORY) begin : g_memory
    logic rx_busy, tx_busy;
    assign busy = rx_busy || tx_busy;
    localparam logic [31:0] TxBase = RINGS_BASE + 32'(SESSIONS << RX_RING_BITS);

    ring_memory #(
        .BASE (RINGS_BASE),
        .LATE (RX_WRITES_LATE)
    ) u_rx (
        .clk,
        .rst,
        .write          (rx_written),
        .write_ready    (rx_write_ready),
        .read           (rx_read),
        .read_ready     (rx_read_ready),
        .reply          (rx_word),
        .axi_write      (axi_write[0]),
        .axi_write_reply(axi_write_reply[0]),
        .axi_read       (axi_read[0]),
        .axi_read_reply (axi_read_reply[0]),
        .busy           (rx_busy)
    );

    ring_memory #(
        .BASE (TxBase),
        .LATE (TX_WRITES_LATE)
    ) u_tx (
        .clk,
        .rst,
        .write          (tx_write),
        .write_ready    (tx_write_ready),
        .read           (tx_read),
        .read_ready     (tx_read_ready),
        .reply          (tx_word),
        .axi_write      (axi_write[1]),
        .axi_write_reply(axi_write_reply[1]),
        .axi_read       (axi_read[1]),
        .axi_read_reply (axi_read_reply[1]),
        .busy           (tx_busy)
    );
  end else begin : g_chip
    logic unused_ports;
    assign unused_ports = &{1'b0, axi_write_reply[0], axi_write_reply[1], axi_read_reply[0],
                            axi_read_reply[1]};
    assign busy = 1'b0;
    assign {rx_write_ready, rx_read_ready, tx_write_ready, tx_read_ready} = '1;
    for (genvar i = 0; i < 2; i++) begin : g_port
      assign axi_write[i] = '0;
      assign axi_read[i] = '0;
    end

    board_memory #(
        .ADDRESS_BITS(S + RX_RING_BITS - 3),
        .LATENCY(LATENCY)
    ) u_rx_memory (
        .clk,
        .rst,
        .write(rx_written),
        .read (rx_read),
        .reply(rx_word)
    );

    board_memory #(
        .ADDRESS_BITS(S + TX_RING_BITS - 3),
        .LATENCY(LATENCY)
    ) u_tx_memory (
        .clk,
        .rst,
        .write(tx_write),
        .read (tx_read),
        .reply(tx_word)
    );
  end

`ifndef SYNTHESIS
  // The network is written first.
  fills_wait : assert property (@(posedge clk) disable iff (rst)
      rx_write.valid && fill_waits |=> fill_waits && $stable(filled));
`endif

endmodule
