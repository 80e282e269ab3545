// A kernel's streams, beats of the router's side as plain ports.
module msg_axis_top
  import msg_pkg::*;
(
`include "msg_axis_ports.svh"
    output logic [11:0] in_tuser,
`include "msg_word_ports.svh"
);

  beat_t m_beat, s_beat;

  assign {m_last, m_data} = m_beat;
  assign s_beat           = {s_last, s_data};

  msg_axis u_axis (.*);

endmodule
