// A network host up to TCP: Ethernet frames in and out; ARP, ICMP echo, IPv4, UDP and TCP in
// between. The application accesses sessions, each with a receive and a transmit ring of bytes in
// external memory; both sides notify each other of changes of the positions. A session is opened by
// a peer, at `listen_port`, or by the application: `connect_valid` and its operands are held until
// `connect_done`; if it succeeds, `open` in the previous cycle gives the session.
//
// The Ethernet port is the stream side of a MAC: no preamble, no check sequence, no padding on
// output. `tick` pulses once per millisecond of the network's time.
//
// Parameters: SESSIONS, TCP connections at once; the rings' bits, log2 of the bytes of each
// session's receive and transmit ring; STEADY, as in tcp_tx: otherwise windows are of the data that
// net_hold has place for, so that one session loses none of its frames to slow memory; MSS;
// IDLE_MS, as in tcp_engine; ISLANDS, as in tcp_rx; ACTIVE_OPEN and UDP, whether the application
// can open connections, and whether datagrams are supported; otherwise their ports are idle.
module net_stack
  import net_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  bit STEADY = 1,
    parameter  int MSS = 1460,
    parameter  int IDLE_MS = 60000,
    parameter  int ISLANDS = 4,
    parameter  bit ACTIVE_OPEN = 1,
    parameter  bit UDP = 1,
    localparam int S = $clog2(SESSIONS)
) (
`include "net_address_ports.svh"
`include "net_wire_ports.svh"
    // the application
    output opened_t                   opened,
    output received_t                 received,
`include "net_application_ports.svh"
`include "net_client_ports.svh"
    // the rings; counters
    output ring_write_t               rx_write,
    input  logic                      rx_write_ready,  // there is place for RX_WRITES_LATE words
    output ring_read_t                tx_read,
    input  logic                      tx_read_ready,   // permits a read in the next cycle
    input  ring_word_t                tx_word,
    output net_counts_t               counts
);

  localparam int FRAME = (MSS + 54 + 7) / 8 + 1;                     // beats of the longest frame
  localparam int HELD = 2 * FRAME > 1024 ? 1 << $clog2(2 * FRAME) : 1024;  // beats
  localparam int SCALE = RX_RING_BITS > 15 ? RX_RING_BITS - 15 : 0;  // shift of windows
  // One frame less than fits, for acknowledgments.
  localparam int HELD_BYTES = (HELD / FRAME - 1) * MSS;
  localparam int WINDOW = STEADY || HELD_BYTES > 1 << RX_RING_BITS ? 1 << RX_RING_BITS : HELD_BYTES;

  // ---- from the wire ----
  logic beat_valid, parsed, hold, settling, held_valid, engine_busy;
  beat_t held;
  beat_t beat;
  logic [10:0] beat_index;
  head_t head, parsed_head;
  logic [13:0] payload_start;
  frame_kind_t verdict;

  net_hold #(
      .DEPTH(HELD),
      .FRAME(FRAME)
  ) u_hold (
      .clk,
      .rst,
      .hold,
      .s_valid(rx_valid),
      .s(rx),
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
  logic [S-1:0] rcv_at;
  logic [S+RX_RING_BITS-4:0] rx_write_address;
  logic [S+TX_RING_BITS-4:0] tx_read_address;
  logic begun, begun_ended, sent_write, read_write, query, found_valid, found, key_hit, hit, change_valid, change_remove, changed, refused;
  logic [S-1:0] begun_at, sent_at, read_at, found_index, index, change_index;
  logic [31:0] begun_next, sent_to, read_to;
  logic [63:0] query_key, change_key;

  tcp_lookup #(
      .SESSIONS(SESSIONS),
      .KEY_BITS(ACTIVE_OPEN ? 64 : 48)
  ) u_lookup (
      .clk,
      .rst,
      .secret,
      .query,
      .query_key,
      .found_valid,
      .found,
      .found_index,
      .hit(key_hit),
      .index,
      .change_valid,
      .change_remove,
      .change_key,
      .change_index,
      .changed,
      .refused
  );

  assign received.session = session_t'(rcv_at);
  assign rx_write.address = 32'(rx_write_address);
  assign tx_read.address = 32'(tx_read_address);
  assign tx_read.note = '0;

  // If only peers open connections, all sessions have the same port, which keys need not contain:
  // the port of a segment is compared in parallel with the lookup.
  logic to_listener, listener_hit;
  always_ff @(posedge clk) begin
    to_listener <= query_key[15:0] == listen_port;
    if (found_valid) listener_hit <= to_listener;
  end
  assign hit = key_hit && (ACTIVE_OPEN || listener_hit);

  typedef struct packed {
    head_t head;
    logic hit;
    logic [S-1:0] index;
    logic kept, gap, fin, exact, in_window, nearby;
  } desc_t;
  logic desc_in_valid, desc_in_ready, desc_valid, desc_ready, stranger;
  desc_t desc_in, desc;

  tcp_rx #(
      .SESSIONS (SESSIONS),
      .RING_BITS(RX_RING_BITS),
      .ISLANDS  (ISLANDS)
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
      .write(rx_write.valid),
      .write_address(rx_write_address),
      .write_data(rx_write.data),
      .write_keep(rx_write.keep),
      .query,
      .query_key,
      .found_index,
      .hit,
      .index,
      .open(begun),
      .open_ended(begun_ended),
      .at(begun_at),
      .open_next(begun_next),
      .sent_write,
      .sent_at,
      .sent_to,
      .read_write,
      .read_at,
      .read_to,
      .rcv_notify(received.valid),
      .rcv_notify_at(rcv_at),
      .rcv_notify_next(received.next),
      .rcv_notify_ended(received.ended),
      .arrived(received.arrived),
      .stranger,
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
      .DEPTH(16),
      .BLOCK(1)
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

  // An ACK without a session may open one: later frames wait until this is decided, which is
  // when the engine has processed its descriptor, five cycles later at the earliest.
  logic [4:0] strangers;
  assign hold = stranger || settling || !rx_write_ready;

  always_ff @(posedge clk) begin
    strangers <= {strangers[3:0], stranger};
    if (rst) begin
      settling  <= 1'b0;
      strangers <= '0;
    end else if (stranger) settling <= 1'b1;
    else if (strangers == '0 && !desc_valid && !engine_busy) settling <= 1'b0;
  end

  typedef struct packed {
    segment_t segment;
    logic [S-1:0] session;
  } order_t;
  logic order_in_valid, order_in_ready, order_valid, order_ready;
  order_t order_in, order;
  logic [3:0] orders_waiting;

  always_ff @(posedge clk) begin
    if (rst) orders_waiting <= '0;
    else orders_waiting <= orders_waiting + 4'(order_in_valid) - 4'(order_valid && order_ready);
  end

  // ---- connections opened by the board: the address first ----
  logic resolved, ask_valid, ask_ready, engine_done;
  logic [47:0] resolved_mac;
  logic [31:0] ask_ip;
  connect_result_t engine_result;

  if (ACTIVE_OPEN) begin : g_resolve
    logic resolve_valid, resolve_done, resolve_ok;
    assign resolve_valid = connect_valid && !resolved && !connect_done;
    assign connect_done = engine_done || (resolve_done && !resolve_ok);
    assign connect_result = engine_done ? engine_result : CONNECT_UNREACHABLE;

    always_ff @(posedge clk) begin
      if (rst || engine_done) resolved <= 1'b0;
      else if (resolve_done && resolve_ok) resolved <= 1'b1;
    end

    net_resolve u_resolve (
        .clk,
        .rst,
        .tick,
        .own_ip,
        .netmask,
        .gateway,
        .valid(resolve_valid),
        .ip(connect_ip),
        .done(resolve_done),
        .ok(resolve_ok),
        .mac(resolved_mac),
        .forget(engine_done && engine_result == CONNECT_TIMED_OUT),
        .ask_valid,
        .ask_ready,
        .ask_ip,
        .reply(parsed && verdict == FRAME_ARP_REPLY),
        .reply_mac(parsed_head.mac),
        .reply_ip(parsed_head.ip)
    );
  end else begin : g_no_resolve
    logic unused_ports;
    assign unused_ports = &{1'b0, connect_valid, netmask, gateway, ask_ready, engine_done, engine_result};
    assign connect_done = 1'b0;
    assign connect_result = CONNECT_UNREACHABLE;
    assign resolved = 1'b0;
    assign resolved_mac = '0;
    assign ask_valid = 1'b0;
    assign ask_ip = '0;
  end

  tcp_engine #(
      .SESSIONS(SESSIONS),
      .RX_RING_BITS(RX_RING_BITS),
      .WINDOW(WINDOW),
      .TX_RING_BITS(TX_RING_BITS),
      .MSS(MSS),
      .SCALE(SCALE),
      .IDLE_MS(IDLE_MS),
      .ACTIVE_OPEN(ACTIVE_OPEN)
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
      .reserve,
      .begun,
      .begun_ended,
      .begun_at,
      .begun_next,
      .sent_write,
      .sent_at,
      .sent_to,
      .read_write,
      .read_at,
      .read_to,
      .received,
      .change_valid,
      .change_remove,
      .change_key,
      .change_index,
      .changed,
      .refused,
      .opened,
      .change,
      .progress,
      .released,
      .working,
      .mid_request,
      .yields,
      .connect_valid(connect_valid && resolved),
      .connect_mac(resolved_mac),
      .connect_ip,
      .connect_port,
      .connect_done(engine_done),
      .connect_result(engine_result),
      .seg_valid(order_in_valid),
      .seg_ready(order_in_ready),
      .seg_free(orders_waiting < 4'd4),
      .seg(order_in.segment),
      .seg_session(order_in.session),
      .busy(engine_busy),
      .counts
  );

  fifo #(
      .T(order_t),
      .DEPTH(8),
      .BLOCK(1)
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

  // ---- to the wire ----
  localparam int SENDERS = UDP ? 3 : 2;  // TCP; ICMP, with ARP; UDP
  logic [SENDERS-1:0] mux_valid, mux_ready;
  beat_t mux[SENDERS], arp;
  logic arp_valid, arp_go, arp_ready;

  tcp_tx #(
      .SESSIONS(SESSIONS),
      .RING_BITS(TX_RING_BITS),
      .STEADY(STEADY),
      .MSS(MSS),
      .SCALE(SCALE)
  ) u_tcp_tx (
      .clk,
      .rst,
      .own_mac,
      .own_ip,
      .s_valid(order_valid),
      .s_ready(order_ready),
      .s_segment(order.segment),
      .s_session(order.session),
      .read_ready(tx_read_ready),
      .read(tx_read.valid),
      .read_address(tx_read_address),
      .word_valid(tx_word.valid),
      .word_data(tx_word.data),
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
      .arp_valid,
      .arp_go,
      .arp_ready,
      .arp,
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
      .ask_valid,
      .ask_ready,
      .ask_ip,
      .m_valid(arp_valid),
      .m_go(arp_go),
      .m_ready(arp_ready),
      .m(arp)
  );

  if (UDP) begin : g_udp
    net_udp_rx #(
        .BYTES(MSS + 12)
    ) u_udp_rx (
        .clk,
        .rst,
        .port(udp_port),
        .beat_valid,
        .beat,
        .beat_index,
        .good(parsed && verdict == FRAME_UDP),
        .head(parsed_head),
        .from(udp_from),
        .m_valid(udp_rx_valid),
        .m_ready(udp_rx_ready),
        .m(udp_rx)
    );

    net_udp_tx #(
        .BYTES(MSS + 12)
    ) u_udp_tx (
        .clk,
        .rst,
        .own_mac,
        .own_ip,
        .to(udp_to),
        .s_valid(udp_tx_valid),
        .s_ready(udp_tx_ready),
        .s(udp_tx),
        .m_valid(mux_valid[2]),
        .m_ready(mux_ready[2]),
        .m(mux[2])
    );
  end else begin : g_no_udp
    logic unused_ports;
    assign unused_ports = &{1'b0, udp_port, udp_rx_ready, udp_to, udp_tx_valid, udp_tx};
    assign udp_from = '0;
    assign udp_rx_valid = 1'b0;
    assign udp_rx = '0;
    assign udp_tx_ready = 1'b0;
  end

  net_mux #(
      .N(SENDERS)
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

`ifndef SYNTHESIS
  orders_are_bounded : assert property (@(posedge clk) disable iff (rst) orders_waiting <= 4'd8);
  connects_stay : assert property (@(posedge clk) disable iff (rst)
      connect_valid && !connect_done && ACTIVE_OPEN |=>
      connect_valid && $stable({connect_ip, connect_port}));
  // Frames wait until it is decided whether an ACK opens a session.
  strangers_hold_frames : assert property (@(posedge clk) disable iff (rst) stranger |=> hold);
  beats_are_full : assert property (@(posedge clk) disable iff (rst)
      tx_valid && !tx.last |-> tx.keep == '1);
  opened_sessions_count : assert property (@(posedge clk) disable iff (rst)
      opened.valid |-> counts.open != '0);
`endif

endmodule
