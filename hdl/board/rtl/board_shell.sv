// The board: a network host. Ethernet frames in and out; ARP, ICMP echo, TCP, HTTP and the
// functions in between. Everything runs on one clock.
//
// The Ethernet port is the stream side of a MAC: no preamble, no check sequence, no padding on
// output. `tick` pulses once per millisecond of the network's time. The content of a region is not
// part of the shell: a kernel's ports (docs/kernels.md) are outside, and `swap` signals that the
// configuration port has placed another kernel there.
//
// If there is a STORE, a function whose image is REMOTE (functions_pkg) has it fetched from the
// store when it is called.
//
// Parameters: SESSIONS, concurrent TCP connections; REGIONS, at least two; the rings' bits, log2 of
// the bytes of each session's receive and transmit ring; MEMORY_LATENCY of the rings in cycles;
// BODY_BYTES, the longest body of a request, smaller than the receive ring minus its head; SHELL,
// the id for images; IMAGE_BYTES, the longest image's body; STORE, whether images can be fetched,
// which needs connections opened by the board; STORE_SLOTS and STORE_SLOT_BITS, of those images
// (image_store); UDP, whether there are datagrams; ISLANDS, segments after gaps that a session
// keeps (tcp_rx); QUEUE, calls that can wait for a region, beyond which they wait in their
// sessions; HOST_CALLS, whether the host can also call functions; SHORTEST, whether the scheduler
// has that policy (fn_scheduler).
module board_shell
  import net_pkg::*;
  import fn_pkg::*;
  import functions_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int REGIONS = 4,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    parameter  int BODY_BYTES = 1 << (RX_RING_BITS - 1),
    parameter  int MSS = 1460,
    parameter  logic [31:0] SHELL = 32'h1,
    parameter  int IMAGE_BYTES = 1 << 26,
    parameter  bit STORE = 1,
    parameter  int STORE_SLOTS = 8,
    parameter  int STORE_SLOT_BITS = 21,
    parameter  bit UDP = 1,
    parameter  int ISLANDS = 4,
    parameter  int QUEUE = 16,
    parameter  bit HOST_CALLS = 1,
    parameter  bit SHORTEST = 1,
    localparam int S = $clog2(SESSIONS),
    localparam int R = $clog2(REGIONS),
    localparam int RxP = net_pkg::position_bits(RX_RING_BITS),
    localparam int TxP = net_pkg::position_bits(TX_RING_BITS)
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        tick,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic [15:0] listen_port,
    input  logic [63:0] secret,
    input  logic [8*http_pkg::KEY_BYTES-1:0] api_key,  // required in requests, its first character
                                                       // in bits 7:0; zeros: none
    input  logic        rx_valid,
    input  logic [63:0] rx_data,
    input  logic [ 7:0] rx_keep,
    input  logic        rx_last,
    output logic        tx_valid,
    input  logic        tx_ready,
    output logic [63:0] tx_data,
    output logic [ 7:0] tx_keep,
    output logic        tx_last,
    output logic        busy,     // a request is being processed
    // The store of images, 0: none; and the network for it.
    input  logic [31:0] store_ip,
    input  logic [15:0] store_port,
    input  logic [511:0] store_path,  // its first character in bits 7:0, padded with zeros
    input  logic [31:0] store_base,   // in board memory: STORE_SLOTS slots, a multiple of a slot
    input  logic [31:0] netmask,
    input  logic [31:0] gateway,      // 0: none
    input  logic [15:0] udp_echo,     // a UDP port that echoes datagrams; 0: none
    // The host: registers, and its memory (host_port).
    input  logic        host_write,
    input  logic [ 5:0] host_address,
    input  logic [31:0] host_data,
    output logic [31:0] host_read_data,
    output logic        host_ended,
    output logic        dma_read_valid,
    input  logic        dma_read_ready,
    output logic [63:0] dma_read_address,
    output logic [ 5:0] dma_read_beats,
    input  logic        dma_data_valid,
    input  logic [63:0] dma_data,
    input  logic        dma_data_error,
    output logic        dma_write_valid,
    input  logic        dma_write_ready,
    output logic [63:0] dma_write_address,
    output logic [63:0] dma_write_data,
    output logic [ 7:0] dma_write_keep,
    // Board memory with the images: AXI4 reads (fn_reconfig).
    output logic        arvalid,
    input  logic        arready,
    output logic [31:0] araddr,
    output logic [ 7:0] arlen,
    output logic [ 2:0] arsize,
    output logic [ 1:0] arburst,
    input  logic        rvalid,
    output logic        rready,
    input  logic [63:0] rdata,
    input  logic [ 1:0] rresp,
    input  logic        rlast,
    // AXI4 writes: fetched images (image_store), and those of the host.
    output logic        awvalid,
    input  logic        awready,
    output logic [31:0] awaddr,
    output logic [ 7:0] awlen,
    output logic [ 2:0] awsize,
    output logic [ 1:0] awburst,
    output logic        wvalid,
    input  logic        wready,
    output logic [63:0] wdata,
    output logic [ 7:0] wstrb,
    output logic        wlast,
    input  logic        bvalid,
    output logic        bready,
    input  logic [ 1:0] bresp,
    // Configuration port.
    output logic         icap_valid,
    input  logic         icap_ready,
    output logic [31:0]  icap_data,
    output logic [R-1:0] icap_region,
    // The content of the regions. From the cycle after `swap` on it is another kernel, in reset.
    output logic         swap,
    output logic [R-1:0] swap_region,
    output logic [31:0]  swap_kernel,
    output logic [REGIONS-1:0] decouple,
    output logic [REGIONS-1:0] k_rst,
    output logic [REGIONS-1:0] k_start,
    output logic [127:0]       k_params  [REGIONS],
    input  logic [REGIONS-1:0] k_done,
    output logic [REGIONS-1:0] k_s_valid,
    input  logic [REGIONS-1:0] k_s_ready,
    output logic [63:0]        k_s_data  [REGIONS],
    output logic [ 7:0]        k_s_keep  [REGIONS],
    output logic [REGIONS-1:0] k_s_last,
    input  logic [REGIONS-1:0] k_m_valid,
    output logic [REGIONS-1:0] k_m_ready,
    input  logic [63:0]        k_m_data  [REGIONS],
    input  logic [ 7:0]        k_m_keep  [REGIONS],
    input  logic [REGIONS-1:0] k_m_last,
    // Events of calls, for measurements.
    output logic         call_requested,
    output logic         call_granted,
    output logic         call_ended
);

  // ---- sessions ----
  logic [31:0] rcv_next, snd_una;
  logic [SESSIONS-1:0] dead, shut, working, mid_request;
  logic open, arrived, woken, release_valid, look_ended;
  logic [S-1:0] open_at, arrived_at, woken_at, release_at, rcv_of, una_of;
  logic [31:0] open_next, open_una;
  logic http_open, http_notify, http_release, http_finish, store_say, store_finish, store_release, store_working, store_rx_wants, store_rx_read, store_tx_write;
  logic http_rx_next, http_rx_read, http_tx_write;
  logic [S-1:0] http_at, http_release_at, store_session;
  logic [RxP-1:0] http_read_to;
  logic [TxP-1:0] http_written_to;
  logic [31:0] store_read_to, store_written_to;
  logic [S+RX_RING_BITS-4:0] http_rx_address, store_rx_address;
  logic [S+TX_RING_BITS-4:0] http_tx_address, store_tx_address;
  logic [63:0] http_tx_data, store_tx_data;
  logic [7:0] http_tx_keep, store_tx_keep;
  connect_result_t connect_result;
  // The echo: a datagram is returned to its sender.
  datagram_t datagram;
  logic udp_valid, udp_ready;
  beat_t udp_beat;
  logic connect_valid, connect_done, open_active, rcv_notify, rcv_notify_ended, rcv_arrived, notify, notify_dead, notify_shut, notify_wake, app_valid, app_finish;
  logic [S-1:0] rcv_at, notify_at, app_at;
  logic [31:0] rcv_notify_next, notify_una, app_read_to, app_written_to;

  logic rx_write, rx_read, tx_write, tx_read;
  logic [S+RX_RING_BITS-4:0] rx_write_address, rx_read_address;
  logic [S+TX_RING_BITS-4:0] tx_write_address, tx_read_address;
  logic [63:0] rx_write_data, rx_read_data, tx_write_data, tx_read_data;
  logic [7:0] rx_write_keep, tx_write_keep;

  logic [31:0] count_opened, count_retransmitted, count_reset;
  logic [S:0] count_open;
  beat_t tx;

  net_stack #(
      .SESSIONS(SESSIONS),
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .MSS(MSS),
      .ISLANDS(ISLANDS),
      .ACTIVE_OPEN(STORE),
      .UDP(UDP)
  ) u_net (
      .clk,
      .rst,
      .tick,
      .own_mac,
      .own_ip,
      .listen_port,
      .secret,
      .rx_valid,
      .rx('{data: rx_data, keep: rx_keep, last: rx_last}),
      .tx_valid,
      .tx_ready,
      .tx,
      .netmask,
      .gateway,
      .reserve(STORE && store_ip != '0),
      .udp_port(udp_echo),
      .udp_from(datagram),
      .udp_rx_valid(udp_valid),
      .udp_rx_ready(udp_ready),
      .udp_rx(udp_beat),
      .udp_to(datagram),
      .udp_tx_valid(udp_valid),
      .udp_tx_ready(udp_ready),
      .udp_tx(udp_beat),
      .open,
      .open_active,
      .open_at,
      .open_next,
      .open_una,
      .rcv_notify,
      .rcv_at,
      .rcv_next(rcv_notify_next),
      .rcv_ended(rcv_notify_ended),
      .arrived(rcv_arrived),
      .notify,
      .notify_at,
      .notify_una,
      .notify_dead,
      .notify_shut,
      .notify_wake,
      .app_valid,
      .app_at,
      .app_read_to,
      .app_written_to,
      .app_finish,
      .release_valid,
      .release_at,
      .working(working | (SESSIONS'(store_working) << store_session)),
      .mid_request,
      .connect_valid,
      .connect_ip(store_ip),
      .connect_port(store_port),
      .connect_done,
      .connect_result,
      .rx_write,
      .rx_write_address,
      .rx_write_data,
      .rx_write_keep,
      .tx_read,
      .tx_read_address,
      .tx_read_data,
      .count_opened,
      .count_retransmitted,
      .count_reset,
      .count_open
  );

  net_numbers #(
      .SESSIONS(SESSIONS)
  ) u_numbers (
      .clk,
      .rst,
      .rcv_notify,
      .rcv_at,
      .rcv_notify_next,
      .rcv_notify_ended,
      .rcv_arrived,
      .open,
      .open_at,
      .open_una,
      .notify,
      .notify_at,
      .notify_una,
      .notify_dead,
      .notify_shut,
      .notify_wake,
      .rcv_of,
      .rcv_next,
      .rcv_ended(look_ended),
      .una_of,
      .snd_una,
      .arrived,
      .arrived_at,
      .dead,
      .shut,
      .woken,
      .woken_at,
      .release_valid(http_release),
      .release_at(http_release_at)
  );

  // Two clients of the stack: HTTP, which does not wait, and the store, which does.
  assign http_open = open && !open_active;
  assign app_valid = http_notify || store_say;
  assign app_at = http_notify ? http_at : store_session;
  assign app_read_to = http_notify ? 32'(http_read_to) : store_read_to;
  assign app_written_to = http_notify ? 32'(http_written_to) : store_written_to;
  assign app_finish = http_notify ? http_finish : store_finish;
  assign release_valid = http_release || store_release;
  assign release_at = http_release ? http_release_at : store_session;
  assign rx_read = http_rx_read || store_rx_read;
  assign rx_read_address = http_rx_read ? http_rx_address : store_rx_address;
  assign tx_write = http_tx_write || store_tx_write;
  assign tx_write_address = http_tx_write ? http_tx_address : store_tx_address;
  assign tx_write_data = http_tx_write ? http_tx_data : store_tx_data;
  assign tx_write_keep = http_tx_write ? http_tx_keep : store_tx_keep;

  assign tx_data = tx.data;
  assign tx_keep = tx.keep;
  assign tx_last = tx.last;

  // ---- memory ----
  // Data from the network cannot wait; the assembly of chunked bodies can.
  typedef struct packed {
    logic [S+RX_RING_BITS-4:0] address;
    logic [63:0] data;
    logic [7:0] keep;
  } fill_t;
  logic fill_in_valid, fill_in_ready, fill_valid;
  fill_t fill_in, fill;

  fifo #(
      .T(fill_t),
      .DEPTH(4),
      .SPARE(2)
  ) u_fill (
      .clk,
      .rst,
      .s_valid(fill_in_valid),
      .s_ready(fill_in_ready),
      .s_payload(fill_in),
      .m_valid(fill_valid),
      .m_ready(!rx_write),
      .m_payload(fill)
  );

  board_memory #(
      .ADDRESS_BITS(S + RX_RING_BITS - 3),
      .LATENCY(MEMORY_LATENCY)
  ) u_rx_memory (
      .clk,
      .write(rx_write || fill_valid),
      .write_address(rx_write ? rx_write_address : fill.address),
      .write_data(rx_write ? rx_write_data : fill.data),
      .write_keep(rx_write ? rx_write_keep : fill.keep),
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

  // ---- the host as a requester ----
  // An additional requester of regions, with its own tag. Its requests have priority,
  // because it has one call at a time.
  policy_t policy;
  logic [7:0] patience;
  logic [31:0] load_cost;
  logic change_valid, change_ready, change_remove, changed_valid, changed;
  name_t change_name;
  entry_t change_entry;
  logic forget, host_asks, host_finish_ready, http_busy, host_busy;
  logic [NUMBER_BITS:0] forget_function, host_function;
  logic [31:0] host_cost, host_timeout, host_image;
  logic [127:0] host_params;
  logic [REGIONS-1:0] host_on, http_b_valid, http_b_last, http_a_ready, http_next;
  logic [S-1:0] http_next_tag[REGIONS];
  logic [63:0] http_b_data[REGIONS], host_b_data, host_a_data;
  logic [7:0] http_b_keep[REGIONS], host_b_keep, host_a_keep;
  logic host_b_valid, host_b_last, host_a_ready;

  // ---- functions ----
  logic find_valid, find_ready, found_valid, found, listing, slot_word, slot_used, table_ready;
  name_t find_name;
  logic [NUMBER_BITS-1:0] found_function, entry_of, slot_of, changed_function;
  entry_t entry, unused_found_entry;
  logic [63:0] slot_name;

  assign change_ready = table_ready && !listing;

  fn_table #(
      .ENTRIES   (FUNCTIONS),
      .NAME_BYTES(16),
      .ENTRY_BITS($bits(entry_t))
  ) u_table (
      .clk,
      .rst,
      .find_valid,
      .find_ready,
      .find_name,
      .found_valid,
      .found,
      .found_function,
      .found_entry (unused_found_entry),
      .change_valid(change_valid && !listing),
      .change_ready(table_ready),
      .change_remove,
      .change_name,
      .change_entry,
      .changed_valid,
      .changed,
      .changed_function,
      .entry_of,
      .entry_there (entry),
      .slot_of,
      .slot_word,
      .slot_used,
      .slot_name
  );

  logic e_request_valid, e_request_ready, e_finish_valid, e_finish_ready, finish_refused;
  logic [S-1:0] e_request_tag;
  logic [NUMBER_BITS-1:0] e_request_function;
  logic [31:0] e_request_cost, e_request_timeout, e_request_image, unused_fetches, unused_fetch_failures;
  logic [127:0] e_request_params;
  fetch_result_t finish_fetch;
  logic request_valid, request_ready, grant, finish_valid, finish_ready, finish_killed, finish_loaded;
  logic [S-1:0] request_tag, finish_tag;
  logic asked_ready, ended_valid, ended_ready;
  localparam int T = HOST_CALLS ? S + 1 : S;  // of a call's tag: its session, the upper bit is the
                                              // host's
  logic [T-1:0] grant_tag, ended_tag;
  logic grant_to_host, ended_of_host;
  logic [REGIONS-1:0] next_valid;
  logic [T-1:0] next_tag[REGIONS];
  logic [R-1:0] grant_region, finish_region;
  logic [NUMBER_BITS-1:0] request_function;
  logic [31:0] request_cost, request_timeout, request_image, finish_cycles, region_timeout;
  logic [127:0] request_params, region_params;
  load_result_t finish_load;
  logic [REGIONS-1:0] region_start, region_idle, region_done, region_failed;
  logic [31:0] region_cycles[REGIONS];
  logic [31:0] region_loads[REGIONS];
  logic [63:0] region_busy[REGIONS];
  logic [31:0] unused_calls, unused_failures, unused_loads;
  logic [47:0] unused_cycles;

  // Board memory is written by the host's copies and by fetched images.
  localparam int WRITERS = STORE ? 2 : 1;
  logic [WRITERS-1:0] w_awvalid, w_awready, w_wvalid, w_wready, w_wlast, w_bvalid, w_bready;
  logic [31:0] w_awaddr[WRITERS];
  logic [63:0] w_wdata[WRITERS];
  logic [7:0] w_awlen[WRITERS], w_wstrb[WRITERS];

  axi_writers #(
      .N(WRITERS)
  ) u_writers (
      .clk,
      .rst,
      .s_awvalid(w_awvalid),
      .s_awready(w_awready),
      .s_awaddr (w_awaddr),
      .s_awlen  (w_awlen),
      .s_wvalid (w_wvalid),
      .s_wready (w_wready),
      .s_wdata  (w_wdata),
      .s_wstrb  (w_wstrb),
      .s_wlast  (w_wlast),
      .s_bvalid (w_bvalid),
      .s_bready (w_bready),
      .awvalid,
      .awready,
      .awaddr,
      .awlen,
      .awsize,
      .awburst,
      .wvalid,
      .wready,
      .wdata,
      .wstrb,
      .wlast,
      .bvalid,
      .bready
  );

  if (STORE) begin : g_store
    image_store #(
        .SESSIONS      (SESSIONS),
        .RX_RING_BITS  (RX_RING_BITS),
        .TX_RING_BITS  (TX_RING_BITS),
        .MEMORY_LATENCY(MEMORY_LATENCY),
        .SLOTS         (STORE_SLOTS),
        .SLOT_BITS     (STORE_SLOT_BITS),
        .PATH_BYTES    (64)
    ) u_store (
        .clk,
        .rst,
        .tick,
        .server_ip      (store_ip),
        .server_port    (store_port),
        .path           (store_path),
        .base           (store_base),
        .change_taken   (change_valid && change_ready),
        .change_name,
        .changed        (changed_valid && changed),
        .changed_function,
        .request_valid,
        .request_ready,
        .request_tag,
        .request_function,
        .request_cost,
        .request_timeout,
        .request_image,
        .request_params,
        .finish_valid,
        .finish_ready,
        .finish_tag,
        .finish_refused,
        .finish_fetch,
        .e_request_valid,
        .e_request_ready,
        .e_request_tag,
        .e_request_function,
        .e_request_cost,
        .e_request_timeout,
        .e_request_image,
        .e_request_params,
        .e_finish_valid,
        .e_finish_ready,
        .e_finish_tag    (ended_tag[S-1:0]),
        .e_finish_refused(finish_load != LoadOk),
        .awvalid        (w_awvalid[1]),
        .awready        (w_awready[1]),
        .awaddr         (w_awaddr[1]),
        .awlen          (w_awlen[1]),
        .wvalid         (w_wvalid[1]),
        .wready         (w_wready[1]),
        .wdata          (w_wdata[1]),
        .wstrb          (w_wstrb[1]),
        .wlast          (w_wlast[1]),
        .bvalid         (w_bvalid[1]),
        .bready         (w_bready[1]),
        .bresp,
        .connect_valid,
        .connect_done,
        .connect_result,
        .open           (open && open_active),
        .open_at,
        .open_next,
        .open_una,
        .rcv_notify,
        .rcv_at,
        .rcv_next       (rcv_notify_next),
        .rcv_ended      (rcv_notify_ended),
        .notify_dead      (notify && notify_dead),
        .notify_at,
        .app_valid      (store_say),
        .app_ready      (!http_notify),
        .session        (store_session),
        .working        (store_working),
        .app_read_to    (store_read_to),
        .app_written_to (store_written_to),
        .app_finish     (store_finish),
        .release_valid  (store_release),
        .release_ready  (!http_release),
        .rx_wants       (store_rx_wants),
        .rx_may         (!http_rx_next),
        .rx_read        (store_rx_read),
        .rx_read_address(store_rx_address),
        .rx_read_data,
        .tx_write       (store_tx_write),
        .tx_may         (!http_tx_write),
        .tx_write_address(store_tx_address),
        .tx_write_data  (store_tx_data),
        .tx_write_keep  (store_tx_keep),
        .count_fetches  (unused_fetches),
        .count_failures (unused_fetch_failures)
    );
  end else begin : g_no_store
    logic unused_ports;
    assign unused_ports = &{1'b0, store_ip, store_port, store_path, store_base, connect_done, connect_result};
    assign connect_valid = 1'b0;
    assign {store_say, store_finish, store_release, store_working, store_rx_wants, store_rx_read, store_tx_write} = '0;
    assign {store_session, store_read_to, store_written_to, store_rx_address, store_tx_address, store_tx_data, store_tx_keep} = '0;
    assign request_ready = e_request_ready;
    assign {e_request_valid, e_request_tag, e_request_function} = {request_valid, request_tag, request_function};
    assign {e_request_cost, e_request_timeout, e_request_image} = {request_cost, request_timeout, request_image};
    assign e_request_params = request_params;
    assign e_finish_ready = finish_ready;
    assign {finish_valid, finish_tag, finish_refused} = {e_finish_valid, ended_tag[S-1:0], finish_load != LoadOk};
    assign finish_fetch = FetchOk;
    assign {unused_fetches, unused_fetch_failures} = '0;
  end

  fn_engine #(
      .REGIONS  (REGIONS),
      .QUEUE    (QUEUE),
      .FUNCTIONS(2 * FUNCTIONS),
      .TAG_BITS (T),
      .SHELL    (SHELL),
      .MAX_BYTES(IMAGE_BYTES),
      .SHORTEST (SHORTEST)
  ) u_functions (
      .clk,
      .rst,
      .policy,
      .patience,
      .load_cost,
      .forget,
      .forget_function,
      .request_valid   (e_request_valid || host_asks),
      .request_ready   (asked_ready),
      .request_tag     (host_asks ? T'(SESSIONS) : T'(e_request_tag)),
      .request_function(host_asks ? host_function : {1'b0, e_request_function}),
      .request_cost    (host_asks ? host_cost : e_request_cost),
      .request_timeout (host_asks ? host_timeout : e_request_timeout),
      .request_image   (host_asks ? host_image : e_request_image),
      .request_params  (host_asks ? host_params : e_request_params),
      .grant,
      .grant_region,
      .grant_tag,
      .next_valid,
      .next_tag,
      .finish_valid(ended_valid),
      .finish_ready(ended_ready),
      .finish_tag  (ended_tag),
      .finish_region,
      .finish_killed,
      .finish_load,
      .finish_loaded,
      .finish_cycles,
      .region_start,
      .region_params,
      .region_timeout,
      .region_decouple(decouple),
      .region_idle,
      .region_done,
      .region_failed,
      .region_cycles,
      .swap,
      .swap_region,
      .swap_kernel,
      .arvalid,
      .arready,
      .araddr,
      .arlen,
      .arsize,
      .arburst,
      .rvalid,
      .rready,
      .rdata,
      .rresp,
      .rlast,
      .icap_valid,
      .icap_ready,
      .icap_data,
      .icap_region,
      .read_function  ('0),
      .calls          (unused_calls),
      .failures       (unused_failures),
      .loads          (unused_loads),
      .cycles         (unused_cycles),
      .region_loads,
      .region_busy
  );

  assign call_requested = request_valid && request_ready;
  assign call_granted = grant;
  assign call_ended = finish_valid && finish_ready;

  logic [REGIONS-1:0] b_valid, b_ready, b_last, a_valid, a_ready, a_last, unused_a_failed;
  logic [63:0] b_data[REGIONS], a_data[REGIONS];
  logic [7:0] b_keep[REGIONS], a_keep[REGIONS];

  for (genvar i = 0; i < REGIONS; i++) begin : g_region
    region u_region (
        .clk,
        .rst,
        .start    (region_start[i]),
        .params   (region_params),
        .timeout  (region_timeout),
        .kill     (1'b0),
        .decouple (decouple[i]),
        .idle     (region_idle[i]),
        .done     (region_done[i]),
        .failed   (region_failed[i]),
        .cycles   (region_cycles[i]),
        .s_valid  (b_valid[i]),
        .s_ready  (b_ready[i]),
        .s_data   (b_data[i]),
        .s_keep   (b_keep[i]),
        .s_last   (b_last[i]),
        .m_valid  (a_valid[i]),
        .m_ready  (a_ready[i]),
        .m_data   (a_data[i]),
        .m_keep   (a_keep[i]),
        .m_last   (a_last[i]),
        .m_failed (unused_a_failed[i]),
        .k_rst    (k_rst[i]),
        .k_start  (k_start[i]),
        .k_params (k_params[i]),
        .k_done   (k_done[i]),
        .k_s_valid(k_s_valid[i]),
        .k_s_ready(k_s_ready[i]),
        .k_s_data (k_s_data[i]),
        .k_s_keep (k_s_keep[i]),
        .k_s_last (k_s_last[i]),
        .k_m_valid(k_m_valid[i]),
        .k_m_ready(k_m_ready[i]),
        .k_m_data (k_m_data[i]),
        .k_m_keep (k_m_keep[i]),
        .k_m_last (k_m_last[i])
    );
  end

  // ---- the host ----
  always_comb begin
    host_a_data = '0;
    host_a_keep = '0;
    for (int i = 0; i < REGIONS; i++) begin
      b_valid[i] = host_on[i] ? host_b_valid : http_b_valid[i];
      b_data[i]  = host_on[i] ? host_b_data : http_b_data[i];
      b_keep[i]  = host_on[i] ? host_b_keep : http_b_keep[i];
      b_last[i]  = host_on[i] ? host_b_last : http_b_last[i];
      a_ready[i] = host_on[i] ? host_a_ready : http_a_ready[i];
      if (host_on[i]) host_a_data = a_data[i];
      if (host_on[i]) host_a_keep = a_keep[i];
      http_next[i]     = next_valid[i] && !(HOST_CALLS && next_tag[i][T-1]);
      http_next_tag[i] = next_tag[i][S-1:0];
    end
  end

  assign grant_to_host = HOST_CALLS && grant_tag[T-1];
  assign ended_of_host = HOST_CALLS && ended_tag[T-1];
  assign ended_ready = ended_of_host ? host_finish_ready : e_finish_ready;
  assign e_finish_valid = ended_valid && !ended_of_host;
  assign e_request_ready = asked_ready && !host_asks;
  assign busy = http_busy || host_busy;

  assign w_awlen[0]  = 8'd31;
  assign w_wstrb[0]  = '1;
  assign w_bready[0] = 1'b1;

  host_port #(
      .REGIONS    (REGIONS),
      .CALLS      (HOST_CALLS),
      .SHELL      (SHELL),
      .IMAGE_BYTES(IMAGE_BYTES)
  ) u_host (
      .clk,
      .rst,
      .host_write,
      .host_address,
      .host_data,
      .host_read_data,
      .host_ended,
      .busy            (host_busy),
      .dma_read_valid,
      .dma_read_ready,
      .dma_read_address,
      .dma_read_beats,
      .dma_data_valid,
      .dma_data,
      .dma_data_error,
      .dma_write_valid,
      .dma_write_ready,
      .dma_write_address,
      .dma_write_data,
      .dma_write_keep,
      .awvalid         (w_awvalid[0]),
      .awready         (w_awready[0]),
      .awaddr          (w_awaddr[0]),
      .wvalid          (w_wvalid[0]),
      .wready          (w_wready[0]),
      .wdata           (w_wdata[0]),
      .wlast           (w_wlast[0]),
      .bvalid          (w_bvalid[0]),
      .bresp,
      .policy,
      .patience,
      .load_cost,
      .change_valid,
      .change_ready,
      .change_remove,
      .change_name,
      .change_entry,
      .changed_valid,
      .changed,
      .changed_function,
      .forget,
      .forget_function,
      .request_valid   (host_asks),
      .request_ready   (asked_ready),
      .request_function(host_function),
      .request_cost    (host_cost),
      .request_timeout (host_timeout),
      .request_image   (host_image),
      .request_params  (host_params),
      .grant           (grant && grant_to_host),
      .grant_region,
      .finish_valid    (ended_valid && ended_of_host),
      .finish_ready    (host_finish_ready),
      .finish_killed,
      .finish_load,
      .finish_loaded,
      .finish_cycles,
      .decouple,
      .region_loads,
      .region_busy,
      .region_on       (host_on),
      .s_valid         (host_b_valid),
      .s_ready         (|(b_ready & host_on)),
      .s_data          (host_b_data),
      .s_keep          (host_b_keep),
      .s_last          (host_b_last),
      .m_valid         (|(a_valid & host_on)),
      .m_ready         (host_a_ready),
      .m_data          (host_a_data),
      .m_keep          (host_a_keep),
      .m_last          (|(a_last & host_on))
  );

  // ---- HTTP ----
  localparam int METRICS = 8 + 2 * REGIONS;
  logic [63:0] metrics[METRICS];
  logic [31:0] count_requests, count_errors;
  logic [63:0] count_busy, cycles;  // 32 bits would wrap after 40 s

  always_comb begin
    count_busy = '0;
    for (int i = 0; i < REGIONS; i++) count_busy += region_busy[i];
    metrics[0] = 64'(count_requests);
    metrics[1] = 64'(count_errors);
    metrics[2] = count_busy;
    metrics[3] = 64'(count_opened);
    metrics[4] = 64'(count_open);
    metrics[5] = 64'(count_retransmitted);
    metrics[6] = 64'(count_reset);
    metrics[7] = cycles;
    for (int i = 0; i < REGIONS; i++) begin
      metrics[8+i] = 64'(region_loads[i]);
      metrics[8+REGIONS+i] = region_busy[i];
    end
  end

  always_ff @(posedge clk) cycles <= rst ? '0 : cycles + 64'd1;

  http_engine #(
      .SESSIONS(SESSIONS),
      .REGIONS(REGIONS),
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .BODY_BYTES(BODY_BYTES),
      .METRICS(METRICS)
  ) u_http (
      .clk,
      .rst,
      .api_key,
      .open(http_open),
      .open_at,
      .open_next(RxP'(open_next)),
      .open_una(TxP'(open_una)),
      .arrived,
      .arrived_at,
      .woken,
      .woken_at,
      .rcv_of,
      .rcv_next(RxP'(rcv_next)),
      .rcv_ended(look_ended),
      .una_of,
      .snd_una(TxP'(snd_una)),
      .dead,
      .shut,
      .notify(http_notify),
      .notify_at(http_at),
      .notify_read_to(http_read_to),
      .notify_written_to(http_written_to),
      .notify_finish(http_finish),
      .release_valid(http_release),
      .release_at(http_release_at),
      .working,
      .mid_request,
      .rx_next(http_rx_next),
      .rx_read(http_rx_read),
      .rx_read_address(http_rx_address),
      .rx_read_data,
      .tx_write(http_tx_write),
      .tx_write_address(http_tx_address),
      .tx_write_data(http_tx_data),
      .tx_write_keep(http_tx_keep),
      .fill_write(fill_in_valid),
      .fill_ready(fill_in_ready),
      .fill_waits(fill_in_valid || fill_valid),
      .fill_address(fill_in.address),
      .fill_data(fill_in.data),
      .fill_keep(fill_in.keep),
      .find_valid,
      .find_ready,
      .find_name,
      .found_valid,
      .found,
      .found_function,
      .entry_of,
      .entry,
      .changed(changed_valid && changed),
      .listing,
      .slot_of,
      .slot_word,
      .slot_used,
      .slot_name,
      .request_valid,
      .request_ready,
      .request_tag,
      .request_function,
      .request_cost,
      .request_timeout,
      .request_image,
      .request_params,
      .grant(grant && !grant_to_host),
      .grant_region,
      .grant_tag(grant_tag[S-1:0]),
      .next_valid(http_next),
      .next_tag(http_next_tag),
      .finish_valid,
      .finish_ready,
      .finish_tag,
      .finish_region,
      .finish_killed,
      .finish_refused,
      .finish_fetch,
      .k_valid(http_b_valid),
      .k_ready(b_ready & ~host_on),
      .k_data (http_b_data),
      .k_keep (http_b_keep),
      .k_last (http_b_last),
      .r_valid(a_valid & ~host_on),
      .r_ready(http_a_ready),
      .r_data (a_data),
      .r_keep (a_keep),
      .r_last (a_last),
      .metrics,
      .count_requests,
      .count_errors,
      .busy(http_busy)
  );

endmodule
