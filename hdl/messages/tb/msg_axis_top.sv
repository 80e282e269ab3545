// A kernel's streams, beats of the router's side as plain ports.
module msg_axis_top
  import msg_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic [7:0]  own,
    input  logic [8:0]  ranks,
    output logic [7:0]  fault,
    output logic        idle,
    input  logic        out_tvalid,
    output logic        out_tready,
    input  logic [63:0] out_tdata,
    input  logic [7:0]  out_tkeep,
    input  logic        out_tlast,
    input  logic [7:0]  out_tdest,
    input  logic [11:0] out_tuser,
    output logic        in_tvalid,
    input  logic        in_tready,
    output logic [63:0] in_tdata,
    output logic [7:0]  in_tkeep,
    output logic        in_tlast,
    output logic [7:0]  in_tid,
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
