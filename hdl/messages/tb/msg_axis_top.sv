// A kernel's streams, beats of the router's side as plain ports.
module msg_axis_top
  import msg_pkg::*;
(
`include "msg_axis_ports.svh"
    output logic [11:0] in_tuser,
    output logic        m_valid,
    input  logic        m_ready,
    output logic        m_last,
    output logic [63:0] m_data,
    input  logic        s_valid,
    output logic        s_ready,
    input  logic        s_last,
    input  logic [63:0] s_data
);

  beat_t m_beat, s_beat;

  assign {m_last, m_data} = m_beat;
  assign s_beat           = {s_last, s_data};

  msg_axis u_axis (.*);

endmodule
