// The fabric of a board for messages, without its kernels: the router and the bridges of raw
// Ethernet or (parameter UDP) of UDP.
module msg_fabric
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int PORTS = 16,
    parameter int UDP = 0
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [47:0]      own,
    input  logic [31:0]      own_ip,
    input  logic             put,          // a rank: its port (16: on another station), and the
                                           // address of its station
    input  logic [7:0]       put_rank,
    input  logic [4:0]       put_port,
    input  logic [47:0]      put_address,
    input  logic [31:0]      put_ip,
    input  logic [31:0]      states,       // of the kernels: see msg_eth_rx
    // Kernels.
    input  logic [PORTS-1:0] k_valid,
    output logic [PORTS-1:0] k_ready,
    input  beat_t            k_beat[PORTS],
    output logic [PORTS-1:0] m_valid,
    input  logic [PORTS-1:0] m_ready,
    output beat_t            m_beat[PORTS],
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
  beat_t to_router[PORTS+1], from_router[PORTS+1];
  logic  a_valid, a_ready;
  logic [3:0] a_port;
  logic [7:0] a_own, a_rank;
  logic [15:0] a_count;
  logic [1:0] a_state;

  for (genvar i = 0; i < PORTS; i++) begin : g_kernel
    assign to_router[i] = k_beat[i];
    assign m_beat[i]    = from_router[i];
  end
  assign to_router[PORTS] = n_beat;
  assign t_beat           = from_router[PORTS];

  msg_router #(
      .PORTS(PORTS)
  ) u_router (
      .clk,
      .rst,
      .put,
      .put_rank,
      .put_port(put_port == 5'd16 ? 5'(PORTS) : put_port),
      .s_valid ({n_valid, k_valid}),
      .s_ready ({n_ready, k_ready}),
      .s_beat  (to_router),
      .m_valid ({t_valid, m_valid}),
      .m_ready ({t_ready, m_ready}),
      .m_beat  (from_router),
      .net_from(from),
      .dropped
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

endmodule
