// The fabric of the message door for the live model: 16 kernels, with plain ports for streams.
//
// Parameter NET: 1, stations use TCP (msg_fabric_tcp), and the ports of raw Ethernet are unused;
// 0, raw Ethernet; 2, UDP.
module msg_board
  import msg_pkg::*;
#(
    parameter int NET = 0
) (
`include "msg_station_ports.svh"
    input  logic [47:0]      put_address,
    input  logic [31:0]      put_ip,
    input  logic [15:0]      k_valid,
    output logic [15:0]      k_ready,
    input  logic [15:0]      k_last,
    input  logic [63:0]      k_data[16],
    output logic [15:0]      m_valid,
    input  logic [15:0]      m_ready,
    output logic [15:0]      m_last,
    output logic [63:0]      m_data[16],
    input  logic             rx_valid,
    output logic             rx_ready,
    input  logic             rx_last,
    input  logic [63:0]      rx_data,
    input  logic [7:0]       rx_keep,
    output logic             tx_valid,
    input  logic             tx_ready,
    output logic             tx_last,
    output logic [63:0]      tx_data,
    output logic [7:0]       tx_keep,
    output logic             owed,
    output logic             failed,
    output logic [7:0]       failed_station
);

  beat_t k_beat[16], m_beat[16];

  for (genvar i = 0; i < 16; i++) begin : g_port
    assign k_beat[i] = '{last: k_last[i], data: k_data[i]};
    assign m_last[i] = m_beat[i].last;
    assign m_data[i] = m_beat[i].data;
  end

  if (NET == 1) begin : g_tcp
    net_pkg::beat_t rx, tx;
    assign rx_ready = 1'b1;
    assign rx       = '{data: rx_data, keep: rx_keep, last: rx_last};
    assign tx_last  = tx.last;
    assign tx_data  = tx.data;
    assign tx_keep  = tx.keep;
    msg_fabric_tcp u_fabric (
        .*,
        .repeated(),
        .strange (),
        .dropped (),
        .unsent  ()
    );
  end else begin : g_ethernet
    beat_t rx_beat, tx_beat;
    assign rx_beat = '{last: rx_last, data: rx_data};
    assign tx_last = tx_beat.last;
    assign tx_data = tx_beat.data;
    assign tx_keep = '1;
    assign owed    = 1'b0;
    assign failed  = 1'b0;
    assign failed_station = '0;
    msg_fabric #(
        .UDP(NET == 2 ? 1 : 0)
    ) u_fabric (
        .*,
        .lost    (),
        .repeated(),
        .strange (),
        .dropped ()
    );
  end

endmodule
