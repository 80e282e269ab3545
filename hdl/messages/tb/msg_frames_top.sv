// msg_frames, signal by signal, with few beats.
module msg_frames_top (
    input  logic        clk,
    input  logic        rst,
    input  logic        rx_valid,
    input  logic [63:0] rx_data,
    input  logic [ 7:0] rx_keep,
    input  logic        rx_last,
    output logic        m_valid,
    input  logic        m_ready,
    output logic        m_last,
    output logic [63:0] m_data,
    output logic [15:0] dropped,
    output logic        pause
);

  msg_pkg::beat_t m_beat;
  assign {m_last, m_data} = m_beat;

  msg_frames #(
      .DEPTH(512)
  ) u_frames (
      .rx('{data: rx_data, keep: rx_keep, last: rx_last}),
      .*
  );

endmodule
