// A call and the writer of its reply.
module http_call_top
  import http_pkg::*;
#(
    parameter  int SESSION_BITS = 4,
    parameter  int RING_BITS = 21,
    localparam int P = RING_BITS + 2
) (
    input  logic                              clk,
    input  logic                              rst,
    input  logic                              start,
    input  logic [          SESSION_BITS-1:0] session,
    input  logic [                     P-1:0] body_at,
    input  logic [                      23:0] body_bytes,
    input  logic [                     P-1:0] answer_at,
    input  logic [                      23:0] room,
    input  text_t                             ending,
    input  logic [                       5:0] id_bytes,
    output logic                              id_read,
    output logic [          SESSION_BITS-1:0] id_session,
    output logic [                       2:0] id_word,
    input  logic [                      63:0] id_data,
    input  logic                              ahead,
    input  logic [          SESSION_BITS-1:0] ahead_session,
    input  logic [                     P-1:0] ahead_body_at,
    input  logic [                      23:0] ahead_body_bytes,
    output logic                              complete,
    output logic                              over,
    output logic [                     P-1:0] answer_to,
    input  logic                              taken,
    output logic                              rx_wants,
    input  logic                              rx_may,
    output logic                              rx_read,
    output logic [SESSION_BITS+RING_BITS-4:0] rx_read_address,
    input  logic [                      63:0] rx_read_data,
    output logic                              tx_wants,
    input  logic                              tx_may,
    output logic                              tx_write,
    output logic [SESSION_BITS+RING_BITS-4:0] tx_write_address,
    output logic [                      63:0] tx_write_data,
    output logic [                       7:0] tx_write_keep,
    output logic                              k_valid,
    input  logic                              k_ready,
    output logic [                      63:0] k_data,
    output logic [                       7:0] k_keep,
    output logic                              k_last,
    input  logic                              r_valid,
    output logic                              r_ready,
    input  logic [                      63:0] r_data,
    input  logic [                       7:0] r_keep,
    input  logic                              r_last
);

  logic tx_valid, tx_flush, tx_start, unused_who;
  logic [63:0] tx_data;
  logic [3:0] tx_length;
  logic [SESSION_BITS-1:0] tx_session;
  logic [P-1:0] tx_from, tx_position;

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
