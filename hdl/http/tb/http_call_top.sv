// A call and the writer of its reply.
module http_call_top
  import http_pkg::*;
#(
    parameter  int SESSION_BITS = 4,
    parameter  int RING_BITS = 21,
    localparam int RX_RING_BITS = RING_BITS,
    localparam int RX_POSITION_BITS = RING_BITS + 2,
    localparam int TX_POSITION_BITS = RING_BITS + 2
) (
`include "http_call_ports.svh"
    output logic                              tx_wants,
    input  logic                              tx_may,
    output logic                              tx_write,
    output logic [SESSION_BITS+RING_BITS-4:0] tx_write_address,
    output logic [                      63:0] tx_write_data,
    output logic [                       7:0] tx_write_keep,
`include "http_call_region_ports.svh"
);

  logic tx_valid, tx_flush, tx_start, unused_who;
  logic [63:0] tx_data;
  logic [3:0] tx_length;
  logic [SESSION_BITS-1:0] tx_session;
  logic [TX_POSITION_BITS-1:0] tx_from, tx_position;

  http_call #(
      .SESSION_BITS(SESSION_BITS),
      .RX_RING_BITS(RING_BITS),
      .TX_RING_BITS(RING_BITS)
  ) u_call (.*);

  http_writer #(
      .SOURCES     (1),
      .SESSION_BITS(SESSION_BITS),
      .RING_BITS   (RING_BITS)
  ) u_writer (
      .clk,
      .rst,
      .valid        (tx_valid),
      .flush        (tx_flush),
      .data         ('{tx_data}),
      .length       ('{tx_length}),
      .start        (tx_start),
      .from         ('{tx_from}),
      .session      ('{tx_session}),
      .position     ('{tx_position}),
      .write        (tx_write),
      .writes       (unused_who),
      .write_address(tx_write_address),
      .write_data   (tx_write_data),
      .write_keep   (tx_write_keep)
  );

endmodule
