// msg_router for its bench: kernel k has ranks k and 16 + k; ranks 32 to 47 are on other boards.
module msg_router_top
  import msg_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        put,
    input  logic [7:0]  put_rank,
    input  logic [16:0] s_valid,
    output logic [16:0] s_ready,
    input  logic [16:0] s_last,
    input  logic [63:0] s_data[17],
    output logic [16:0] m_valid,
    input  logic [16:0] m_ready,
    output logic [16:0] m_last,
    output logic [63:0] m_data[17],
    output logic [15:0] dropped
);

  beat_t k_beat[16], m_beat[16], n_beat, t_beat;
  for (genvar i = 0; i < 16; i++) begin : g_port
    assign k_beat[i] = '{last: s_last[i], data: s_data[i]};
    assign m_last[i] = m_beat[i].last;
    assign m_data[i] = m_beat[i].data;
  end
  assign n_beat     = '{last: s_last[16], data: s_data[16]};
  assign m_last[16] = t_beat.last;
  assign m_data[16] = t_beat.data;

  msg_router u_router (
      .put_port(put_rank < 8'd32 ? {1'b0, put_rank[3:0]} : put_rank < 8'd48 ? 5'd16 : 5'd31),
      .k_valid (s_valid[15:0]),
      .k_ready (s_ready[15:0]),
      .m_valid (m_valid[15:0]),
      .m_ready (m_ready[15:0]),
      .n_valid (s_valid[16]),
      .n_ready (s_ready[16]),
      .t_valid (m_valid[16]),
      .t_ready (m_ready[16]),
      .net_from(),
      .*
  );

endmodule
