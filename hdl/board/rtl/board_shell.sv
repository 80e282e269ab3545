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
// the bytes of each session's receive and transmit ring; RINGS_IN_MEMORY, whether they are in board
// memory, otherwise on the chip; MEMORY_LATENCY of the rings in cycles, in board memory the usual;
// BODY_BYTES, the longest body of a request, smaller than the receive ring minus its head; SHELL,
// the id for images; IMAGE_BYTES, the longest image's body; STORE, whether images can be fetched,
// which needs connections opened by the board; STORE_SLOTS and STORE_SLOT_BITS, of those images
// (image_store); UDP, whether there are datagrams; ISLANDS, segments after gaps that a session
// keeps (tcp_rx); QUEUE, calls that can wait for a region, beyond which they wait in their
// sessions; KERNEL_MEMORY, whether kernels have a port to board memory (region_memory); HOST_CALLS,
// of the host at once, or 0 if it can only supply functions; SHORTEST, whether the scheduler has that policy
// (fn_scheduler); HTTP, whether there is that door; MESSAGES, the network over which kernels exchange
// messages, 0 for none (NETWORK of board_messages).
module board_shell
  import axi_pkg::*;
  import board_pkg::*;
  import host_pkg::*;
  import net_pkg::*;
  import fn_pkg::*;
  import functions_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int REGIONS = 4,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    parameter  bit RINGS_IN_MEMORY = 0,
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
    parameter  int HOST_CALLS = REGIONS,
    parameter  bit SHORTEST = 1,
    parameter  bit KERNEL_MEMORY = 1,
    parameter  bit HTTP = 1,
    parameter  int MESSAGES = 0,
    localparam int S = $clog2(SESSIONS),
    localparam int R = $clog2(REGIONS)
) (
`include "board_line_ports.svh"
`include "board_bus_ports.svh"
    // The kernels in the regions, from the cycle after a `swap` on another one, in reset.
    output kernel_in_t       kernel_in [REGIONS],
    input  kernel_out_t      kernel_out[REGIONS],
    output logic [REGIONS-1:0] decouple,
    output configuration_t   configuration,
    input  logic             configuration_ready,
    output events_t          events
);

  // ---- the host as a requester ----
  // An additional requester of regions, with tags of its own. Its requests have priority, because
  // their number is limited.
  scheduling_t scheduling;
  table_change_t table_change;
  table_changed_t table_changed;
  host_call_t host_call;
  host_call_reply_t host_call_reply;
  logic change_ready, forget, http_busy, host_busy, http_requested, http_ended;
  logic [NUMBER_BITS:0] forget_function;
  logic [REGIONS-1:0] host_on, host_kill, http_next;
  logic [S-1:0] http_next_tag[REGIONS];
  // Of each region: its streams, with those that HTTP and the host drive, and its output for HTTP.
  streams_in_t region_in[REGIONS], http_in[REGIONS], host_in_streams[REGIONS];
  streams_out_t region_out[REGIONS], http_out[REGIONS];

  // ---- functions ----
  lookup_t lookup;
  lookup_reply_t lookup_reply;
  logic table_ready, table_done, table_good;
  logic [NUMBER_BITS-1:0] table_number;
  entry_t unused_found_entry;

  assign change_ready = table_ready && !lookup.listing;
  assign table_changed = '{valid: table_done, changed: table_good, number: table_number};

  fn_table #(
      .ENTRIES   (FUNCTIONS),
      .NAME_BYTES(16),
      .ENTRY_BITS($bits(entry_t))
  ) u_table (
      .clk,
      .rst,
      .find_valid(lookup.find_valid),
      .find_ready(lookup_reply.find_ready),
      .find_name(lookup.find_name),
      .found(lookup_reply.found),
      .found_function(lookup_reply.found_function),
      .found_entry (unused_found_entry),
      .found_valid(lookup_reply.found_valid),
      .change_valid(table_change.valid && !lookup.listing),
      .change_ready(table_ready),
      .change_remove(table_change.remove),
      .change_name (table_change.name),
      .change_entry(table_change.entry),
      .changed_valid(table_done),
      .changed     (table_good),
      .changed_function(table_number),
      .entry_of(lookup.entry_of),
      .entry_there (lookup_reply.entry),
      .slot_of(lookup.slot_of),
      .slot_word(lookup.slot_word),
      .slot_used(lookup_reply.slot_used),
      .slot_name(lookup_reply.slot_name)
  );

  // Calls: of HTTP and of the host to the function engine.
  // Of a call's tag: its session, or, with the upper bit, the host's engine.
  localparam int T = HOST_CALLS != 0 ? S + 1 : S;
  if (HOST_CALLS > SESSIONS) begin : g_refused
    $error("HOST_CALLS must be at most SESSIONS");
  end
  http_call_t http_call;
  http_call_reply_t http_call_reply;
  finish_t finish;
  logic grant, asked_ready, ended_valid, ended_ready, grant_to_host, ended_of_host;
  logic [T-1:0] grant_tag, ended_tag;
  logic [REGIONS-1:0] next_valid;
  logic [T-1:0] next_tag[REGIONS];
  logic [R-1:0] grant_region, finish_region;
  logic [31:0] region_timeout;
  logic [127:0] region_params;
  logic region_bound, refused;
  logic [REGIONS-1:0] needs_binding;
  logic [REGIONS-1:0] region_start, region_idle, region_done, region_failed;
  logic [REGIONS-1:0][1:0] region_code;
  logic [31:0] region_cycles[REGIONS];
  logic [31:0] region_loads[REGIONS];
  logic [63:0] region_busy[REGIONS];
  logic [31:0] region_image[REGIONS];
  logic [31:0] unused_calls, unused_failures, unused_loads;
  logic [47:0] unused_cycles;

  // Board memory is written by the host's copies, fetched images, kernels and rings; and read by
  // the host, for loads, and by kernels and rings, which are last.
  localparam int KERNELS = KERNEL_MEMORY ? REGIONS : 0;
  localparam int RINGS = HTTP && RINGS_IN_MEMORY ? 2 : 0;
  localparam int FIRST_KERNEL_WRITER = HTTP && STORE ? 2 : 1;
  localparam int WRITERS = FIRST_KERNEL_WRITER + KERNELS + RINGS;
  localparam int READERS = (KERNEL_MEMORY ? 2 + KERNELS : 1) + RINGS;
  axi_write_t writers[WRITERS];
  axi_write_reply_t writer_replies[WRITERS];
  axi_read_t readers[READERS];
  axi_read_reply_t reader_replies[READERS];
  logic [REGIONS-1:0] memory_idle, run_idle;

  axi_writers #(
      .N(WRITERS)
  ) u_writers (
      .clk,
      .rst,
      .s_write(writers),
      .s_reply(writer_replies),
      .m_write(axi_write),
      .m_reply(axi_write_reply)
  );

  if (READERS > 1) begin : g_readers
    axi_readers #(
        .N(READERS)
    ) u_readers (
        .clk,
        .rst,
        .s_read (readers),
        .s_reply(reader_replies),
        .m_read (axi_read),
        .m_reply(axi_read_reply)
    );
  end else begin : g_reader
    assign axi_read = readers[0];
    assign reader_replies[0] = axi_read_reply;
  end

  if (KERNEL_MEMORY) begin : g_memory
    for (genvar i = 0; i < REGIONS; i++) begin : g_port
      memory_t board;
      assign readers[2+i] = board.read;
      assign writers[FIRST_KERNEL_WRITER+i] = board.write;
      region_memory #(
          .BASE(KERNEL_BASE)
      ) u_port (
          .clk,
          .rst,
          .off         (kernel_in[i].rst || decouple[i] || region_done[i]),
          .idle        (memory_idle[i]),
          .kernel      (kernel_out[i].memory),
          .kernel_reply(kernel_in[i].memory),
          .board,
          .board_reply ('{read: reader_replies[2+i], write: writer_replies[FIRST_KERNEL_WRITER+i]})
      );
    end
  end else begin : g_no_memory
    assign memory_idle = '1;
    for (genvar i = 0; i < REGIONS; i++) begin : g_port
      logic unused_port;
      assign unused_port = &{1'b0, kernel_out[i].memory};
      assign kernel_in[i].memory = '0;
    end
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
      .scheduling,
      .forget,
      .forget_function,
      .request_valid   (http_call.request_valid || host_call.request_valid),
      .request_ready   (asked_ready),
      .request_tag     (host_call.request_valid ? T'(SESSIONS) | T'(host_call.request_engine) : T'(http_call.request_tag)),
      .request_function(host_call.request_valid ? host_call.request_function[NUMBER_BITS:0] : {1'b0, http_call.request_function}),
      .request_call    (host_call.request_valid ? host_call.request_call : http_call.request_call),
      .grant,
      .grant_region,
      .grant_tag,
      .next_valid,
      .next_tag,
      .finish_valid(ended_valid),
      .finish_ready(ended_ready),
      .finish_tag  (ended_tag),
      .finish_region,
      .finish,
      .region_start,
      .region_params,
      .region_timeout,
      .region_bound,
      .region_decouple(decouple),
      .region_idle,
      .region_done,
      .region_failed,
      .region_code,
      .region_cycles,
      .axi_read      (readers[0]),
      .axi_read_reply(reader_replies[0]),
      .configuration,
      .configuration_ready,
      .read_function  ('0),
      .calls          (unused_calls),
      .failures       (unused_failures),
      .loads          (unused_loads),
      .cycles         (unused_cycles),
      .region_loads,
      .region_busy,
      .region_image
  );

  // Of the message door.
  message_tables_t messages;
  logic messages_busy, messages_pause, messages_owed, messages_failed;
  logic [7:0] messages_station;

  assign events = '{
    busy:           http_busy || messages_busy,
    host_busy:      host_busy,
    pause:          messages_pause,
    owed:           messages_owed,
    failed:         messages_failed,
    failed_station: messages_station,
    call_requested: http_requested,
    call_granted:   grant,
    call_ended:     http_ended
  };

  // A call over HTTP reaches a kernel from OpenCL C only by a binding: the driver gives these kernels
  // numbers from 2^31 on. Otherwise one that has waited while its function was replaced could bring a
  // launch of its own.
  assign refused = KERNEL_MEMORY && needs_binding[grant_region] && !region_bound && !grant_to_host;
  always_ff @(posedge clk) begin
    if (configuration.swap) needs_binding[configuration.region[R-1:0]] <= configuration.swap_kernel[31];
  end

  logic [REGIONS-1:0] unused_failed;

  // The bursts of the last run have ended, too.
  assign region_idle = run_idle & memory_idle;

  for (genvar i = 0; i < REGIONS; i++) begin : g_region
    region u_region (
        .clk,
        .rst,
        .start    (region_start[i]),
        .params   ({refused ? 32'd1 : region_params[127:96], region_params[95:0]}),
        .timeout  (region_timeout),
        .kill     (host_kill[i]),
        .decouple (decouple[i]),
        .idle     (run_idle[i]),
        .done     (region_done[i]),
        .failed   (region_failed[i]),
        .code     (region_code[i]),
        .cycles   (region_cycles[i]),
        .s_valid  (region_in[i].s_valid),
        .s_ready  (region_out[i].s_ready),
        .s_data   (region_in[i].s_data),
        .s_keep   (region_in[i].s_keep),
        .s_last   (region_in[i].s_last),
        .m_valid  (region_out[i].m_valid),
        .m_ready  (region_in[i].m_ready),
        .m_data   (region_out[i].m_data),
        .m_keep   (region_out[i].m_keep),
        .m_last   (region_out[i].m_last),
        .m_failed (unused_failed[i]),
        .k_rst    (kernel_in[i].rst),
        .k_start  (kernel_in[i].start),
        .k_params (kernel_in[i].params),
        .k_done   (kernel_out[i].done),
        .k_code   (KERNEL_MEMORY ? kernel_out[i].code : 2'd0),
        .k_s_valid(kernel_in[i].streams.s_valid),
        .k_s_ready(kernel_out[i].streams.s_ready),
        .k_s_data (kernel_in[i].streams.s_data),
        .k_s_keep (kernel_in[i].streams.s_keep),
        .k_s_last (kernel_in[i].streams.s_last),
        .k_m_valid(kernel_out[i].streams.m_valid),
        .k_m_ready(kernel_in[i].streams.m_ready),
        .k_m_data (kernel_out[i].streams.m_data),
        .k_m_keep (kernel_out[i].streams.m_keep),
        .k_m_last (kernel_out[i].streams.m_last)
    );
  end

  // ---- HTTP ----
  // Frames of the stack, which share the port with those of messages.
  logic  stack_valid, stack_ready;
  beat_t stack;

  if (HTTP) begin : g_http
    axi_write_t store_write;
    axi_write_reply_t store_reply;
    if (STORE) begin : g_store
      assign writers[1] = store_write;
      assign store_reply = writer_replies[1];
    end else begin : g_no_store
      logic unused_write;
      assign unused_write = &{1'b0, store_write};
      assign store_reply = '0;
    end
    axi_write_t ring_write[2];
    axi_write_reply_t ring_write_reply[2];
    axi_read_t ring_read[2];
    axi_read_reply_t ring_read_reply[2];
    for (genvar i = 0; i < 2; i++) begin : g_ring
      if (RINGS_IN_MEMORY) begin : g_port
        assign writers[WRITERS-2+i] = ring_write[i];
        assign ring_write_reply[i] = writer_replies[WRITERS-2+i];
        assign readers[READERS-2+i] = ring_read[i];
        assign ring_read_reply[i] = reader_replies[READERS-2+i];
      end else begin : g_no_port
        logic unused_port;
        assign unused_port = &{1'b0, ring_write[i], ring_read[i]};
        assign ring_write_reply[i] = '0;
        assign ring_read_reply[i] = '0;
      end
    end
    board_http #(
        .SESSIONS      (SESSIONS),
        .REGIONS       (REGIONS),
        .RX_RING_BITS  (RX_RING_BITS),
        .TX_RING_BITS  (TX_RING_BITS),
        .MEMORY_LATENCY(MEMORY_LATENCY),
        .RINGS_IN_MEMORY(RINGS_IN_MEMORY),
        .BODY_BYTES    (BODY_BYTES),
        .MSS           (MSS),
        .STORE         (STORE),
        .STORE_SLOTS   (STORE_SLOTS),
        .STORE_SLOT_BITS(STORE_SLOT_BITS),
        .UDP           (UDP),
        .ISLANDS       (ISLANDS),
        .BINDINGS      (KERNEL_MEMORY)
    ) u_http (
        .clk,
        .rst,
        .tick,
        .settings,
        .rx_valid,
        .rx,
        .tx_valid       (stack_valid),
        .tx_ready       (stack_ready),
        .tx             (stack),
        .lookup,
        .lookup_reply,
        .change_taken   (table_change.valid && change_ready),
        .change_name    (table_change.name),
        .changed        (table_changed),
        .call           (http_call),
        .call_reply     (http_call_reply),
        .next_valid     (http_next),
        .next_tag       (http_next_tag),
        .region_in      (http_in),
        .region_out     (http_out),
        .axi_write      (store_write),
        .axi_write_reply(store_reply),
        .ring_write,
        .ring_write_reply,
        .ring_read,
        .ring_read_reply,
        .region_loads,
        .region_busy,
        .busy           (http_busy),
        .requested      (http_requested),
        .ended          (http_ended)
    );
  end else begin : g_no_http
    logic unused_ports;
    assign unused_ports = &{1'b0, lookup_reply, http_call_reply, http_next, stack_ready, settings};
    assign {stack_valid, stack, lookup, http_call, http_busy, http_requested, http_ended} = '0;
    for (genvar i = 0; i < REGIONS; i++) begin : g_region
      logic unused_region;
      assign unused_region = &{1'b0, http_out[i], http_next_tag[i]};
      assign http_in[i] = '0;
    end
  end

  // ---- messages ----
  if (MESSAGES != 0) begin : g_messages
    packets_t kernels[REGIONS], replies[REGIONS];
    logic [REGIONS-1:0] off;
    for (genvar i = 0; i < REGIONS; i++) begin : g_port
      assign kernels[i] = kernel_out[i].packets;
      assign kernel_in[i].packets = replies[i];
      assign off[i] = kernel_in[i].rst || decouple[i];
    end
    board_messages #(
        .REGIONS(REGIONS),
        .NETWORK(MESSAGES)
    ) u_messages (
        .clk,
        .rst,
        .tick,
        .own_mac(settings.own_mac),
        .tables (messages),
        .rx_valid,
        .rx,
        .stack_valid,
        .stack_ready,
        .stack,
        .tx_valid,
        .tx_ready,
        .tx,
        .region_start,
        .region_off   (off),
        .region_done,
        .region_failed,
        .region_code,
        .kernel       (kernels),
        .kernel_reply (replies),
        .busy         (messages_busy),
        .pause        (messages_pause),
        .owed         (messages_owed),
        .failed       (messages_failed),
        .failed_station(messages_station)
    );
  end else begin : g_no_messages
    assign {tx_valid, tx} = {stack_valid, stack};
    assign stack_ready = tx_ready;
    assign {messages_busy, messages_pause, messages_owed, messages_failed, messages_station} = '0;
    for (genvar i = 0; i < REGIONS; i++) begin : g_port
      logic unused_port;
      assign unused_port = &{1'b0, kernel_out[i].packets};
      assign kernel_in[i].packets = '0;
    end
    logic unused_messages;
    assign unused_messages = &{1'b0, messages};
  end

  // ---- the host ----
  axi_read_t host_read;
  axi_read_reply_t host_read_reply;
  if (KERNEL_MEMORY) begin : g_host_read
    assign readers[1] = host_read;
    assign host_read_reply = reader_replies[1];
  end else begin : g_no_host_read
    logic unused_read;
    assign unused_read = &{1'b0, host_read};
    assign host_read_reply = '0;
  end

  always_comb begin
    for (int i = 0; i < REGIONS; i++) begin
      region_in[i] = host_on[i] ? host_in_streams[i] : http_in[i];
      http_out[i] = region_out[i];
      if (host_on[i]) begin
        http_out[i].s_ready = 1'b0;
        http_out[i].m_valid = 1'b0;
      end
      http_next[i]     = next_valid[i] && !(HOST_CALLS != 0 && next_tag[i][T-1]);
      http_next_tag[i] = next_tag[i][S-1:0];
    end
  end

  assign grant_to_host = HOST_CALLS != 0 && grant_tag[T-1];
  assign ended_of_host = HOST_CALLS != 0 && ended_tag[T-1];
  assign ended_ready = ended_of_host ? host_call.finish_ready : http_call.finish_ready;
  assign http_call_reply = '{
    request_ready: asked_ready && !host_call.request_valid,
    grant:         grant && !grant_to_host,
    grant_tag:     16'(grant_tag[S-1:0]),
    grant_region:  8'(grant_region),
    finish_valid:  ended_valid && !ended_of_host,
    finish_tag:    16'(ended_tag[S-1:0]),
    finish_region: 8'(finish_region),
    finish:        finish
  };
  assign host_call_reply = '{
    request_ready: asked_ready,
    grant:         grant && grant_to_host,
    grant_engine:  8'(grant_tag[S-1:0]),
    grant_region:  8'(grant_region),
    finish_valid:  ended_valid && ended_of_host,
    finish_engine: 8'(ended_tag[S-1:0]),
    finish_region: 8'(finish_region),
    finish:        finish
  };

  host_port #(
      .REGIONS    (REGIONS),
      .CALLS      (HOST_CALLS),
      .READS      (KERNEL_MEMORY),
      .SHELL      (SHELL),
      .IMAGE_BYTES(IMAGE_BYTES)
  ) u_host (
      .clk,
      .rst,
      .host_in,
      .host_out,
      .busy            (host_busy),
      .axi_read        (host_read),
      .axi_read_reply  (host_read_reply),
      .axi_write       (writers[0]),
      .axi_write_reply (writer_replies[0]),
      .scheduling,
      .change          (table_change),
      .change_ready,
      .changed         (table_changed),
      .forget,
      .forget_function,
      .call            (host_call),
      .call_reply      (host_call_reply),
      .decouple,
      .region_loads,
      .region_busy,
      .region_image,
      .region_on       (host_on),
      .region_kill     (host_kill),
      .region_in       (host_in_streams),
      .region_out      (region_out),
      .messages
  );

`ifndef SYNTHESIS
  // Another kernel is placed only in a region that is off.
  swaps_are_decoupled : assert property (@(posedge clk) disable iff (rst)
      configuration.swap |-> decouple[configuration.region[R-1:0]]);
  starts_in_idle_regions : assert property (@(posedge clk) disable iff (rst)
      (region_start & ~region_idle) == '0);
  one_start : assert property (@(posedge clk) disable iff (rst) $onehot0(region_start));
  frames_stay : assert property (@(posedge clk) disable iff (rst)
      tx_valid && !tx_ready |=> tx_valid && $stable(tx));
`endif

endmodule
