// The fabric of a board for messages, without its kernels, with TCP between stations: the router
// and the TCP network bridge.
module msg_fabric_tcp
  import msg_pkg::*;
#(
    parameter int PORTS = 16,
    parameter int SESSIONS = 32,
    parameter int RING_BITS = 14
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             tick,
    input  logic [47:0]      own,
    input  logic [31:0]      own_ip,
    input  logic [7:0]       own_station,
    input  logic [15:0]      tcp_port,
    input  logic [63:0]      secret,
    input  logic [1:0][63:0] job_key,
    input  logic             put,          // a rank: its port (16: on another station), and its
                                           // station
    input  logic [7:0]       put_rank,
    input  logic [4:0]       put_port,
    input  logic [7:0]       put_station,
    input  logic             station_put,  // see msg_tcp
    input  logic [7:0]       station,
    input  logic [1:0]       station_role,
    input  logic [31:0]      station_ip,
    input  logic [31:0]      states,
    // Kernels.
    input  logic [PORTS-1:0] k_valid,
    output logic [PORTS-1:0] k_ready,
    input  beat_t            k_beat[PORTS],
    output logic [PORTS-1:0] m_valid,
    input  logic [PORTS-1:0] m_ready,
    output beat_t            m_beat[PORTS],
    // Frames.
    input  logic             rx_valid,
    input  net_pkg::beat_t   rx,
    output logic             tx_valid,
    input  logic             tx_ready,
    output net_pkg::beat_t   tx,
    output logic             owed,
    output logic             failed,
    output logic [7:0]       failed_station,
    output logic [31:0]      repeated,
    output logic [15:0]      strange,
    output logic [15:0]      dropped,      // by the router
    output logic [15:0]      unsent        // for stations whose session has ended
);

  logic  n_valid, n_ready, t_valid, t_ready;
  beat_t to_router[PORTS+1], from_router[PORTS+1];

  for (genvar i = 0; i < PORTS; i++) begin : g_kernel
    assign to_router[i] = k_beat[i];
    assign m_beat[i]    = from_router[i];
  end

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
      .net_from(),
      .dropped
  );

  msg_tcp #(
      .SESSIONS (SESSIONS),
      .RING_BITS(RING_BITS)
  ) u_tcp (
      .clk,
      .rst,
      .tick,
      .own,
      .own_ip,
      .own_station,
      .tcp_port,
      .secret,
      .job_key,
      .put,
      .put_rank,
      .put_port,
      .put_station,
      .station_put,
      .station,
      .station_role,
      .station_ip,
      .states,
      .s_valid(t_valid),
      .s_ready(t_ready),
      .s_beat (from_router[PORTS]),
      .m_valid(n_valid),
      .m_ready(n_ready),
      .m_beat (to_router[PORTS]),
      .rx_valid,
      .rx,
      .tx_valid,
      .tx_ready,
      .tx,
      .owed,
      .failed,
      .failed_station,
      .repeated,
      .strange,
      .dropped(unsent)
  );

endmodule
