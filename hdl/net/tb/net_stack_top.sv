// net_stack for its bench, with small rings; its structs signal by signal.
module net_stack_top
  import net_pkg::*;
#(
    localparam int RING_BITS = 14,
    localparam int S = 4
) (
`include "net_address_ports.svh"
`include "net_wire_ports.svh"
    output logic                   open,
    output logic                   open_active,
    output logic [S-1:0]           open_at,
    output logic [31:0]            open_next,
    output logic [31:0]            open_una,
    output logic                   rcv_notify,
    output logic [S-1:0]           rcv_at,
    output logic [31:0]            rcv_next,
    output logic                   rcv_ended,
    output logic                   arrived,
    output logic                   notify,
    output logic [S-1:0]           notify_at,
    output logic [31:0]            notify_una,
    output logic                   notify_dead,
    output logic                   notify_shut,
    output logic                   notify_wake,
    input  logic                   app_valid,
    input  logic [S-1:0]           app_at,
    input  logic [31:0]            app_read_to,
    input  logic [31:0]            app_written_to,
    input  logic                   app_finish,
    input  logic                   release_valid,
    input  logic [S-1:0]           release_at,
    input  logic [15:0]            working,
    input  logic [15:0]            mid_request,
    output logic [15:0]            yields,
`include "net_client_ports.svh"
    output logic                   rx_write,
    output logic [S+RING_BITS-4:0] rx_write_address,
    output logic [63:0]            rx_write_data,
    output logic [7:0]             rx_write_keep,
    input  logic                   rx_write_ready,
    output logic                   tx_read,
    input  logic                   tx_read_ready,
    output logic [S+RING_BITS-4:0] tx_read_address,
    input  logic                   tx_word_valid,
    input  logic [63:0]            tx_word_data,
    output logic [31:0]            count_opened,
    output logic [31:0]            count_retransmitted,
    output logic [31:0]            count_reset,
    output logic [S:0]             count_open
);
  opened_t opened;
  received_t received;
  session_change_t change;
  progress_t progress;
  release_t released;
  ring_write_t rx_writes;
  ring_read_t tx_reads;
  ring_word_t tx_word;
  net_counts_t counts;

  assign {open, open_active, open_at, open_next, open_una} =
      {opened.valid, opened.active, opened.session[S-1:0], opened.next, opened.una};
  assign {rcv_notify, rcv_at, rcv_next, rcv_ended, arrived} =
      {received.valid, received.session[S-1:0], received.next, received.ended, received.arrived};
  assign {notify, notify_at, notify_una} = {change.valid, change.session[S-1:0], change.una};
  assign {notify_dead, notify_shut, notify_wake} = {change.dead, change.shut, change.wake};
  assign progress = '{
    valid:      app_valid,
    session:    session_t'(app_at),
    read_to:    app_read_to,
    written_to: app_written_to,
    finish:     app_finish
  };
  assign released = '{valid: release_valid, session: session_t'(release_at)};
  assign {rx_write, rx_write_address} = {rx_writes.valid, rx_writes.address[S+RING_BITS-4:0]};
  assign {rx_write_data, rx_write_keep} = {rx_writes.data, rx_writes.keep};
  assign {tx_read, tx_read_address} = {tx_reads.valid, tx_reads.address[S+RING_BITS-4:0]};
  assign {count_opened, count_retransmitted} = {counts.opened, counts.retransmitted};
  assign {count_reset, count_open} = {counts.reset, counts.open[S:0]};

  assign tx_word = '{valid: tx_word_valid, note: '0, data: tx_word_data};

  net_stack #(
      .SESSIONS    (16),
      .STEADY      (0),
      .RX_RING_BITS(RING_BITS),
      .TX_RING_BITS(RING_BITS)
  ) u_stack (
      .rx_write(rx_writes),
      .tx_read (tx_reads),
      .*
  );
endmodule
