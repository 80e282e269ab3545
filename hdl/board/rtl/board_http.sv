// The HTTP door of a board: the network stack, the rings of its sessions, the HTTP server, and the
// store of images. It looks functions up in the table, requests calls, and moves bodies and replies
// between rings and regions.
//
// The rings are on the chip, or in board memory (board_rings).
//
// Parameters: as in board_shell; BINDINGS, whether functions can be bound to kernels from OpenCL C.
module board_http
  import axi_pkg::*;
  import board_pkg::*;
  import fn_pkg::*;
  import functions_pkg::*;
  import net_pkg::*;
#(
    parameter  int REGIONS = 4,
    parameter  int SESSIONS = 16,
    parameter  int MSS = 1460,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    parameter  bit RINGS_IN_MEMORY = 0,
    parameter  int BODY_BYTES = 1 << (RX_RING_BITS - 1),
    parameter  bit STORE = 1,
    parameter  int STORE_SLOTS = 8,
    parameter  int STORE_SLOT_BITS = 21,
    parameter  bit UDP = 1,
    parameter  int ISLANDS = 4,
    parameter  bit BINDINGS = 1,
    localparam int S = $clog2(SESSIONS),
    localparam int R = $clog2(REGIONS),
    localparam int RxP = net_pkg::position_bits(RX_RING_BITS),
    localparam int TxP = net_pkg::position_bits(TX_RING_BITS)
) (
`include "board_line_ports.svh"
    // The table of functions, and its changes.
    output lookup_t          lookup,
    input  lookup_reply_t    lookup_reply,
    input  logic             change_taken,
    input  name_t            change_name,
    input  table_changed_t   changed,
    // Calls, by their session.
    output http_call_t       call,
    input  http_call_reply_t call_reply,
    input  logic [REGIONS-1:0] next_valid,
    input  logic [S-1:0]     next_tag[REGIONS],
    output streams_in_t      region_in[REGIONS],
    input  streams_out_t     region_out[REGIONS],
    // Board memory: fetched images.
    output axi_write_t       axi_write,
    input  axi_write_reply_t axi_write_reply,
    // Board memory: the rings for receiving and for sending.
    output axi_write_t       ring_write[2],
    input  axi_write_reply_t ring_write_reply[2],
    output axi_read_t        ring_read[2],
    input  axi_read_reply_t  ring_read_reply[2],
    // For GET /metrics, and for measurements.
    input  logic [31:0]      region_loads[REGIONS],
    input  logic [63:0]      region_busy[REGIONS],
    output logic             busy,
    output logic             requested,   // a call, by a session
    output logic             ended
);

  // ---- sessions ----
  opened_t opened;
  received_t received;
  session_change_t change;
  progress_t progress, http_progress;
  release_t released, http_release;
  logic [31:0] rcv_next, snd_una;
  logic [SESSIONS-1:0] dead, shut, working, mid_request, yields;
  logic arrived, woken, look_ended, connect_done, http_rx_next;
  logic [S-1:0] arrived_at, woken_at, rcv_of, una_of;
  connect_result_t connect_result;
  // The echo: a datagram is returned to its sender.
  datagram_t datagram;
  logic udp_valid, udp_ready;
  beat_t udp_beat;

  // The store as a client of the stack.
  client_t store;
  client_reply_t store_reply;

  ring_write_t rx_write, tx_write, http_tx_write, fill_in;
  ring_read_t rx_read, tx_read, http_rx_read;
  ring_word_t rx_word, tx_word, store_word;
  logic rx_write_ready, tx_write_ready, rx_read_ready, tx_read_ready;
  net_counts_t counts;

  net_stack #(
      .SESSIONS(SESSIONS),
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS),
      .STEADY(!RINGS_IN_MEMORY),
      .MSS(MSS),
      .ISLANDS(ISLANDS),
      .ACTIVE_OPEN(STORE),
      .UDP(UDP)
  ) u_net (
      .clk,
      .rst,
      .tick,
      .own_mac(settings.own_mac),
      .own_ip(settings.own_ip),
      .listen_port(settings.listen_port),
      .secret(settings.secret),
      .rx_valid,
      .rx,
      .tx_valid,
      .tx_ready,
      .tx,
      .netmask(settings.netmask),
      .gateway(settings.gateway),
      .reserve(STORE && settings.store_ip != '0),
      .udp_port(settings.udp_echo),
      .udp_from(datagram),
      .udp_rx_valid(udp_valid),
      .udp_rx_ready(udp_ready),
      .udp_rx(udp_beat),
      .udp_to(datagram),
      .udp_tx_valid(udp_valid),
      .udp_tx_ready(udp_ready),
      .udp_tx(udp_beat),
      .opened,
      .received,
      .change,
      .progress,
      .released,
      .working(working | (SESSIONS'(store.working) << store.session[S-1:0])),
      .mid_request,
      .yields,
      .connect_valid(store.connect),
      .connect_ip(settings.store_ip),
      .connect_port(settings.store_port),
      .connect_done,
      .connect_result,
      .rx_write,
      .rx_write_ready,
      .tx_read,
      .tx_read_ready,
      .tx_word,
      .counts
  );

  net_numbers #(
      .SESSIONS(SESSIONS)
  ) u_numbers (
      .clk,
      .rst,
      .rcv_notify(received.valid),
      .rcv_at(received.session[S-1:0]),
      .rcv_notify_next(received.next),
      .rcv_notify_ended(received.ended),
      .rcv_arrived(received.arrived),
      .open(opened.valid),
      .open_at(opened.session[S-1:0]),
      .open_una(opened.una),
      .notify(change.valid),
      .notify_at(change.session[S-1:0]),
      .notify_una(change.una),
      .notify_dead(change.dead),
      .notify_shut(change.shut),
      .notify_wake(change.wake),
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
      .release_valid(http_release.valid),
      .release_at(http_release.session[S-1:0])
  );

  // Two clients of the stack: HTTP, which does not wait, and the store, which does.
  assign progress = http_progress.valid ? http_progress : store.progress;
  assign released = http_release.valid ? http_release : store.released;
  localparam logic [7:0] StoreReader = 8'(REGIONS + 1);  // those of http_calls are below
  always_comb begin
    rx_read = http_rx_read.valid ? http_rx_read : store.rx_read;
    if (!http_rx_read.valid) rx_read.note.reader = StoreReader;
    store_word = rx_word;
    store_word.valid = rx_word.valid && rx_word.note.reader == StoreReader;
  end
  assign tx_write = http_tx_write.valid ? http_tx_write : store.tx_write;
  assign store_reply = '{
    connect_done:   connect_done,
    connect_result: connect_result,
    opened:         '{
      valid:   opened.valid && opened.active,
      active:  1'b1,
      session: opened.session,
      next:    opened.next,
      una:     opened.una
    },
    received:       received,
    change:         change,
    progress_ready: !http_progress.valid,
    release_ready:  !http_release.valid,
    rx_may:         !http_rx_next && rx_read_ready,
    rx_word:        store_word,
    tx_may:         !http_tx_write.valid && tx_write_ready
  };

  // ---- memory ----
  logic fill_in_ready, fill_waits, rings_busy, http_busy;
  assign busy = http_busy || rings_busy;
  board_rings #(
      .SESSIONS    (SESSIONS),
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS),
      .LATENCY     (MEMORY_LATENCY),
      .IN_MEMORY   (RINGS_IN_MEMORY)
  ) u_rings (
      .clk,
      .rst,
      .rx_write,
      .rx_write_ready,
      .fill      (fill_in),
      .fill_ready(fill_in_ready),
      .fill_waits,
      .rx_read,
      .rx_read_ready,
      .rx_word,
      .tx_write,
      .tx_write_ready,
      .tx_read,
      .tx_read_ready,
      .tx_word,
      .axi_write      (ring_write),
      .axi_write_reply(ring_write_reply),
      .axi_read       (ring_read),
      .axi_read_reply (ring_read_reply),
      .busy           (rings_busy)
  );

  // ---- calls: of HTTP to the store, and from there to the function engine ----
  logic request_valid, request_ready, finish_valid, finish_ready, finish_refused;
  logic [S-1:0] request_tag, e_request_tag, finish_tag;
  logic [NUMBER_BITS-1:0] request_function;
  call_t request_call;
  fetch_result_t finish_fetch;
  logic [31:0] unused_fetches, unused_fetch_failures;

  assign call.request_tag = 16'(e_request_tag);
  assign requested = request_valid && request_ready;
  assign ended = finish_valid && finish_ready;

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
        .server_ip      (settings.store_ip),
        .server_port    (settings.store_port),
        .path           (settings.store_path),
        .base           (settings.store_base),
        .change_taken   (change_taken),
        .change_name,
        .changed        (changed.valid && changed.changed),
        .changed_function(changed.number),
        .request_valid,
        .request_ready,
        .request_tag,
        .request_function,
        .request_call,
        .finish_valid,
        .finish_ready,
        .finish_tag,
        .finish_refused,
        .finish_fetch,
        .e_request_valid (call.request_valid),
        .e_request_ready (call_reply.request_ready),
        .e_request_tag,
        .e_request_function(call.request_function),
        .e_request_call  (call.request_call),
        .e_finish_valid  (call_reply.finish_valid),
        .e_finish_ready  (call.finish_ready),
        .e_finish_tag    (call_reply.finish_tag[S-1:0]),
        .e_finish_refused(call_reply.finish.load != LoadOk),
        .axi_write,
        .axi_write_reply,
        .client         (store),
        .reply          (store_reply),
        .count_fetches  (unused_fetches),
        .count_failures (unused_fetch_failures)
    );
  end else begin : g_no_store
    logic unused_ports;
    assign unused_ports = &{1'b0, store_reply, change_taken, change_name, axi_write_reply};
    assign store = '0;
    assign axi_write = '0;
    assign request_ready = call_reply.request_ready;
    assign {call.request_valid, e_request_tag, call.request_function} = {request_valid, request_tag, request_function};
    assign call.request_call = request_call;
    assign call.finish_ready = finish_ready;
    assign finish_valid = call_reply.finish_valid;
    assign finish_tag = call_reply.finish_tag[S-1:0];
    assign finish_refused = call_reply.finish.load != LoadOk;
    assign finish_fetch = FetchOk;
    assign {unused_fetches, unused_fetch_failures} = '0;
  end

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
    metrics[3] = 64'(counts.opened);
    metrics[4] = 64'(counts.open);
    metrics[5] = 64'(counts.retransmitted);
    metrics[6] = 64'(counts.reset);
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
      .METRICS(METRICS),
      .BINDINGS(BINDINGS)
  ) u_http (
      .clk,
      .rst,
      .api_key(settings.api_key),
      .opened,
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
      .progress(http_progress),
      .released(http_release),
      .working,
      .mid_request,
      .yields,
      .rx_next(http_rx_next),
      .rx_read(http_rx_read),
      .rx_ready(rx_read_ready),
      .rx_word,
      .tx_write(http_tx_write),
      .tx_ready(tx_write_ready),
      .fill(fill_in),
      .fill_ready(fill_in_ready),
      .fill_waits(fill_in.valid || fill_waits),
      .find_valid(lookup.find_valid),
      .find_ready(lookup_reply.find_ready),
      .find_name(lookup.find_name),
      .found_valid(lookup_reply.found_valid),
      .found(lookup_reply.found),
      .found_function(lookup_reply.found_function),
      .entry_of(lookup.entry_of),
      .entry(lookup_reply.entry),
      .changed(changed.valid && changed.changed),
      .listing(lookup.listing),
      .slot_of(lookup.slot_of),
      .slot_word(lookup.slot_word),
      .slot_used(lookup_reply.slot_used),
      .slot_name(lookup_reply.slot_name),
      .request_valid,
      .request_ready,
      .request_tag,
      .request_function,
      .request_call,
      .grant(call_reply.grant),
      .grant_region(call_reply.grant_region[R-1:0]),
      .grant_tag(call_reply.grant_tag[S-1:0]),
      .next_valid,
      .next_tag,
      .finish_valid,
      .finish_ready,
      .finish_tag,
      .finish_region(call_reply.finish_region[R-1:0]),
      .finish_killed(call_reply.finish.killed),
      .finish_code(call_reply.finish.code),
      .finish_refused,
      .finish_fetch,
      .region_in,
      .region_out,
      .metrics,
      .count_requests,
      .count_errors,
      .busy(http_busy)
  );

`ifndef SYNTHESIS
  // HTTP does not wait for the ports of the rings, which the store uses in other cycles.
  one_reads : assert property (@(posedge clk) disable iff (rst)
      !(http_rx_read.valid && store.rx_read.valid));
  one_writes : assert property (@(posedge clk) disable iff (rst)
      !(http_tx_write.valid && store.tx_write.valid));
  fills_have_place : assert property (@(posedge clk) disable iff (rst)
      fill_in.valid |-> $past(fill_in_ready, 2));
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      request_valid && !request_ready |=>
      request_valid && $stable({request_tag, request_function}));
`endif

endmodule
