// The HTTP server. Takes the sessions that have something to do in turn, parses their requests,
// answers what the board knows itself, and has functions called.
//
// A function's name is looked up in the function table while the rest of the head is parsed. A call is
// asked for only when the whole body is in the receive ring and there is room for its answer in the
// transmit ring: neither a slow sender nor a slow reader can hold a region. From then on the session
// waits and others have their turns, until the function engine has granted a region, whose http_call
// moves body and answer, and has said how it ended. So a session has one call under way, which keeps its
// answers in order, and as many calls run as there are regions.
//
// Whatever a request lacks, its state is saved and the next session has its turn.
//
// Parameters: SESSIONS; REGIONS; the rings' bits; MEMORY_LATENCY; BODY_BYTES, the longest body; METRICS, as
// http_text counts them.
module http_engine
  import http_pkg::*;
  import functions_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int REGIONS = 4,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    parameter  int BODY_BYTES = 1048576,
    parameter  int METRICS = 8 + 2 * REGIONS,
    localparam int S = $clog2(SESSIONS),
    localparam int R = $clog2(REGIONS)
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [8*KEY_BYTES-1:0] api_key,       // that a request must bring; zeros: none
    // sessions
    input  logic                open,
    input  logic [S-1:0]        open_at,
    input  logic [31:0]         open_next,
    input  logic [31:0]         open_una,
    input  logic                arrived,
    input  logic [S-1:0]        arrived_at,
    input  logic                woken,
    input  logic [S-1:0]        woken_at,
    input  logic [31:0]         rcv_next   [SESSIONS],
    input  logic [SESSIONS-1:0] rcv_ended,
    input  logic [31:0]         snd_una    [SESSIONS],
    input  logic [SESSIONS-1:0] dead,
    input  logic [SESSIONS-1:0] shut,
    output logic [31:0]         read_to    [SESSIONS],
    output logic [31:0]         written_to [SESSIONS],
    output logic [SESSIONS-1:0] finish,
    output logic                notify,
    output logic [S-1:0]        notify_at,
    output logic                release_valid,
    output logic [S-1:0]        release_at,
    // rings
    output logic                rx_read,
    output logic [S+RX_RING_BITS-4:0] rx_read_address,
    input  logic [63:0]         rx_read_data,
    output logic                tx_write,
    output logic [S+TX_RING_BITS-4:0] tx_write_address,
    output logic [63:0]         tx_write_data,
    output logic [7:0]          tx_write_keep,
    // into a receive ring: a chunked body put together
    output logic                fill_write,
    input  logic                fill_ready,       // for one more than the one that was given in the cycle before
    input  logic                fill_waits,       // one has not been written yet
    output logic [S+RX_RING_BITS-4:0] fill_address,
    output logic [63:0]         fill_data,
    output logic [7:0]          fill_keep,
    // the function table
    output logic                find_valid,
    input  logic                find_ready,
    output name_t               find_name,
    input  logic                found_valid,
    input  logic                found,
    input  logic [NUMBER_BITS-1:0] found_function,
    output logic [NUMBER_BITS-1:0] entry_of,
    input  entry_t              entry,
    input  logic                changed,          // some function is not what it was
    output logic                listing,          // the table is to stay as it is
    output logic [NUMBER_BITS-1:0] slot_of,
    output logic                slot_word,
    input  logic                slot_used,
    input  logic [63:0]         slot_name,
    // the function engine; a call's tag is its session
    output logic                request_valid,
    input  logic                request_ready,
    output logic [S-1:0]        request_tag,
    output logic [NUMBER_BITS-1:0] request_function,
    output logic [31:0]         request_cost,
    output logic [31:0]         request_timeout,
    output logic [31:0]         request_image,
    output logic [127:0]        request_params,
    input  logic                grant,
    input  logic [R-1:0]        grant_region,
    input  logic [S-1:0]        grant_tag,
    input  logic [REGIONS-1:0]  next_valid,       // the call that a region is likely granted next
    input  logic [S-1:0]        next_tag   [REGIONS],
    input  logic                finish_valid,
    output logic                finish_ready,
    input  logic [S-1:0]        finish_tag,
    input  logic [R-1:0]        finish_region,
    input  logic                finish_killed,
    input  logic                finish_refused,   // its image
    // regions
    output logic [REGIONS-1:0]  k_valid,
    input  logic [REGIONS-1:0]  k_ready,
    output logic [63:0]         k_data     [REGIONS],
    output logic [7:0]          k_keep     [REGIONS],
    output logic [REGIONS-1:0]  k_last,
    input  logic [REGIONS-1:0]  r_valid,
    output logic [REGIONS-1:0]  r_ready,
    input  logic [63:0]         r_data     [REGIONS],
    input  logic [7:0]          r_keep     [REGIONS],
    input  logic [REGIONS-1:0]  r_last,
    // numbers for /metrics, the first two are counted here
    input  logic [31:0]         metrics    [METRICS],
    output logic [31:0]         count_requests,
    output logic [31:0]         count_errors,
    output logic                busy
);

  typedef enum logic [4:0] {
    PICK,
    LOAD,
    PARSE,
    DECIDE,
    CALL,      // a call is asked for
    LIST,      // the list of functions, first only for its length
    HEAD,
    LENGTH,
    TAG,       // the request's id
    TAG_ID,
    HEAD_END,
    BODY,
    NUMBER,
    DIGITS,
    FLUSH,
    COMMIT,
    SAVE
  } state_t;

  state_t state;
  logic [S-1:0] s;
  logic [SESSIONS-1:0] ready, fresh, active;
  logic [SESSIONS-1:0] calling;  // its call is under way: it has no turn
  logic [SESSIONS-1:0] stale;    // functions have changed since its function was looked up
  text_t outcome[SESSIONS];      // of a call that has failed, else TEXT_END
  request_t requests[SESSIONS];
  request_t c, parsed;
  logic [31:0] at;      // the next byte of the stream

  // ---- the rings' ports: this one's own, and those of the regions' calls ----
  logic [REGIONS:0] rx_wants, rx_may, rx_reads, tx_writes;
  logic [REGIONS-1:0] tx_wants, tx_may;
  logic [S+RX_RING_BITS-4:0] rx_addresses[REGIONS+1];
  logic [S+TX_RING_BITS-4:0] tx_addresses[REGIONS+1];
  logic [63:0] tx_data[REGIONS+1];
  logic [7:0] tx_keep[REGIONS+1];

  // ---- whose turn is next ----
  logic [2:0] turns;  // requests that this session may still have before the others
  logic [S-1:0] pick_from, pick_next;
  logic [SESSIONS-1:0] pick_after;

  function automatic logic [S-1:0] first_of(input logic [SESSIONS-1:0] set);
    first_of = '0;
    for (int i = SESSIONS - 1; i >= 0; i--) if (set[i]) first_of = S'(i);
  endfunction

  logic [SESSIONS-1:0] pickable;
  assign pickable = ready & ~calling;
  assign busy = state != PICK || |pickable || |calling;
  assign pick_after = pickable & ({SESSIONS{1'b1}} << pick_from);
  assign pick_next  = |pick_after ? first_of(pick_after) : first_of(pickable);

  // ---- reading ----
  logic reader_start;
  logic [31:0] arrived_to;
  logic [127:0] bytes;
  logic [4:0] count, take, parse_take;
  logic drained, moved, broken, too_big;
  logic looking, looks;  // for a function's name; and nothing else can be done meanwhile
  name_t parsed_name;

  // A peer's FIN takes a sequence number but is no byte.
  assign arrived_to = rcv_next[s] - 32'(rcv_ended[s]);

  // A head and some more: what is behind a head is the call's to read.
  http_ahead #(
      .SESSION_BITS  (S),
      .RING_BITS     (RX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .WORDS         (16)
  ) u_reader (
      .clk,
      .rst,
      .start       (reader_start),
      .session     (s),
      .from        (at),
      .up_to       (arrived_to),
      // The session whose turn is next.
      .ahead       (|pickable && pick_next != s && !reader_start && !(state inside {PICK, LOAD})),
      .ahead_session(pick_next),
      .ahead_from  (read_to[pick_next] + (fresh[pick_next] ? 32'd0 : 32'(requests[pick_next].raw))),
      .ahead_up_to (rcv_next[pick_next] - 32'(rcv_ended[pick_next])),
      .drop        (open),
      .drop_session(open_at),
      .wants       (rx_wants[REGIONS]),
      .may         (rx_may[REGIONS]),
      .read        (rx_reads[REGIONS]),
      .read_address(rx_addresses[REGIONS]),
      .read_data   (rx_read_data),
      .bytes,
      .count,
      .drained,
      .take
  );

  http_parse #(
      .BODY_BYTES(BODY_BYTES)
  ) u_parse (
      .from(c),
      .api_key,
      .bytes,
      .count,
      .scalars(entry.scalars),
      .to(parsed),
      .word(parsed_name),
      .take(parse_take),
      .moved,
      .broken,
      .too_big
  );

  // ---- putting a chunked body together: where it begins in its ring, which `read_to` says until it is used ----
  localparam int RawMost = (1 << RX_RING_BITS) - (1 << (RX_RING_BITS - 3));  // what chunks may take of the ring
  logic in_chunks, chunk_moves, chunks_over, fill_start, fill_flush, fill_dirty, pending;
  logic [3:0] chunk_take;
  logic [31:0] unused_fill_position;
  assign in_chunks = c.place inside {AT_CHUNK_SIZE, AT_CHUNK_REST, AT_CHUNK, AT_CHUNK_END, AT_TRAILER, AT_TRAILER_REST};
  // The chunks come once the head is known to be in order, and a client that waits for it has its 100.
  assign pending = c.chunked && !c.together;
  assign chunks_over = in_chunks && (c.too_long || at - read_to[s] > 32'(RawMost) ||
      25'(c.length) + 25'(c.chunk) > 25'(BODY_BYTES));
  // What is left in the writer is written out when no more comes at once, and before anything else is done.
  assign fill_start = state == PARSE && !fill_dirty && (reader_start || c.place == AT_CHUNK_SIZE);
  assign fill_flush = state == PARSE && fill_dirty && !chunk_moves && fill_ready;
  assign chunk_take = c.chunk < 24'd8 && 5'(c.chunk[3:0]) <= count ? c.chunk[3:0] : count < 5'd8 ? count[3:0] : 4'd8;
  assign chunk_moves = state == PARSE && !reader_start && !looks && c.place == AT_CHUNK && fill_ready && count != '0;

  http_writer #(
      .SESSION_BITS(S),
      .RING_BITS   (RX_RING_BITS)
  ) u_fill (
      .clk,
      .rst,
      .start        (fill_start),
      .session      (s),
      .from         (read_to[s] + 32'(c.length)),
      .valid        (chunk_moves),
      .data         (bytes[63:0]),
      .length       (chunk_take),
      .flush        (fill_flush),
      .position     (unused_fill_position),
      .write        (fill_write),
      .write_address(fill_address),
      .write_data   (fill_data),
      .write_keep   (fill_keep)
  );

  // ---- writing ----
  logic writer_start, writer_valid, writer_flush;
  logic [31:0] writer_from, position;
  logic [63:0] writer_data;
  logic [3:0] writer_length;

  http_writer #(
      .SESSION_BITS(S),
      .RING_BITS   (TX_RING_BITS)
  ) u_writer (
      .clk,
      .rst,
      .start        (writer_start),
      .session      (s),
      .from         (writer_from),
      .valid        (writer_valid),
      .data         (writer_data),
      .length       (writer_length),
      .flush        (writer_flush),
      .position,
      .write        (tx_writes[REGIONS]),
      .write_address(tx_addresses[REGIONS]),
      .write_data   (tx_data[REGIONS]),
      .write_keep   (tx_keep[REGIONS])
  );

  arbiter #(
      .N(REGIONS + 1)
  ) u_rx (
      .clk,
      .rst,
      .enable (1'b1),
      .request(rx_wants),
      .grant  (rx_may)
  );

  // What is written here is short, and does not wait.
  arbiter #(
      .N(REGIONS)
  ) u_tx (
      .clk,
      .rst,
      .enable (!writer_valid && !writer_flush),
      .request(tx_wants),
      .grant  (tx_may)
  );

  // Who was given a port uses it a cycle later.
  always_comb begin
    rx_read = |rx_reads;
    tx_write = |tx_writes;
    rx_read_address = '0;
    tx_write_address = '0;
    tx_write_data = '0;
    tx_write_keep = '0;
    for (int i = 0; i <= REGIONS; i++) begin
      if (rx_reads[i]) rx_read_address = rx_addresses[i];
      if (tx_writes[i]) begin
        tx_write_address = tx_addresses[i];
        tx_write_data = tx_data[i];
        tx_write_keep = tx_keep[i];
      end
    end
  end

  // ---- texts ----
  text_t text, ending, shown;
  logic want_body, text_ready, text_last, text_empty;
  logic [7:0] word;
  logic [63:0] text_data;
  logic [3:0] text_length;
  logic [4:0] metric;

  http_text #(
      .REGIONS(REGIONS)
  ) u_text (
      .clk,
      .text  (shown),
      .want_body,
      .word,
      .ready (text_ready),
      .data  (text_data),
      .length(text_length),
      .last  (text_last),
      .empty (text_empty),
      .metric
  );

  // ---- the answer ----
  logic [31:0] digits;          // its length, eight decimal digits
  logic with_length, with_body, closing, then_discard;
  logic [23:0] left;            // bytes of the request's body
  logic [31:0] room, free_space;

  // ---- the list of functions ----
  logic list_start, list_valid, list_last, list_counts, list_waits;
  logic [63:0] list_data;
  logic [3:0] list_length;

  http_list #(
      .SLOTS(FUNCTIONS)
  ) u_list (
      .clk,
      .rst,
      .start(list_start),
      .valid(list_valid),
      .data(list_data),
      .length(list_length),
      .last(list_last),
      .slot(slot_of),
      .slot_word,
      .slot_used,
      .slot_name
  );

  // ---- numbers of /metrics: one bit a cycle ----
  logic [31:0] binary;
  logic [39:0] decimal, adjusted;
  logic [5:0] bits_left;

  always_comb begin
    for (int i = 0; i < 10; i++)
    adjusted[4*i+:4] = decimal[4*i+:4] > 4'd4 ? decimal[4*i+:4] + 4'd3 : decimal[4*i+:4];
  end

  // ---- what a complete head asks for ----
  function automatic logic persists(input request_t r);
    return !r.close && (!r.http10 || r.keep);
  endfunction

  function automatic text_t ending_of(input request_t r);
    return !persists(r) ? TEXT_END_CLOSE : r.http10 ? TEXT_END_KEEP : TEXT_END;
  endfunction

  logic persistent, wrong_method, may_run, stranger;
  logic [5:0] id_left;
  logic [31:0] ring_bytes, body_there;

  assign ring_bytes = 32'(1 << TX_RING_BITS);
  assign free_space = ring_bytes - (written_to[s] - snd_una[s]);

  // ---- looking up a function's name ----
  // What cannot go on before the answer is there.
  assign looks = looking ? broken || too_big || !moved || c.place inside {AT_KEY, AT_BODY} :
      c.place == AT_NAME && c.route == ROUTE_FUNCTION && !find_ready;
  assign find_valid = state == PARSE && !reader_start && moved && !broken && !too_big && c.place == AT_NAME &&
      c.route == ROUTE_FUNCTION && parsed.place != AT_PATH_REST;
  assign find_name = parsed_name;
  assign entry_of = found_valid ? found_function : c.number;
  assign persistent = persists(c);
  assign wrong_method = c.route == ROUTE_FUNCTION ? c.method != METHOD_POST :
      !(c.method inside {METHOD_GET, METHOD_HEAD});
  // Whoever knows the key may ask for anything; anybody may ask whether the board is well.
  assign stranger = api_key != '0 && !c.authorized && c.route != ROUTE_HEALTH;
  assign body_there = arrived_to - at;
  // An answer may be four times as long as its request, and more if nothing else waits.
  assign room = 32'd4096 + {6'd0, c.length, 2'b00};
  assign may_run = !pending && (c.together || body_there >= 32'(c.length)) &&
      free_space >= (room > ring_bytes ? ring_bytes : room);

  // ---- calls ----
  assign request_valid = state == CALL;
  assign request_tag = s;
  assign request_function = c.number;
  assign request_cost = entry.speed > 32'd7 ? '1 : ({1'b0, c.length, 7'd0} >> (4'd10 - 4'(entry.speed)));
  assign request_timeout = entry.timeout;
  assign request_image = entry.image;
  assign request_params = c.params;

  request_t granted;
  logic [REGIONS-1:0] starts, completes, overs, takes;
  logic [31:0] answers_to[REGIONS];
  logic finished;
  assign granted = requests[grant_tag];

  for (genvar i = 0; i < REGIONS; i++) begin : g_call
    assign starts[i] = grant && grant_region == R'(i);
    assign takes[i] = finished && !finish_refused && finish_region == R'(i);
    http_call #(
        .SESSION_BITS  (S),
        .RX_RING_BITS  (RX_RING_BITS),
        .TX_RING_BITS  (TX_RING_BITS),
        .MEMORY_LATENCY(MEMORY_LATENCY)
    ) u_call (
        .clk,
        .rst,
        .start           (starts[i]),
        .session         (grant_tag),
        .body_at         (read_to[grant_tag]),
        .body_bytes      (granted.length),
        .answer_at       (written_to[grant_tag]),
        .room            (ring_bytes - (written_to[grant_tag] - snd_una[grant_tag]) - 32'd1024),
        .ending          (ending_of(granted)),
        .id              (granted.id),
        .id_bytes        (granted.id_bytes),
        .ahead           (next_valid[i]),
        .ahead_session   (next_tag[i]),
        .ahead_body_at   (read_to[next_tag[i]]),
        .ahead_body_bytes(requests[next_tag[i]].length),
        .complete        (completes[i]),
        .over            (overs[i]),
        .answer_to       (answers_to[i]),
        .taken           (takes[i]),
        .rx_wants        (rx_wants[i]),
        .rx_may          (rx_may[i]),
        .rx_read         (rx_reads[i]),
        .rx_read_address (rx_addresses[i]),
        .rx_read_data,
        .tx_wants        (tx_wants[i]),
        .tx_may          (tx_may[i]),
        .tx_write        (tx_writes[i]),
        .tx_write_address(tx_addresses[i]),
        .tx_write_data   (tx_data[i]),
        .tx_write_keep   (tx_keep[i]),
        .k_valid         (k_valid[i]),
        .k_ready         (k_ready[i]),
        .k_data          (k_data[i]),
        .k_keep          (k_keep[i]),
        .k_last          (k_last[i]),
        .r_valid         (r_valid[i]),
        .r_ready         (r_ready[i]),
        .r_data          (r_data[i]),
        .r_keep          (r_keep[i]),
        .r_last          (r_last[i])
    );
  end

  // A call's end is seen when its answer has been moved too, in a cycle in which this one says nothing to TCP.
  logic [31:0] after_body;
  logic finish_well;
  assign finish_ready = (finish_refused || completes[finish_region]) && !(state inside {COMMIT, SAVE});
  assign finished = finish_valid && finish_ready;
  assign finish_well = !finish_refused && !finish_killed && !overs[finish_region];
  assign after_body = read_to[finish_tag] +
      (requests[finish_tag].together ? 32'(requests[finish_tag].raw) : 32'(requests[finish_tag].length));

  always_comb begin
    take = '0;
    case (state)
      // What shows while the reader starts is another session's.
      PARSE:
      if (reader_start) take = '0;
      else if (c.place == AT_DISCARD) take = 24'(count) > left ? left[4:0] : count;
      else if (c.place == AT_END) take = count;
      else if (c.place == AT_CHUNK) take = chunk_moves ? 5'(chunk_take) : 5'd0;
      else if (!broken && !too_big && !looks) take = parse_take;
      default: ;
    endcase
  end

  always_comb begin
    writer_valid  = 1'b0;
    writer_data   = text_data;
    writer_length = text_length;
    case (state)
      LIST: begin
        writer_valid  = list_valid && !list_counts;
        writer_data   = list_data;
        writer_length = list_length;
      end
      HEAD, TAG, HEAD_END, BODY: writer_valid = text_ready && !text_empty && !writer_start;
      TAG_ID: begin
        writer_valid  = 1'b1;
        writer_data   = c.id[64*word[2:0]+:64];
        writer_length = id_left > 6'd8 ? 4'd8 : id_left[3:0];
      end
      LENGTH: begin
        writer_valid  = 1'b1;
        writer_data   = decimal_text(digits);
        writer_length = 4'd8;
      end
      DIGITS: begin
        writer_valid = 1'b1;
        for (int i = 0; i < 8; i++)
        writer_data[8*i+:8] = 8'h30 + 8'(decimal[36-4*i+:4]);
        writer_length = 4'd8;
        if (word[0]) begin
          writer_data   = {40'd0, 8'h0a, 8'h30 + 8'(decimal[3:0]), 8'h30 + 8'(decimal[7:4])};
          writer_length = 4'd3;
        end
      end
      default: ;
    endcase
  end

  // The next part is looked up while a part that is no text is written.
  assign shown = state inside {HEAD_END, TAG_ID} || (state == LENGTH && c.id_bytes == '0) ? ending :
      state inside {TAG, LENGTH} ? TEXT_TAG : text;
  assign id_left = c.id_bytes - {word[2:0], 3'b000};
  assign want_body = state == BODY;
  assign writer_flush = state == FLUSH;

  // In one place, so that they fit a memory with one port for it.
  request_t saved;
  always_ff @(posedge clk) if (state == SAVE || state == CALL) requests[s] <= saved;
  always_comb begin
    saved = c;
    if (c.place == AT_DISCARD) saved.length = left;
    saved.raw = in_chunks || c.together ? 24'(at - read_to[s]) : '0;
  end

  always_ff @(posedge clk) begin
    reader_start <= 1'b0;
    writer_start <= 1'b0;
    notify <= 1'b0;
    release_valid <= 1'b0;
    list_start <= 1'b0;
    at <= at + 32'(take);
    if (chunk_moves) fill_dirty <= 1'b1;
    else if (fill_flush) fill_dirty <= 1'b0;

    case (state)
      PICK:
      if (|pickable) begin
        s <= pick_next;
        pick_from <= pick_next + 1'b1;
        ready[pick_next] <= 1'b0;
        state <= LOAD;
      end

      LOAD:
      // A session may be over since it became ready.
      if (!active[s]) state <= PICK;
      else if (dead[s]) begin
        active[s] <= 1'b0;
        release_valid <= 1'b1;
        release_at <= s;
        finish[s] <= 1'b0;
        state <= PICK;
      end else begin
        c <= fresh[s] ? '0 : requests[s];
        // Nothing can be answered any more: what comes is dropped.
        if (shut[s] || finish[s]) c.place <= AT_END;
        fresh[s] <= 1'b0;
        at <= read_to[s] + (fresh[s] ? 32'd0 : 32'(requests[s].raw));
        turns <= '1;
        left <= requests[s].length;
        reader_start <= 1'b1;
        state <= PARSE;
      end

      PARSE:
      if (reader_start || looks) begin
      end else if (c.place == AT_BODY) begin
        if (pending && !(c.coded || c.too_long || c.http10 || c.has_length) && (c.continued || !c.expect_100)) begin
          c.place <= AT_CHUNK_SIZE;
          c.length <= '0;
          c.chunk <= '0;
          c.digits <= 1'b0;
          c.head_bytes <= '0;
          read_to[s] <= at;
        end else if (!fill_dirty && !fill_waits) state <= DECIDE;
      end else if (chunks_over) begin
        c.too_long <= 1'b1;
        if (!fill_dirty) state <= DECIDE;
      end else if (c.place == AT_CHUNK) begin
        if (chunk_moves) begin
          c.chunk  <= c.chunk - 24'(chunk_take);
          c.length <= c.length + 24'(chunk_take);
          if (c.chunk == 24'(chunk_take)) begin
            c.place <= AT_CHUNK_END;
            c.head_bytes <= '0;
          end
        end else if (drained && count == '0 && !fill_dirty) begin
          state <= SAVE;
          if (rcv_ended[s]) begin
            finish[s] <= 1'b1;
            c.place   <= AT_END;
          end
        end
      end
      else if (c.place == AT_DISCARD) begin
        left <= left - 24'(take);
        if (left == 24'(take)) c <= '0;
        else if (take == '0 && drained) state <= SAVE;
      end else if (c.place == AT_END) begin
        if (drained) state <= SAVE;
      end else if (broken || too_big) begin
        text <= broken ? TEXT_400 : TEXT_431;
        with_length <= 1'b0;
        with_body <= 1'b1;
        word <= '0;
        closing <= 1'b1;
        then_discard <= 1'b0;
        ending <= TEXT_END_CLOSE;
        state <= HEAD;
        writer_start <= 1'b1;
        writer_from <= written_to[s];
        if (free_space < 32'd4096) begin  // no room: it is closed without a word
          finish[s] <= 1'b1;
          c.place <= AT_END;
          writer_start <= 1'b0;
          state <= SAVE;
        end
      end else if (moved) begin
        c <= parsed;
        if (find_valid) begin  // the table is free, else `looks`
          looking <= 1'b1;
          stale[s] <= 1'b0;
        end
      end else if (drained && !fill_dirty) begin
        state <= SAVE;
        // The peer has closed: nothing more will come.
        if (rcv_ended[s]) begin
          finish[s] <= 1'b1;
          c.place   <= AT_END;
        end
      end

      DECIDE: begin
        with_length <= 1'b0;
        with_body <= c.method != METHOD_HEAD;
        closing <= !persistent;
        ending <= ending_of(c);
        then_discard <= 1'b1;
        writer_from <= written_to[s];
        left <= c.together ? '0 : c.length;
        word <= '0;
        metric <= '0;
        state <= HEAD;
        writer_start <= 1'b1;
        if (c.coded || c.too_long || (pending && (c.http10 || c.has_length))) begin
          // A length and chunks: whoever sees only one of them would see another request (RFC 9112 section 6.3).
          text <= c.coded ? TEXT_501 : c.too_long ? TEXT_413 : TEXT_400;
          closing <= 1'b1;
          ending <= TEXT_END_CLOSE;
        end else if (c.bad || (!c.http10 && !c.has_host)) text <= TEXT_400;
        else if (stranger) text <= TEXT_401;
        else if (c.route == ROUTE_NONE || c.route == ROUTE_SYSTEM) text <= TEXT_404;
        else if (wrong_method) text <= c.route == ROUTE_FUNCTION ? TEXT_405_POST : TEXT_405_GET;
        else
          case (c.route)
            ROUTE_HEALTH: text <= TEXT_HEALTH;
            ROUTE_METRICS: text <= TEXT_METRICS;
            ROUTE_FUNCTIONS: begin
              text <= TEXT_FUNCTIONS;
              with_length <= 1'b1;
              digits <= '0;
              listing <= 1'b1;
              list_waits <= 1'b1;
              list_counts <= 1'b1;
              state <= LIST;
            end
            default: begin
              if (outcome[s] != TEXT_END) text <= outcome[s];
              else if (stale[s]) text <= TEXT_503_CHANGED;
              else if (may_run) begin
                state <= CALL;
                writer_start <= 1'b0;
              end else if (c.expect_100 && !c.continued && (pending || body_there < 32'(c.length))) begin
                text <= TEXT_CONTINUE;
                c.continued <= 1'b1;
              end else begin
                state <= SAVE;
                writer_start <= 1'b0;
                if (rcv_ended[s] && !c.together && body_there < 32'(c.length)) begin
                  finish[s] <= 1'b1;
                  c.place   <= AT_END;
                end
              end
            end
          endcase
        // A client that waits for 100 may or may not send the body after an error.
        if (c.expect_100 && !c.continued && (c.route != ROUTE_FUNCTION || wrong_method || c.bad || stranger || (pending && stale[s]))) begin
          closing <= 1'b1;
          ending  <= TEXT_END_CLOSE;
        end
        if (free_space < 32'd4096) begin
          state <= SAVE;
          writer_start <= 1'b0;
          listing <= 1'b0;
          c.continued <= c.continued;
        end
      end

      // The body stays in the ring until the call has ended.
      CALL:
      if (request_ready) begin
        if (!c.together) read_to[s] <= at;
        calling[s] <= 1'b1;
        state <= PICK;
      end

      // Gone through twice: for its length, and for its text. The table stays as it is, once a change of it that
      // was under way is over.
      LIST: begin
        list_waits <= list_waits && !find_ready;
        list_start <= list_waits && find_ready;
        if (list_valid && list_counts) digits <= add_decimal(digits, list_length);
        if (list_valid && list_last) state <= list_counts ? HEAD : FLUSH;
      end

      HEAD:
      if (text_ready && !writer_start) begin
        word <= word + 8'd1;
        if (text_last || text_empty) begin
          word  <= '0;
          state <= text == TEXT_CONTINUE ? FLUSH : with_length ? LENGTH : c.id_bytes != '0 ? TAG : HEAD_END;
        end
      end
      LENGTH: state <= c.id_bytes != '0 ? TAG : HEAD_END;
      // The request's id goes with its answer.
      TAG:
      if (text_ready) begin
        word <= word + 8'd1;
        if (text_last) begin
          word  <= '0;
          state <= TAG_ID;
        end
      end
      TAG_ID: begin
        word <= word + 8'd1;
        if (id_left <= 6'd8) begin
          word  <= '0;
          state <= HEAD_END;
        end
      end
      HEAD_END:
      if (text_ready) begin
        word <= word + 8'd1;
        if (text_last) begin
          word  <= '0;
          state <= !with_body ? FLUSH : with_length ? LIST : BODY;
          list_waits <= 1'b1;
          list_counts <= 1'b0;
        end
      end
      BODY:
      if (text_ready) begin
        word <= word + 8'd1;
        if (text_last || text_empty) begin
          word <= '0;
          binary <= metrics[metric[$clog2(METRICS)-1:0]];
          decimal <= '0;
          bits_left <= 6'd32;
          state <= text == TEXT_METRICS ? NUMBER : FLUSH;
        end
      end
      NUMBER: begin
        {decimal, binary} <= {adjusted[38:0], binary, 1'b0};
        bits_left <= bits_left - 6'd1;
        if (bits_left == 6'd1) state <= DIGITS;
      end
      DIGITS: begin
        word <= word + 8'd1;
        if (word[0]) begin
          word   <= '0;
          metric <= metric + 5'd1;
          state  <= metric == 5'(METRICS - 1) ? FLUSH : BODY;
        end
      end

      FLUSH: begin
        listing <= 1'b0;
        state <= COMMIT;
      end

      COMMIT: begin
        metric <= '0;
        written_to[s] <= position;
        notify <= 1'b1;
        notify_at <= s;
        state <= PARSE;
        if (text == TEXT_CONTINUE) state <= pending ? PARSE : DECIDE;
        else begin
          read_to[s] <= at;
          count_requests <= count_requests + 32'd1;
          outcome[s] <= TEXT_END;
          if (!(text inside {TEXT_HEALTH, TEXT_METRICS, TEXT_FUNCTIONS}))
            count_errors <= count_errors + 32'd1;
          c <= '0;
          turns <= turns - 3'(|turns);
          if (closing) begin
            finish[s] <= 1'b1;
            c.place   <= AT_END;
          end else if (then_discard && left != '0) begin
            c.place <= AT_DISCARD;
          end else if (|(pickable & ~(SESSIONS'(1) << s)) && turns == '0) begin
            // Others wait: this session's next request has its turn later.
            ready[s] <= 1'b1;
            state <= SAVE;
          end
        end
      end

      default: begin  // SAVE
        if (!in_chunks && !c.together) read_to[s] <= at;
        notify <= 1'b1;
        notify_at <= s;
        state <= PICK;
      end
    endcase

    if (found_valid) begin
      looking <= 1'b0;
      c.number <= 6'(found_function);
      if (!found) begin
        c.route <= ROUTE_NONE;
        if (c.place == AT_KEY) c.place <= AT_QUERY_REST;
      end
    end
    if (changed) stale <= '1;

    // The end of a call. What failed is answered in the session's next turn.
    if (finished) begin
      calling[finish_tag] <= 1'b0;
      ready[finish_tag] <= 1'b1;
      if (finish_well) begin
        written_to[finish_tag] <= answers_to[finish_region];
        read_to[finish_tag] <= after_body;
        fresh[finish_tag] <= 1'b1;
        if (!persists(requests[finish_tag])) finish[finish_tag] <= 1'b1;
        count_requests <= count_requests + 32'd1;
        notify <= 1'b1;
        notify_at <= finish_tag;
      end else begin
        outcome[finish_tag] <= finish_refused ? TEXT_500_IMAGE : finish_killed ? TEXT_503 : TEXT_500;
      end
    end

    if (arrived) ready[arrived_at] <= 1'b1;
    if (woken) ready[woken_at] <= 1'b1;
    if (open) begin
      read_to[open_at] <= open_next;
      written_to[open_at] <= open_una;
      fresh[open_at] <= 1'b1;
      active[open_at] <= 1'b1;
      finish[open_at] <= 1'b0;
      outcome[open_at] <= TEXT_END;
    end
    if (rst) begin
      state  <= PICK;
      fill_dirty <= 1'b0;
      ready  <= '0;
      fresh  <= '0;
      active <= '0;
      finish <= '0;
      pick_from <= '0;
      count_requests <= '0;
      count_errors <= '0;
      calling <= '0;
      looking <= 1'b0;
      listing <= 1'b0;
    end
  end

endmodule
