// The fabric of a board for messages, without its kernels: the router and the bridges of raw
// Ethernet or (parameter UDP) of UDP.
module msg_fabric
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int PORTS = 16,
    parameter int UDP = 0
) (
`include "msg_own_ports.svh"
    input  logic [4:0]       put_port,
    input  logic [47:0]      put_address,
    input  logic [31:0]      put_ip,
    input  logic [31:0]      states,       // of the kernels: see msg_eth_rx
`include "msg_fabric_ports.svh"
    // Frames.
    input  logic             rx_valid,
    output logic             rx_ready,
    input  beat_t            rx_beat,
    output logic             tx_valid,
    input  logic             tx_ready,
    output beat_t            tx_beat,
    output logic [15:0]      lost,
    output logic [15:0]      repeated,
    output logic [15:0]      strange,
    output logic [15:0]      dropped
);

  logic  n_valid, n_ready, t_valid, t_ready;
  beat_t n_beat, t_beat;
  logic [$clog2(PORTS)-1:0] from;
  logic  a_valid, a_ready;
  logic [3:0] a_port;
  logic [7:0] a_own, a_rank;
  logic [15:0] a_count;
  logic [1:0] a_state;

  msg_router #(
      .PORTS(PORTS)
  ) u_router (
      .put_port(put_port == 5'd16 ? 5'(PORTS) : put_port),
      .net_from(from),
      .*
  );

  msg_eth_tx #(
      .UDP(UDP)
  ) u_tx (
      .clk,
      .rst,
      .own,
      .own_ip,
      .put,
      .put_rank,
      .put_address,
      .put_ip,
      .s_valid(t_valid),
      .s_ready(t_ready),
      .s_beat (t_beat),
      .s_from (4'(from)),
      .a_valid,
      .a_ready,
      .a_port,
      .a_own,
      .a_rank,
      .a_count,
      .a_state,
      .m_valid(tx_valid),
      .m_ready(tx_ready),
      .m_beat (tx_beat)
  );

  msg_eth_rx #(
      .UDP(UDP)
  ) u_rx (
      .clk,
      .rst,
      .own,
      .own_ip,
      .put,
      .put_rank,
      .put_port,
      .states,
      .s_valid(rx_valid),
      .s_ready(rx_ready),
      .s_beat (rx_beat),
      .m_valid(n_valid),
      .m_ready(n_ready),
      .m_beat (n_beat),
      .a_valid,
      .a_ready,
      .a_port,
      .a_own,
      .a_rank,
      .a_count,
      .a_state,
      .lost,
      .repeated,
      .strange
  );

`ifndef SYNTHESIS
  packets_in_stay : assert property (@(posedge clk) disable iff (rst)
      n_valid && !n_ready |=> n_valid && $stable(n_beat));
  packets_out_stay : assert property (@(posedge clk) disable iff (rst)
      t_valid && !t_ready |=> t_valid && $stable({t_beat, from}));
`endif

endmodule
