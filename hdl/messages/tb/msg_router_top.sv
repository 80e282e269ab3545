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

  beat_t s_beat[17], m_beat[17];
  for (genvar i = 0; i < 17; i++) begin : g_port
    assign s_beat[i] = '{last: s_last[i], data: s_data[i]};
    assign m_last[i] = m_beat[i].last;
    assign m_data[i] = m_beat[i].data;
  end

  msg_router u_router (
      .clk,
      .rst,
      .put,
      .put_rank,
      .put_port(put_rank < 8'd32 ? {1'b0, put_rank[3:0]} : put_rank < 8'd48 ? 5'd16 : 5'd31),
      .s_valid,
      .s_ready,
      .s_beat,
      .m_valid,
      .m_ready,
      .m_beat,
      .net_from(),
      .dropped
  );

endmodule
