// The fabric of a board for messages, without its kernels, with TCP between stations: the router
// and the TCP network bridge.
module msg_fabric_tcp
  import msg_pkg::*;
#(
    parameter int PORTS = 16,
    parameter int SESSIONS = 32,
    parameter int RING_BITS = 14
) (
`include "msg_station_ports.svh"
`include "msg_fabric_ports.svh"
`include "msg_frame_ports.svh"
    output logic [15:0]      dropped,      // by the router
    output logic [15:0]      unsent        // for stations whose session has ended
);

  logic  n_valid, n_ready, t_valid, t_ready;
  beat_t n_beat, t_beat;

  msg_router #(
      .PORTS(PORTS)
  ) u_router (
      .put_port(put_port == 5'd16 ? 5'(PORTS) : put_port),
      .net_from(),
      .*
  );

  msg_tcp #(
      .SESSIONS (SESSIONS),
      .RING_BITS(RING_BITS)
  ) u_tcp (
      .s_valid(t_valid),
      .s_ready(t_ready),
      .s_beat (t_beat),
      .m_valid(n_valid),
      .m_ready(n_ready),
      .m_beat (n_beat),
      .dropped(unsent),
      .*
  );

`ifndef SYNTHESIS
  packets_in_stay : assert property (@(posedge clk) disable iff (rst)
      n_valid && !n_ready |=> n_valid && $stable(n_beat));
  packets_out_stay : assert property (@(posedge clk) disable iff (rst)
      t_valid && !t_ready |=> t_valid && $stable(t_beat));
`endif

endmodule
