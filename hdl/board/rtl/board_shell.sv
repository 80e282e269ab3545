// The board: a host on the network. Ethernet frames in and out; ARP, ICMP echo, TCP, HTTP and the
// functions in between. Everything runs on one clock.
//
// The Ethernet port is the stream side of a MAC: no preamble, no check sequence, no padding on the
// way out. `tick` comes once a millisecond of the network's time. What is in a region is not part of the
// shell: a kernel's ports (docs/kernels.md) are outside, and `swap` says when the configuration port has put
// another one there.
//
// A function whose image is REMOTE (functions_pkg) has it fetched from the store when it is called.
//
// Parameters: SESSIONS, TCP connections at once; REGIONS, at least two; the rings' bits, log2 of the bytes of
// each session's receive and transmit ring; MEMORY_LATENCY of the rings in cycles; BODY_BYTES, the longest body
// of a request, less than the receive ring by its head; SHELL, what images must be made for; IMAGE_BYTES, the
// longest image's body; STORE_SLOTS and STORE_SLOT_BITS, of the images that were fetched (image_store).
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
    parameter  int STORE_SLOTS = 8,
    parameter  int STORE_SLOT_BITS = 21,
    localparam int S = $clog2(SESSIONS),
    localparam int R = $clog2(REGIONS)
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        tick,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic [15:0] listen_port,
    input  logic [63:0] secret,
    input  logic [8*http_pkg::KEY_BYTES-1:0] api_key,  // that requests must bring, its first character in bits 7:0; zeros: none
    input  logic        rx_valid,
    input  logic [63:0] rx_data,
    input  logic [ 7:0] rx_keep,
    input  logic        rx_last,
    output logic        tx_valid,
    input  logic        tx_ready,
    output logic [63:0] tx_data,
    output logic [ 7:0] tx_keep,
    output logic        tx_last,
    output logic        busy,     // a request is being worked on
    // The store of images that are not in memory, 0: none; and the network to it.
    input  logic [31:0] store_ip,
    input  logic [15:0] store_port,
    input  logic [511:0] store_path,  // its first character in bits 7:0, zeros behind
    input  logic [31:0] store_base,   // in board memory: STORE_SLOTS slots, a multiple of a slot
    input  logic [31:0] netmask,
    input  logic [31:0] gateway,      // 0: there is none
    input  logic [15:0] udp_echo,     // a UDP port whose datagrams are sent back; 0: none
    // The host: settings, and the function table (fn_table).
    input  policy_t     policy,
    input  logic [ 7:0] patience,     // how often a call may be overtaken
    input  logic [31:0] load_cost,    // cycles that a load takes, for Shortest
    input  logic        change_valid,
    output logic        change_ready,
    input  logic        change_remove,
    input  name_t       change_name,
    input  entry_t      change_entry,
    output logic        changed_valid,
    output logic        changed,
    // Board memory, where the images are: AXI4 reads (fn_reconfig).
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
    // and AXI4 writes of images that were fetched (image_store).
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
    // What is in the regions. From the cycle after `swap` on it is another kernel, in reset.
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
    // What happens to calls, for measurements.
    output logic         call_asked,
    output logic         call_granted,
    output logic         call_ended
);

  // ---- sessions ----
  logic [31:0] rcv_next[SESSIONS];
  logic [31:0] snd_una[SESSIONS];
  logic [31:0] read_to[SESSIONS];
  logic [31:0] written_to[SESSIONS];
  logic [SESSIONS-1:0] rcv_ended, dead, shut, finish;
  logic open, arrived, woken, notify, release_valid;
  logic [S-1:0] open_at, arrived_at, woken_at, notify_at, release_at;
  logic [31:0] open_next, open_una;
  logic http_open, http_notify, http_release, http_finish, store_say, store_finish, store_release, store_rx_wants, store_rx_read, store_tx_write;
  logic http_rx_next, http_rx_read, http_tx_write;
  logic [S-1:0] http_at, http_release_at, store_session;
  logic [31:0] http_read_to, http_written_to, store_read_to, store_written_to;
  logic [S+RX_RING_BITS-4:0] http_rx_address, store_rx_address;
  logic [S+TX_RING_BITS-4:0] http_tx_address, store_tx_address;
  logic [63:0] http_tx_data, store_tx_data;
  logic [7:0] http_tx_keep, store_tx_keep;
  connect_result_t connect_result;
  // The echo: what comes goes to where it came from.
  datagram_t datagram;
  logic udp_valid, udp_ready;
  beat_t udp_beat;
  logic connect_valid, connect_done, open_active, rcv_told, rcv_told_ended, rcv_arrived, tell, tell_dead, tell_shut, tell_wake, app_valid, app_finish;
  logic [S-1:0] rcv_at, tell_at, app_at;
  logic [31:0] rcv_told_next, tell_una, app_read_to, app_written_to;

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
      .MSS(MSS)
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
      .reserve(store_ip != '0),
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
      .rcv_told,
      .rcv_at,
      .rcv_next(rcv_told_next),
      .rcv_ended(rcv_told_ended),
      .arrived(rcv_arrived),
      .tell,
      .tell_at,
      .tell_una,
      .tell_dead,
      .tell_shut,
      .tell_wake,
      .app_valid,
      .app_at,
      .app_read_to,
      .app_written_to,
      .app_finish,
      .release_valid,
      .release_at,
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
      .rcv_told,
      .rcv_at,
      .rcv_told_next,
      .rcv_told_ended,
      .rcv_arrived,
      .open,
      .open_at,
      .open_una,
      .tell,
      .tell_at,
      .tell_una,
      .tell_dead,
      .tell_shut,
      .tell_wake,
      .app_valid(http_notify),
      .app_at(http_at),
      .app_read_to(http_read_to),
      .app_written_to(http_written_to),
      .app_finish(http_finish),
      .rcv_next,
      .rcv_ended,
      .arrived,
      .arrived_at,
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
      .release_valid(http_release),
      .release_at(http_release_at)
  );

  // Two speak to the stack: HTTP, which does not wait, and the store, which does.
  assign http_open = open && !open_active;
  assign app_valid = http_notify || store_say;
  assign app_at = http_notify ? http_at : store_session;
  assign app_read_to = http_notify ? http_read_to : store_read_to;
  assign app_written_to = http_notify ? http_written_to : store_written_to;
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
  // What comes from the network cannot wait; chunked bodies that are put together can.
  typedef struct packed {
    logic [S+RX_RING_BITS-4:0] address;
    logic [63:0] data;
    logic [7:0] keep;
  } fill_t;
  logic fill_in_valid, fill_in_ready, fill_valid;
  fill_t fill_in, fill;

  fifo #(
      .T(fill_t),
      .DEPTH(4)
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
  logic [S-1:0] e_request_tag, e_finish_tag;
  logic [NUMBER_BITS-1:0] e_request_function;
  logic [31:0] e_request_cost, e_request_timeout, e_request_image, unused_fetches, unused_fetch_failures;
  logic [127:0] e_request_params;
  fetch_result_t finish_fetch;
  logic request_valid, request_ready, grant, finish_valid, finish_ready, finish_killed, unused_finish_loaded;
  logic [S-1:0] request_tag, grant_tag, finish_tag;
  logic [REGIONS-1:0] next_valid;
  logic [S-1:0] next_tag[REGIONS];
  logic [R-1:0] grant_region, finish_region;
  logic [NUMBER_BITS-1:0] request_function;
  logic [31:0] request_cost, request_timeout, request_image, unused_finish_cycles, region_timeout;
  logic [127:0] request_params, region_params;
  load_result_t finish_load;
  logic [REGIONS-1:0] region_start, region_idle, region_done, region_failed;
  logic [31:0] region_cycles[REGIONS];
  logic [31:0] region_loads[REGIONS];
  logic [31:0] region_busy[REGIONS];
  logic [31:0] unused_calls, unused_failures, unused_loads;
  logic [47:0] unused_cycles;

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
      .e_finish_tag,
      .e_finish_refused(finish_load != LoadOk),
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
      .bready,
      .bresp,
      .connect_valid,
      .connect_done,
      .connect_result,
      .open           (open && open_active),
      .open_at,
      .open_next,
      .open_una,
      .rcv_told,
      .rcv_at,
      .rcv_next       (rcv_told_next),
      .rcv_ended      (rcv_told_ended),
      .tell_dead      (tell && tell_dead),
      .tell_at,
      .app_valid      (store_say),
      .app_ready      (!http_notify),
      .session        (store_session),
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

  fn_engine #(
      .REGIONS  (REGIONS),
      .QUEUE    (16),  // a call more waits with its session
      .FUNCTIONS(FUNCTIONS),
      .TAG_BITS (S),
      .SHELL    (SHELL),
      .MAX_BYTES(IMAGE_BYTES)
  ) u_functions (
      .clk,
      .rst,
      .policy,
      .patience,
      .load_cost,
      .forget         (changed_valid && changed),
      .forget_function(changed_function),
      .request_valid(e_request_valid),
      .request_ready(e_request_ready),
      .request_tag(e_request_tag),
      .request_function(e_request_function),
      .request_cost(e_request_cost),
      .request_timeout(e_request_timeout),
      .request_image(e_request_image),
      .request_params(e_request_params),
      .grant,
      .grant_region,
      .grant_tag,
      .next_valid,
      .next_tag,
      .finish_valid(e_finish_valid),
      .finish_ready(e_finish_ready),
      .finish_tag(e_finish_tag),
      .finish_region,
      .finish_killed,
      .finish_load,
      .finish_loaded  (unused_finish_loaded),
      .finish_cycles  (unused_finish_cycles),
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

  assign call_asked = request_valid && request_ready;
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

  // ---- HTTP ----
  localparam int METRICS = 8 + 2 * REGIONS;
  logic [31:0] metrics[METRICS];
  logic [31:0] count_requests, count_errors, count_busy, cycles;

  always_comb begin
    count_busy = '0;
    for (int i = 0; i < REGIONS; i++) count_busy += region_busy[i];
    metrics[0] = count_requests;
    metrics[1] = count_errors;
    metrics[2] = count_busy;
    metrics[3] = count_opened;
    metrics[4] = 32'(count_open);
    metrics[5] = count_retransmitted;
    metrics[6] = count_reset;
    metrics[7] = cycles;
    for (int i = 0; i < REGIONS; i++) begin
      metrics[8+i] = region_loads[i];
      metrics[8+REGIONS+i] = region_busy[i];
    end
  end

  always_ff @(posedge clk) cycles <= rst ? '0 : cycles + 32'd1;

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
      .release_valid(http_release),
      .release_at(http_release_at),
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
      .grant,
      .grant_region,
      .grant_tag,
      .next_valid,
      .next_tag,
      .finish_valid,
      .finish_ready,
      .finish_tag,
      .finish_region,
      .finish_killed,
      .finish_refused,
      .finish_fetch,
      .k_valid(b_valid),
      .k_ready(b_ready),
      .k_data (b_data),
      .k_keep (b_keep),
      .k_last (b_last),
      .r_valid(a_valid),
      .r_ready(a_ready),
      .r_data (a_data),
      .r_keep (a_keep),
      .r_last (a_last),
      .metrics,
      .count_requests,
      .count_errors,
      .busy
  );

endmodule
