// net_stack for its bench, with small rings.
module net_stack_top
  import net_pkg::*;
#(
    localparam int RING_BITS = 14,
    localparam int S = 4
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic                   tick,
    input  logic [47:0]            own_mac,
    input  logic [31:0]            own_ip,
    input  logic [15:0]            listen_port,
    input  logic [63:0]            secret,
    input  logic                   rx_valid,
    input  beat_t                  rx,
    output logic                   tx_valid,
    input  logic                   tx_ready,
    output beat_t                  tx,
    input  logic [31:0]            netmask,
    input  logic [31:0]            gateway,
    input  logic                   reserve,
    output logic                   open,
    output logic                   open_active,
    output logic [S-1:0]           open_at,
    output logic [31:0]            open_next,
    output logic [31:0]            open_una,
    output logic                   rcv_told,
    output logic [S-1:0]           rcv_at,
    output logic [31:0]            rcv_next,
    output logic                   rcv_ended,
    output logic                   arrived,
    output logic                   tell,
    output logic [S-1:0]           tell_at,
    output logic [31:0]            tell_una,
    output logic                   tell_dead,
    output logic                   tell_shut,
    output logic                   tell_wake,
    input  logic                   app_valid,
    input  logic [S-1:0]           app_at,
    input  logic [31:0]            app_read_to,
    input  logic [31:0]            app_written_to,
    input  logic                   app_finish,
    input  logic                   release_valid,
    input  logic [S-1:0]           release_at,
    input  logic                   connect_valid,
    input  logic [31:0]            connect_ip,
    input  logic [15:0]            connect_port,
    output logic                   connect_done,
    output connect_result_t        connect_result,
    output logic                   rx_write,
    output logic [S+RING_BITS-4:0] rx_write_address,
    output logic [63:0]            rx_write_data,
    output logic [7:0]             rx_write_keep,
    output logic                   tx_read,
    output logic [S+RING_BITS-4:0] tx_read_address,
    input  logic [63:0]            tx_read_data,
    output logic [31:0]            count_opened,
    output logic [31:0]            count_retransmitted,
    output logic [31:0]            count_reset,
    output logic [S:0]             count_open
);
  net_stack #(
      .SESSIONS    (16),
      .RX_RING_BITS(RING_BITS),
      .TX_RING_BITS(RING_BITS)
  ) u_stack (
      .*
  );
endmodule
