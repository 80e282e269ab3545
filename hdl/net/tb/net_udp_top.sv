// An echo: net_parse, net_udp_rx and net_udp_tx, for their bench.
module net_udp_top
  import net_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic [15:0] port,
    input  logic        rx_valid,
    input  beat_t       rx,
    output logic        m_valid,
    input  logic        m_ready,
    output beat_t       m
);

  logic beat_valid, done, valid, ready;
  beat_t beat, payload;
  logic [10:0] beat_index;
  logic [13:0] payload_start;
  frame_kind_t verdict;
  head_t head, verdict_head;
  datagram_t datagram;

  net_parse u_parse (.*);

  net_udp_rx u_rx (
      .clk,
      .rst,
      .port,
      .beat_valid,
      .beat,
      .beat_index,
      .good(done && verdict == FRAME_UDP),
      .head(verdict_head),
      .from(datagram),
      .m_valid(valid),
      .m_ready(ready),
      .m(payload)
  );

  net_udp_tx u_tx (
      .clk,
      .rst,
      .own_mac,
      .own_ip,
      .to(datagram),
      .s_valid(valid),
      .s_ready(ready),
      .s(payload),
      .m_valid,
      .m_ready,
      .m
  );
endmodule
