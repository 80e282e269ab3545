// Between the requesters of calls and the function engine: a call of a function whose image is
// REMOTE waits here until the image is in board memory; if necessary, it is fetched from a store
// over the network. Other calls pass at once.
//
// Images are kept in SLOTS slots of board memory. When all are in use, the least recently used one
// is replaced, but never one from which a call in progress may still be loaded. An image that the
// reconfiguration controller refuses is forgotten, so that the next call fetches it again.
//
// When a fetch fails, the waiting calls of its function end with it; if the store cannot be
// reached, all waiting calls do: no call waits for more than one attempt in addition to the one in
// progress when it arrived.
//
// Parameters: SESSIONS, concurrent calls, whose tags they are; SLOTS; SLOT_BITS, log2 of a slot's
// bytes; the others as in http_fetch. Latency: none for other calls;
// 6 cycles if the image is in memory.
module image_store
  import axi_pkg::*;
  import fn_pkg::*;
  import net_pkg::*;
  import functions_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    parameter  int SLOTS = 8,
    parameter  int SLOT_BITS = 21,
    parameter  int PATH_BYTES = 64,
    localparam int S = $clog2(SESSIONS),
    localparam int L = $clog2(SLOTS)
) (
`include "http_server_ports.svh"
    input  logic [31:0]             base,            // of the slots in board memory, a multiple of
                                                     // a slot
    // changes of the function table, from which the functions' names are copied
    input  logic                    change_taken,
    input  name_t                   change_name,
    input  logic                    changed,
    input  logic [NUMBER_BITS-1:0]  changed_function,
    // calls, from http_engine
    input  logic                    request_valid,
    output logic                    request_ready,
    input  logic [S-1:0]            request_tag,
    input  logic [NUMBER_BITS-1:0]  request_function,
    input  call_t                   request_call,
    output logic                    finish_valid,
    input  logic                    finish_ready,
    output logic [S-1:0]            finish_tag,
    output logic                    finish_refused,
    output fetch_result_t           finish_fetch,    // the reason for the refusal
    // to fn_engine
    output logic                    e_request_valid,
    input  logic                    e_request_ready,
    output logic [S-1:0]            e_request_tag,
    output logic [NUMBER_BITS-1:0]  e_request_function,
    output call_t                   e_request_call,
    input  logic                    e_finish_valid,
    output logic                    e_finish_ready,
    input  logic [S-1:0]            e_finish_tag,
    input  logic                    e_finish_refused,
    // board memory: AXI4 writes of 256 bytes, by axi_writers
    output axi_write_t              axi_write,
    input  axi_write_reply_t        axi_write_reply,
    // net_stack and the rings, as in http_fetch
    output client_t                 client,
    input  client_reply_t           reply,
    // counters
    output logic [31:0]             count_fetches,
    output logic [31:0]             count_failures
);

  logic own_clk;  // gated while no state changes

  localparam int Beats = 32;  // of a burst

  typedef struct packed {
    logic [NUMBER_BITS-1:0] number;
    call_t                  operands;
  } waiting_t;

  typedef enum logic [3:0] {
    IDLE,
    TAKE,     // takes the oldest waiting call
    LOOK,     // looks for its image
    VICTIM,   // selects the slot to replace
    NAMED,
    FETCH,
    STORE,    // waits for the response to the last burst
    FORWARD,
    FAIL
  } state_t;

  state_t state;
  waiting_t call;               // the current call,
  logic [L-1:0] slot, oldest;   // and the slot of its image

  // ---- functions' names ----
  (* ram_style = "block", no_rw_check = 1 *) name_t names[1<<NUMBER_BITS];
  name_t name, name_taken;
  always_ff @(posedge own_clk) begin
    if (change_taken) name_taken <= change_name;
    if (changed) names[changed_function] <= name_taken;
    name <= names[call.number];
  end

  // ---- waiting calls ----
  waiting_t calls[SESSIONS];
  logic [S-1:0] queue[SESSIONS];
  logic [S:0] head, tail, failed_to;
  logic remote, park, waits;
  logic [S-1:0] tag;

  assign remote = request_call.image == REMOTE;
  assign park = request_valid && remote;
  assign waits = head != tail;

  always_ff @(posedge own_clk) begin
    if (park) begin
      calls[request_tag] <= '{number: request_function, operands: request_call};
      queue[tail[S-1:0]] <= request_tag;
      tail <= tail + 1'b1;
    end
    call <= calls[tag];
    if (rst) tail <= '0;
  end

  // ---- to the function engine: calls that need no image have priority ----
  logic forwards;
  assign forwards = state == FORWARD && !(request_valid && !remote);
  assign request_ready = remote || e_request_ready;
  assign e_request_valid = (request_valid && !remote) || forwards;

  always_comb begin
    e_request_tag = forwards ? tag : request_tag;
    e_request_function = forwards ? call.number : request_function;
    e_request_call = forwards ? call.operands : request_call;
    if (forwards) e_request_call.image = base + (32'(slot) << SLOT_BITS);
  end

  // ---- slots ----
  logic [SLOTS-1:0] used, here;
  logic [NUMBER_BITS-1:0] holds[SLOTS];
  logic [15:0] touched[SLOTS], clock;
  logic [S:0] pins[SLOTS];  // calls in progress that may be loaded from it
  logic [L:0] looked;
  logic [15:0] oldest_age;
  logic found_one;

  always_comb for (int i = 0; i < SLOTS; i++) here[i] = used[i] && holds[i] == call.number;

  // The slot from which a call in progress may be loaded.
  logic [L:0] pinned[SESSIONS], pinned_now;
  logic forwarded, passed, pin_write, freed;
  assign forwarded = forwards && e_request_ready;
  assign passed = request_valid && !remote && e_request_ready;
  assign pin_write = forwarded || passed;
  always_ff @(posedge own_clk) if (pin_write) pinned[e_request_tag] <= {forwarded, slot};
  assign pinned_now = pinned[e_finish_tag];
  assign freed = e_finish_valid && e_finish_ready && pinned_now[L];

  // ---- ends of calls: of completed ones, and of those whose image could not be fetched ----
  fetch_result_t why;
  assign finish_valid = e_finish_valid || state == FAIL;
  assign e_finish_ready = finish_ready;
  assign finish_tag = e_finish_valid ? e_finish_tag : tag;
  assign finish_refused = !e_finish_valid || e_finish_refused;
  assign finish_fetch = e_finish_valid ? FetchOk : why;

  // ---- fetching ----
  logic fetch_start, fetch_ready, fetched, body_valid, body_ready, body_last, failing_all, fetch_over, forgotten;
  logic [63:0] body;
  logic [NUMBER_BITS-1:0] failing;
  fetch_result_t fetch_result, failing_why;

  http_fetch #(
      .SESSIONS      (SESSIONS),
      .RX_RING_BITS  (RX_RING_BITS),
      .TX_RING_BITS  (TX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .PATH_BYTES    (PATH_BYTES)
  ) u_fetch (
      .clk,
      .rst,
      .tick,
      .server_ip,
      .server_port,
      .path,
      .start  (fetch_start),
      .ready  (fetch_ready),
      .file   (name),
      .most   (32'(1 << SLOT_BITS)),
      .done   (fetched),
      .result (fetch_result),
      .m_valid(body_valid),
      .m_ready(body_ready),
      .m_data (body),
      .m_last (body_last),
      .client,
      .reply
  );

  // ---- writing: a burst begins with its first word, and is padded if it ends early ----
  logic bursting, addressed, answered, filling, memory_failed;
  logic [$clog2(Beats)-1:0] beat;
  logic [31:0] burst_at;

  logic awvalid, wvalid, wlast;
  assign awvalid = bursting && !addressed;
  assign wvalid = bursting && addressed && !answered && (filling || body_valid);
  assign wlast = beat == '1;
  assign axi_write = '{
    awvalid: awvalid,
    awaddr:  burst_at,
    awlen:   8'(Beats - 1),
    awsize:  3'd3,
    awburst: BurstIncr,
    wvalid:  wvalid,
    wdata:   body,
    wstrb:   filling ? 8'h00 : 8'hff,
    wlast:   wlast,
    bready:  1'b1
  };
  assign body_ready = wvalid && axi_write_reply.wready && !filling;

  always_ff @(posedge own_clk) begin
    if (!bursting && state == FETCH && body_valid) begin
      bursting <= 1'b1;
      addressed <= 1'b0;
      answered <= 1'b0;
      beat <= '0;
    end
    if (awvalid && axi_write_reply.awready) addressed <= 1'b1;
    if (wvalid && axi_write_reply.wready) begin
      beat <= beat + 1'b1;
      if (wlast) answered <= 1'b1;
      if (body_last && body_ready && !wlast) filling <= 1'b1;
      if (wlast) filling <= 1'b0;
    end
    // The connection may end within a burst.
    if (fetch_over && bursting && !answered && !(wvalid && axi_write_reply.wready && wlast)) filling <= 1'b1;
    if (bursting && answered && axi_write_reply.bvalid) begin
      bursting <= 1'b0;
      burst_at <= burst_at + 32'(8 * Beats);
      if (axi_write_reply.bresp[1]) memory_failed <= 1'b1;
    end
    if (fetch_start) begin
      burst_at <= base + (32'(slot) << SLOT_BITS);
      memory_failed <= 1'b0;
    end
    if (rst) begin
      bursting <= 1'b0;
      filling <= 1'b0;
    end
  end

  // ---- control ----
  assign fetch_start = state == NAMED && fetch_ready;

  always_ff @(posedge own_clk) begin
    for (int i = 0; i < SLOTS; i++)
    if ((forwarded && slot == L'(i)) != (freed && pinned_now[L-1:0] == L'(i)))
      pins[i] <= forwarded && slot == L'(i) ? pins[i] + 1'b1 : pins[i] - 1'b1;
    if (freed && e_finish_refused) used[pinned_now[L-1:0]] <= 1'b0;
    if (changed)
      for (int i = 0; i < SLOTS; i++) if (holds[i] == changed_function) used[i] <= 1'b0;
    if (changed && changed_function == call.number) forgotten <= 1'b1;
    if (fetched) fetch_over <= 1'b1;

    case (state)
      IDLE: begin
        tag <= queue[head[S-1:0]];
        if (waits) state <= TAKE;
      end
      TAKE: state <= LOOK;
      LOOK: begin
        looked <= '0;
        found_one <= 1'b0;
        for (int i = 0; i < SLOTS; i++) if (here[i]) slot <= L'(i);
        if (here != '0) state <= FORWARD;
        else if (server_ip == '0) begin
          state <= FAIL;
          why <= FetchSilent;
        end else if (failed_to != head && (failing_all || failing == call.number)) begin
          state <= FAIL;
          why <= failing_why;
        end
        else state <= VICTIM;
      end
      // A slot per cycle: an empty one, or the least recently used one.
      VICTIM: begin
        looked <= looked + 1'b1;
        if (!looked[L] && pins[looked[L-1:0]] == '0 &&
            (!found_one || !used[looked[L-1:0]] || clock - touched[looked[L-1:0]] > oldest_age)) begin
          found_one <= 1'b1;
          oldest <= looked[L-1:0];
          oldest_age <= used[looked[L-1:0]] ? clock - touched[looked[L-1:0]] : '1;
        end
        if (looked[L]) begin
          state <= found_one ? NAMED : LOOK;
          slot  <= oldest;
        end
      end
      NAMED: begin
        used[slot] <= 1'b0;
        holds[slot] <= call.number;
        forgotten <= 1'b0;
        fetch_over <= 1'b0;
        if (fetch_ready) begin
          state <= FETCH;
          count_fetches <= count_fetches + 32'd1;
        end
      end
      FETCH: begin
        if (fetched) why <= fetch_result;
        if (fetch_over && !bursting && !body_valid) state <= STORE;
      end
      STORE: begin
        if (why == FetchOk && !memory_failed) begin
          used[slot] <= !forgotten;
          state <= FORWARD;
        end else begin
          if (why == FetchOk) why <= FetchBroken;
          state <= FAIL;
          failing <= call.number;
          failing_all <= why == FetchSilent;
          failing_why <= why == FetchOk ? FetchBroken : why;
          failed_to <= tail;
          count_failures <= count_failures + 32'd1;
        end
      end
      FORWARD:
      if (forwarded) begin
        touched[slot] <= clock;
        clock <= clock + 16'd1;
        head <= head + 1'b1;
        if (failed_to == head) failed_to <= head + 1'b1;
        state <= IDLE;
      end
      default:  // FAIL
      if (!e_finish_valid && finish_ready) begin
        head <= head + 1'b1;
        if (failed_to == head) failed_to <= head + 1'b1;
        state <= IDLE;
      end
    endcase
    if (rst) begin
      state <= IDLE;
      head <= '0;
      failed_to <= '0;
      used <= '0;
      clock <= '0;
      count_fetches <= '0;
      count_failures <= '0;
      for (int i = 0; i < SLOTS; i++) pins[i] <= '0;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || request_valid || e_finish_valid || changed || change_taken || state != IDLE || waits ||
             bursting || fetched),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  waiting_calls_are_bounded : assert property (@(posedge clk) disable iff (rst)
      tail - head <= (S + 1)'(SESSIONS));
  freed_slots_are_pinned : assert property (@(posedge clk) disable iff (rst)
      freed |-> pins[pinned_now[L-1:0]] != '0);
  // A slot from which a call may be loaded is not replaced.
  fetches_replace_free_slots : assert property (@(posedge clk) disable iff (rst)
      fetch_start |-> pins[slot] == '0);
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      e_request_valid && !e_request_ready |=> e_request_valid);
  bursts_stay : assert property (@(posedge clk) disable iff (rst)
      awvalid && !axi_write_reply.awready |=> awvalid && $stable(burst_at));
  data_stay : assert property (@(posedge clk) disable iff (rst)
      wvalid && !axi_write_reply.wready |=>
      wvalid && $stable({axi_write.wdata, axi_write.wstrb, wlast}));
  bursts_are_in_the_slot : assert property (@(posedge clk) disable iff (rst)
      state == FETCH && awvalid |->
      burst_at - (base + (32'(slot) << SLOT_BITS)) < 32'(1 << SLOT_BITS));
`endif

endmodule
