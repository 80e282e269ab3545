// The board: a host on the network. Ethernet frames in and out; ARP, ICMP echo, TCP, HTTP and the
// functions in between. Everything runs on one clock.
//
// The Ethernet port is the stream side of a MAC: no preamble, no check sequence, no padding on the
// way out. `tick` comes once a millisecond of the network's time.
//
// Parameters: SESSIONS, TCP connections at once; the rings' bits, log2 of the bytes of each session's
// receive and transmit ring; MEMORY_LATENCY in cycles; BODY_BYTES, the longest body of a request,
// less than the receive ring by its head.
module board_shell
  import net_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    parameter  int BODY_BYTES = 1 << (RX_RING_BITS - 1),
    parameter  int MSS = 1460,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        tick,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic [15:0] listen_port,
    input  logic [63:0] secret,
    input  logic        rx_valid,
    input  logic [63:0] rx_data,
    input  logic [ 7:0] rx_keep,
    input  logic        rx_last,
    output logic        tx_valid,
    input  logic        tx_ready,
    output logic [63:0] tx_data,
    output logic [ 7:0] tx_keep,
    output logic        tx_last,
    output logic        busy      // a request is being worked on
);

  // ---- from the wire ----
  logic beat_valid, parsed, hold, settling, held_valid, engine_busy;
  beat_t held;
  beat_t beat;
  logic [10:0] beat_index;
  head_t head, parsed_head;
  logic [13:0] payload_start;
  frame_kind_t verdict;

  net_hold #(
      .FRAME((MSS + 54 + 7) / 8 + 1)
  ) u_hold (
      .clk,
      .rst,
      .hold,
      .s_valid(rx_valid),
      .s('{data: rx_data, keep: rx_keep, last: rx_last}),
      .m_valid(held_valid),
      .m(held)
  );

  net_parse u_parse (
      .clk,
      .rst,
      .own_mac,
      .own_ip,
      .rx_valid(held_valid),
      .rx(held),
      .beat_valid,
      .beat,
      .beat_index,
      .head,
      .payload_start,
      .done(parsed),
      .verdict,
      .verdict_head(parsed_head)
  );

  // ---- sessions ----
  logic [31:0] rcv_next[SESSIONS];
  logic [31:0] snd_una[SESSIONS];
  logic [31:0] snd_max[SESSIONS];
  logic [31:0] read_to[SESSIONS];
  logic [31:0] written_to[SESSIONS];
  logic [SESSIONS-1:0] rcv_ended, dead, shut, finish;
  logic open, close, arrived, woken, notify, release_valid;
  logic [S-1:0] at, arrived_at, woken_at, notify_at, release_at;
  logic [63:0] open_key;
  logic [31:0] open_next, open_una;

  logic rx_write, rx_read, tx_write, tx_read;
  logic [S+RX_RING_BITS-4:0] rx_write_address, rx_read_address;
  logic [S+TX_RING_BITS-4:0] tx_write_address, tx_read_address;
  logic [63:0] rx_write_data, rx_read_data, tx_write_data, tx_read_data;
  logic [7:0] rx_write_keep, tx_write_keep;

  typedef struct packed {
    head_t head;
    logic hit;
    logic [S-1:0] index;
    logic kept, gap, fin, exact, in_window, nearby;
  } desc_t;
  logic desc_in_valid, desc_in_ready, desc_valid, desc_ready;
  desc_t desc_in, desc;

  tcp_rx #(
      .SESSIONS (SESSIONS),
      .RING_BITS(RX_RING_BITS)
  ) u_tcp_rx (
      .clk,
      .rst,
      .beat_valid,
      .beat,
      .beat_index,
      .head,
      .payload_start,
      .done(parsed),
      .verdict,
      .verdict_head(parsed_head),
      .write(rx_write),
      .write_address(rx_write_address),
      .write_data(rx_write_data),
      .write_keep(rx_write_keep),
      .open,
      .close,
      .at,
      .open_key,
      .open_next,
      .snd_max,
      .read_to,
      .next(rcv_next),
      .ended(rcv_ended),
      .arrived,
      .arrived_at,
      .desc_valid(desc_in_valid),
      .desc_ready(desc_in_ready),
      .desc_head(desc_in.head),
      .desc_hit(desc_in.hit),
      .desc_index(desc_in.index),
      .desc_kept(desc_in.kept),
      .desc_gap(desc_in.gap),
      .desc_fin(desc_in.fin),
      .desc_exact(desc_in.exact),
      .desc_inside(desc_in.in_window),
      .desc_near(desc_in.nearby)
  );

  fifo #(
      .T(desc_t),
      .DEPTH(16)
  ) u_descs (
      .clk,
      .rst,
      .s_valid(desc_in_valid),
      .s_ready(desc_in_ready),
      .s_payload(desc_in),
      .m_valid(desc_valid),
      .m_ready(desc_ready),
      .m_payload(desc)
  );

  // An ACK from a stranger may open a session: the frames behind it wait until that is settled.
  logic opening;
  assign opening = desc_in_valid && !desc_in.hit && desc_in.head.flags[ACK] &&
      !desc_in.head.flags[SYN] && !desc_in.head.flags[RST];
  assign hold = opening || settling;

  always_ff @(posedge clk) begin
    if (rst) settling <= 1'b0;
    else if (opening) settling <= 1'b1;
    else if (!desc_valid && !engine_busy) settling <= 1'b0;
  end

  typedef struct packed {
    segment_t segment;
    logic [S-1:0] session;
  } order_t;
  logic order_in_valid, order_in_ready, order_valid, order_ready;
  order_t order_in, order;
  logic [31:0] count_opened, count_retransmitted, count_reset;
  logic [S:0] count_open;

  tcp_engine #(
      .SESSIONS(SESSIONS),
      .RX_RING_BITS(RX_RING_BITS),
      .MSS(MSS)
  ) u_tcp_engine (
      .clk,
      .rst,
      .tick,
      .secret,
      .listen_port,
      .desc_valid,
      .desc_ready,
      .desc_head(desc.head),
      .desc_hit(desc.hit),
      .desc_index(desc.index),
      .desc_kept(desc.kept),
      .desc_gap(desc.gap),
      .desc_fin(desc.fin),
      .desc_exact(desc.exact),
      .desc_inside(desc.in_window),
      .desc_near(desc.nearby),
      .open,
      .close,
      .at,
      .open_key,
      .open_next,
      .open_una,
      .snd_max,
      .rcv_next,
      .rcv_ended,
      .snd_una,
      .dead,
      .shut,
      .woken,
      .woken_at,
      .read_to,
      .written_to,
      .finish,
      .notify,
      .notify_at,
      .release_valid,
      .release_at,
      .seg_valid(order_in_valid),
      .seg_ready(order_in_ready),
      .seg(order_in.segment),
      .seg_session(order_in.session),
      .busy(engine_busy),
      .count_opened,
      .count_retransmitted,
      .count_reset,
      .count_open
  );

  fifo #(
      .T(order_t),
      .DEPTH(8)
  ) u_orders (
      .clk,
      .rst,
      .s_valid(order_in_valid),
      .s_ready(order_in_ready),
      .s_payload(order_in),
      .m_valid(order_valid),
      .m_ready(order_ready),
      .m_payload(order)
  );

  // ---- memory ----
  board_memory #(
      .ADDRESS_BITS(S + RX_RING_BITS - 3),
      .LATENCY(MEMORY_LATENCY)
  ) u_rx_memory (
      .clk,
      .write(rx_write),
      .write_address(rx_write_address),
      .write_data(rx_write_data),
      .write_keep(rx_write_keep),
      .read(rx_read),
      .read_address(rx_read_address),
      .read_data(rx_read_data)
  );

  board_memory #(
      .ADDRESS_BITS(S + TX_RING_BITS - 3),
      .LATENCY(MEMORY_LATENCY)
  ) u_tx_memory (
      .clk,
      .write(tx_write),
      .write_address(tx_write_address),
      .write_data(tx_write_data),
      .write_keep(tx_write_keep),
      .read(tx_read),
      .read_address(tx_read_address),
      .read_data(tx_read_data)
  );

  // ---- HTTP and kernels ----
  localparam int METRICS = 8;
  logic [31:0] metrics[METRICS];
  logic [31:0] count_requests, count_errors, count_busy, cycles;
  logic kernel_rst, kernel_start, kernel_done, k_valid, k_ready, k_last, r_valid, r_ready, r_last;
  logic [3:0] kernel_number;
  logic [127:0] kernel_params;
  logic [63:0] k_data, r_data;
  logic [7:0] k_keep, r_keep;

  assign metrics[0] = count_requests;
  assign metrics[1] = count_errors;
  assign metrics[2] = count_busy;
  assign metrics[3] = count_opened;
  assign metrics[4] = 32'(count_open);
  assign metrics[5] = count_retransmitted;
  assign metrics[6] = count_reset;
  assign metrics[7] = cycles;

  always_ff @(posedge clk) cycles <= rst ? '0 : cycles + 32'd1;

  http_engine #(
      .SESSIONS(SESSIONS),
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .BODY_BYTES(BODY_BYTES),
      .METRICS(METRICS)
  ) u_http (
      .clk,
      .rst,
      .open,
      .open_at(at),
      .open_next,
      .open_una,
      .arrived,
      .arrived_at,
      .woken,
      .woken_at,
      .rcv_next,
      .rcv_ended,
      .snd_una,
      .dead,
      .shut,
      .read_to,
      .written_to,
      .finish,
      .notify,
      .notify_at,
      .release_valid,
      .release_at,
      .rx_read,
      .rx_read_address,
      .rx_read_data,
      .tx_write,
      .tx_write_address,
      .tx_write_data,
      .tx_write_keep,
      .kernel_rst,
      .kernel_number,
      .kernel_start,
      .kernel_params,
      .kernel_done,
      .k_valid,
      .k_ready,
      .k_data,
      .k_keep,
      .k_last,
      .r_valid,
      .r_ready,
      .r_data,
      .r_keep,
      .r_last,
      .metrics,
      .count_requests,
      .count_errors,
      .count_busy,
      .busy
  );

  board_kernels u_kernels (
      .clk,
      .rst(kernel_rst),
      .number(kernel_number),
      .start(kernel_start),
      .params(kernel_params),
      .done(kernel_done),
      .s_valid(k_valid),
      .s_ready(k_ready),
      .s_data(k_data),
      .s_keep(k_keep),
      .s_last(k_last),
      .m_valid(r_valid),
      .m_ready(r_ready),
      .m_data(r_data),
      .m_keep(r_keep),
      .m_last(r_last)
  );

  // ---- to the wire ----
  logic [2:0] mux_valid, mux_ready;
  beat_t mux[3];
  beat_t tx;

  tcp_tx #(
      .SESSIONS(SESSIONS),
      .RING_BITS(TX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .MSS(MSS)
  ) u_tcp_tx (
      .clk,
      .rst,
      .own_mac,
      .own_ip,
      .s_valid(order_valid),
      .s_ready(order_ready),
      .s_segment(order.segment),
      .s_session(order.session),
      .read(tx_read),
      .read_address(tx_read_address),
      .read_data(tx_read_data),
      .m_valid(mux_valid[0]),
      .m_ready(mux_ready[0]),
      .m(mux[0])
  );

  net_icmp u_icmp (
      .clk,
      .rst,
      .own_mac,
      .own_ip,
      .beat_valid,
      .beat,
      .beat_index,
      .request(parsed && verdict == FRAME_ICMP),
      .mac(parsed_head.mac),
      .ip(parsed_head.ip),
      .m_valid(mux_valid[1]),
      .m_ready(mux_ready[1]),
      .m(mux[1])
  );

  net_arp u_arp (
      .clk,
      .rst,
      .own_mac,
      .own_ip,
      .request(parsed && verdict == FRAME_ARP),
      .mac(parsed_head.mac),
      .ip(parsed_head.ip),
      .m_valid(mux_valid[2]),
      .m_ready(mux_ready[2]),
      .m(mux[2])
  );

  net_mux #(
      .N(3)
  ) u_mux (
      .clk,
      .rst,
      .s_valid(mux_valid),
      .s_ready(mux_ready),
      .s(mux),
      .m_valid(tx_valid),
      .m_ready(tx_ready),
      .m(tx)
  );

  assign tx_data = tx.data;
  assign tx_keep = tx.keep;
  assign tx_last = tx.last;

endmodule
