// The HTTP server. Serves the sessions with pending work in turn, parses their requests,
// sends the replies of the board itself, and requests calls of functions.
//
// A function's name is looked up in the function table while the rest of the head is parsed. A call
// is requested only when the whole body is in the receive ring and there is space for its reply in
// the transmit ring, so that neither a slow sender nor a slow reader can hold a region. From then
// on the session waits and others are served, until the function engine has granted a region, whose
// http_call moves body and reply, and has reported the result. A session therefore has one call in
// progress, which keeps its replies in order, and there are as many calls as regions.
//
// If a request is incomplete, its state is saved and the next session is served.
//
// Positions in streams are TCP's, with the width of the rings (net_pkg::position_bits).
//
// Parameters: SESSIONS; REGIONS; the rings' bits; MEMORY_LATENCY; BODY_BYTES, the longest body;
// METRICS, as counted by http_text.
module http_engine
  import fn_pkg::*;
  import net_pkg::opened_t;
  import net_pkg::progress_t;
  import net_pkg::release_t;
  import net_pkg::ring_read_t;
  import net_pkg::ring_write_t;
  import net_pkg::session_t;
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
    localparam int R = $clog2(REGIONS),
    localparam int RxP = net_pkg::position_bits(RX_RING_BITS),
    localparam int TxP = net_pkg::position_bits(TX_RING_BITS)
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [8*KEY_BYTES-1:0] api_key,       // required in requests; zeros: none
    // sessions
    input  opened_t             opened,           // also those that the board opens, for others
    input  logic                arrived,
    input  logic [S-1:0]        arrived_at,
    input  logic                woken,
    input  logic [S-1:0]        woken_at,
    output logic [S-1:0]        rcv_of,           // session whose received stream is read,
    input  logic [RxP-1:0]      rcv_next,         // its end position,
    input  logic                rcv_ended,        // and whether it has ended
    output logic [S-1:0]        una_of,           // session whose acknowledged position is read
    input  logic [TxP-1:0]      snd_una,
    input  logic [SESSIONS-1:0] dead,
    input  logic [SESSIONS-1:0] shut,
    output progress_t           progress,
    output release_t            released,
    output logic [SESSIONS-1:0] working,          // their requests wait for the engine, or for the
                                                  // end of a call
    output logic [SESSIONS-1:0] mid_request,      // a request has begun, and waits for its rest, or
                                                  // for space for its reply
    // rings
    output logic                rx_next,          // there is a read in the next cycle
    output ring_read_t          rx_read,
    input  logic [63:0]         rx_read_data,
    output ring_write_t         tx_write,
    // into a receive ring: an assembled chunked body
    output ring_write_t         fill,
    input  logic                fill_ready,       // for one word more than those of the two
                                                  // previous cycles
    input  logic                fill_waits,       // a word is not written yet
    // the function table
    output logic                find_valid,
    input  logic                find_ready,
    output name_t               find_name,
    input  logic                found_valid,
    input  logic                found,
    input  logic [NUMBER_BITS-1:0] found_function,
    output logic [NUMBER_BITS-1:0] entry_of,
    input  entry_t              entry,
    input  logic                changed,          // a function has changed
    output logic                listing,          // the table must not change
    output logic [NUMBER_BITS-1:0] slot_of,
    output logic                slot_word,
    input  logic                slot_used,
    input  logic [63:0]         slot_name,
    // the function engine; a call's tag is its session
    output logic                request_valid,
    input  logic                request_ready,
    output logic [S-1:0]        request_tag,
    output logic [NUMBER_BITS-1:0] request_function,
    output call_t               request_call,
    input  logic                grant,
    input  logic [R-1:0]        grant_region,
    input  logic [S-1:0]        grant_tag,
    input  logic [REGIONS-1:0]  next_valid,       // the expected next call of a region
    input  logic [S-1:0]        next_tag   [REGIONS],
    input  logic                finish_valid,
    output logic                finish_ready,
    input  logic [S-1:0]        finish_tag,
    input  logic [R-1:0]        finish_region,
    input  logic                finish_killed,
    input  logic                finish_refused,   // its image was refused
    input  fetch_result_t       finish_fetch,     // or could not be fetched
    // regions
    output streams_in_t         region_in  [REGIONS],
    input  streams_out_t        region_out [REGIONS],
    // values of /metrics; the first two are counted here
    input  logic [63:0]         metrics    [METRICS],
    output logic [31:0]         count_requests,
    output logic [31:0]         count_errors,
    output logic                busy
);

  logic own_clk;  // gated while no state changes, except for calls

  logic open, notify, release_valid;
  logic [S-1:0] open_at, notify_at, release_at;
  logic [RxP-1:0] open_next;
  logic [TxP-1:0] open_una;
  assign open = opened.valid && !opened.active;
  assign open_at = opened.session[S-1:0];
  assign open_next = RxP'(opened.next);
  assign open_una = TxP'(opened.una);

  typedef enum logic [4:0] {
    PICK,
    LOAD,
    PARSE,
    CHUNKS,    // a chunked body begins
    DECIDE,
    CALL,      // a call is requested
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

  state_t state, state_before;
  logic [S-1:0] s;
  logic [SESSIONS-1:0] ready, fresh, active;
  logic [SESSIONS-1:0] calling;  // its call is in progress: the session is not served
  logic [SESSIONS-1:0] stale;    // functions have changed since its function was looked up
  logic [SESSIONS-1:0] failed;   // its call has failed, with the reason:
  text_t outcomes[SESSIONS];
  request_t c, parsed, resumed;
  logic [RxP-1:0] at;   // the next byte of the stream;
  logic [1:0] at_gone;  // words consumed in the previous cycle, not yet counted

  // Unconsumed bytes and free space for replies, with the width of the rings.
  localparam int RxBits = RX_RING_BITS + 2;
  localparam int TxBits = TX_RING_BITS + 1;
  localparam int LengthBits = $clog2(BODY_BYTES + 1);

  // ---- saved state of sessions that are not served ----
  // Each of these is written in one place, so that it fits distributed memory with one write port.
  typedef struct packed {
    logic [RxP-1:0]        body_at;
    logic [LengthBits-1:0] body_bytes;
  } body_t;
  typedef struct packed {
    logic [TxP-1:0]    answer_at;
    logic [TxBits-1:0] room;
    logic [5:0]        id_bytes;
    logic              keep_alive, close;  // as in the reply
  } pending_reply_t;

  (* ram_style = "block", no_rw_check = 1 *) request_t requests[SESSIONS];
  request_t request_next;            // of the session served next
  // No number exceeds that of the longest body, or of a chunk with as many digits (http_parse).
  always_comb begin
    resumed = request_next;
    resumed.length = 24'(request_next.length[LengthBits-1:0]);
    resumed.chunk = 24'(request_next.chunk[(LengthBits+3)/4*4-1:0]);
  end
  logic [3:0][31:0] values_here;     // of its scalars
  logic [31:0] value;                // the new value of one of them
  logic value_put;
  logic [RxP-1:0] resumes[SESSIONS]; // position at which reading resumes
  body_t bodies[SESSIONS];           // of a call: the body of its request,
  pending_reply_t called[SESSIONS];           // the data for its reply,
  logic [RxP-1:0] afters[SESSIONS];  // the end of its request,
  logic [SESSIONS-1:0] lasting;      // and whether the connection outlives it
  logic [SESSIONS-1:0] finish;       // no more data will be written,
  logic ends;                        // also by the served session once it is saved
  logic [RxP-1:0] begun_at;          // of the served session: the consumed position, as notified to
                                     // TCP,
  logic [TxP-1:0] written_at;        // and the written position

  // ---- the rings' ports: the engine's own, and those of the regions' calls ----
  logic [REGIONS:0] rx_wants, rx_may, rx_reads, writes;
  logic [REGIONS-1:0] tx_wants, tx_may;
  logic [S+RX_RING_BITS-4:0] rx_addresses[REGIONS+1];

  // ---- selection of the next session ----
  logic [2:0] turns;  // remaining requests of this session before others are served
  logic [S-1:0] pick_from, pick_next;
  logic [SESSIONS-1:0] pick_after;

  function automatic logic [S-1:0] first_of(input logic [SESSIONS-1:0] set);
    first_of = '0;
    for (int i = SESSIONS - 1; i >= 0; i--) if (set[i]) first_of = S'(i);
  endfunction

  logic [SESSIONS-1:0] pickable;
  assign pickable = ready & ~calling;
  assign working = ready | calling;
  assign busy = state != PICK || |pickable || |calling;
  assign pick_after = pickable & ({SESSIONS{1'b1}} << pick_from);
  assign pick_next  = |pick_after ? first_of(pick_after) : first_of(pickable);

  // ---- reading ----
  logic reader_start;
  logic [RxBits-1:0] arrived_to, body_there;
  logic arrived_all;     // at the end of the stream
  logic [127:0] bytes;
  kind_t [23:0] kinds;
  logic [23:0] there;
  seen_t looked, seen;   // their classification, and that of the previous cycle
  logic seen_valid, seen_drained, seen_all;
  logic may_step;        // the classification is valid for a step,
  logic steps;           // and the parser moves: the present classification is then for a wrong
                         // position
  logic ruined;          // the request is malformed,
  logic too_big_then;    // because its head is too big,
  logic version_then;    // or of another version
  logic [4:0] count, onward, parse_onward;
  logic stepped;           // in the previous cycle,
  logic [2:0] stepped_from;  // from that lane: the bytes of the head are counted now
  logic [2:0] lane;
  logic drained, moved, broken, other_version, too_big, reads;
  logic word_over;       // of a function's name
  name_t stored;         // an encoded name, so far:
  logic [63:0] stored_low;
  logic [1:0] stored_step;  // complete with the last of these
  logic looking, looks;  // a name is being looked up; other work has to wait
  name_t parsed_name;
  logic id_put;          // into the memory of requests' ids
  logic [7:0] id_byte;
  logic [3:0][63:0] scalars;
  entry_t entry_then;    // read from memory, a cycle late
  logic found_before, length_over;
  logic pending;         // chunks of a body are not assembled yet
  logic body_begun;      // a cycle late
  logic own_turn;        // the engine's turn to write

  // A peer's FIN takes a sequence number but is not a byte. One multiplexer serves the current
  // session and, every other cycle, the session that is served next.
  logic hints, hinted, opening, opens;
  logic [S-1:0] opening_at;
  logic [S-1:0] look, pick_then, hint_session;
  logic [RxP-1:0] hint_from;
  logic [RxBits-1:0] look_to, hint_to;
  assign look = hints ? pick_then : s;
  assign rcv_of = look;
  assign look_to = RxBits'(rcv_next) - RxBits'(rcv_ended);

  always_ff @(posedge own_clk) begin
    hints <= !hints && |pickable && !(state inside {PICK, LOAD});
    pick_then <= pick_next;
    if (hints) begin
      hinted <= pickable[pick_then] && pick_then != s && state != PICK;
      hint_session <= pick_then;
      hint_from <= resumes[pick_then];
      hint_to <= look_to;
    end
    if (!hints) begin
      arrived_to <= look_to;
      arrived_all <= rcv_ended;
    end
    if (rst || opens) hinted <= 1'b0;
  end

  // A head and a margin: the call reads the data after a head.
  http_ahead #(
      .SESSION_BITS  (S),
      .RING_BITS     (RX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY)
  ) u_reader (
      .clk(own_clk),
      .rst,
      .start       (reader_start),
      .session     (s),
      .from        (32'(at)),
      .up_to       (32'(arrived_to)),
      .pause       (body_begun),  // the call reads the body
      // The session that is served next.
      .ahead       (hinted && hint_session != s && !reader_start && !opening && !(state inside {PICK, LOAD})),
      .ahead_session(hint_session),
      .ahead_from  (32'(hint_from)),
      .ahead_up_to (32'(hint_to)),
      .drop        (opens),
      .drop_session(opening_at),
      .wants       (rx_wants[REGIONS]),
      .may         (rx_may[REGIONS]),
      .read        (rx_reads[REGIONS]),
      .read_address(rx_addresses[REGIONS]),
      .read_data   (rx_read_data),
      .bytes,
      .kinds,
      .there,
      .count,
      .drained,
      .lane,
      .onward,
      .busy        (reads)
  );

  http_look u_look (
      .from(c),
      .api_key,
      .scalars,
      .scalar(values_here[c.key]),
      .bytes,
      .kinds,
      .there,
      .count,
      .lane,
      .active(state == PARSE),
      .seen(looked)
  );

  http_parse #(
      .BODY_BYTES(BODY_BYTES)
  ) u_parse (
      .from(c),
      .seen,
      .lane(at[2:0]),
      .to(parsed),
      .stored,
      .word(parsed_name),
      .word_over,
      .id_put,
      .id_byte,
      .scalar_put(value_put),
      .scalar(value),
      .onward(parse_onward),
      .moved,
      .broken,
      .other_version,
      .too_big
  );

  // ---- skipped bytes: of a chunk, of a discarded body, after the end ----
  // Eight per cycle while enough remain, both visible and of their part. Otherwise a step takes two
  // cycles, like the parser's.
  typedef struct packed {
    logic       valid;
    logic       all;  // these are the last ones:
    logic [3:0] take;
  } pass_t;

  pass_t pass, seen_pass;  // for the visible bytes, and for those of the previous cycle
  logic passes, moves, plenty, many, eight;
  logic [3:0] passed;      // of a chunk, in the previous cycle
  assign passes = c.place inside {AT_CHUNK, AT_DISCARD, AT_END};
  assign plenty = many && count[4];
  assign pass = plenty ? '{valid: 1'b1, all: 1'b0, take: 4'd8} : seen_pass;
  assign moves = state == PARSE && !reader_start && passes && (c.place != AT_CHUNK || (fill_ready && own_turn)) && pass.valid && pass.take != '0;
  assign eight = |count[4:3];

  always_ff @(posedge own_clk) begin
    // Also valid with eight less.
    many <= state == PARSE && !reader_start && (c.place == AT_END || c.chunk[23:5] != '0);
    seen_pass.valid <= state == PARSE && !reader_start && passes && !moves;
    seen_pass.all <= c.place != AT_END && c.chunk[23:4] == '0 &&
        (c.chunk[3] ? eight && c.chunk[2:0] == '0 : eight || c.chunk[2:0] <= count[2:0]);
    seen_pass.take <= c.place != AT_END && c.chunk[23:3] == '0 && (eight || c.chunk[2:0] <= count[2:0]) ? {1'b0, c.chunk[2:0]} :
        eight ? 4'd8 : {1'b0, count[2:0]};
  end

  // A step of the parser takes two cycles: classification, then decision. The classification is
  // valid if no bytes were consumed since, and the parser's state is the same.
  always_ff @(posedge own_clk) begin
    seen <= looked;
    seen_drained <= drained;
    seen_all <= arrived_all;
    seen_valid <= state == PARSE && !reader_start && !steps && !passes &&
        c.place != AT_BODY && !(c.place == AT_KEY && (found_valid || found_before)) && !(c.place == AT_ENCODED && stored_step != '1);
    entry_then <= entry;
    length_over <= c.length > 24'(BODY_BYTES);
  end

  assign scalars = entry_then.scalars;
  assign may_step = state == PARSE && seen_valid && !ruined &&
      !(looking ? seen.at[AT_KEY] : (seen.at[AT_NAME] || seen.at[AT_ENCODED]) && c.route == ROUTE_FUNCTION && !find_ready);
  assign steps = may_step && moved;

  // ---- assembling a chunked body ----
  // Its start in the ring, and the consumed position until it is complete.
  // Maximum bytes of chunks in the ring.
  localparam int RawMost = (1 << RX_RING_BITS) - (1 << (RX_RING_BITS - 3));
  logic [RxP-1:0] raw;  // bytes of the ring used for it, a cycle ago, if known
  logic raw_known, in_chunks, chunk_moves, chunks_over, fill_start, fill_flush, fill_dirty;
  assign in_chunks = c.place inside {AT_CHUNK_SIZE, AT_CHUNK_REST, AT_CHUNK, AT_CHUNK_END, AT_TRAILER, AT_TRAILER_REST};
  // Chunks are read once the head is valid; a client that waits for 100 has received it.
  assign pending = c.chunked && !c.together;
  always_ff @(posedge own_clk) body_begun <= c.place == AT_BODY && !pending;
  always_ff @(posedge own_clk) begin
    raw <= at - begun_at;
    raw_known <= state == PARSE && in_chunks && at_gone == '0;
    chunks_over <= in_chunks && (c.too_long || (raw_known && raw > RxP'(RawMost)) || 25'(c.length) + 25'(c.chunk) > 25'(BODY_BYTES));
  end
  // Bytes left in the writer are written out when no more follow at once, and before other work.
  assign fill_start = state == PARSE && !fill_dirty && (reader_start || c.place == AT_CHUNK_SIZE);
  assign fill_flush = state == PARSE && fill_dirty && !chunk_moves && fill_ready && own_turn;
  assign chunk_moves = moves && c.place == AT_CHUNK;

  // ---- writing: the calls' replies, own replies, and by the same path assembled chunks ----
  localparam int LongerBits = RX_RING_BITS > TX_RING_BITS ? RX_RING_BITS : TX_RING_BITS;
  localparam int P = RxP > TxP ? RxP : TxP;
  logic writer_start, writer_valid, writer_flush;
  logic [TxP-1:0] writer_from;
  logic [63:0] writer_data;
  logic [3:0] writer_length;
  logic [REGIONS:0] puts, flushes, put_starts;
  logic [63:0] put_data[REGIONS+1];
  logic [3:0] put_length[REGIONS+1];
  logic [P-1:0] put_from[REGIONS+1], positions[REGIONS+1];
  logic [S-1:0] put_session[REGIONS+1];
  logic written, own_put, own_start;
  logic [P-1:0] own_from;
  logic [1:0] fills;  // the engine's bytes, and those written, belong to a chunk
  logic chunks_wait;
  logic [S+LongerBits-4:0] write_address;
  logic [63:0] write_data;
  logic [7:0] write_keep;
  logic [TxP-1:0] position;

  assign puts[REGIONS] = writer_valid || chunk_moves;
  assign flushes[REGIONS] = writer_flush || fill_flush;
  assign put_data[REGIONS] = state == PARSE ? bytes[63:0] : writer_data;
  assign put_length[REGIONS] = state == PARSE ? pass.take : writer_length;
  assign put_session[REGIONS] = s;
  assign put_starts[REGIONS] = own_start;
  assign put_from[REGIONS] = own_from;
  assign position = TxP'(positions[REGIONS]);

  always_ff @(posedge own_clk) begin
    own_start <= writer_start || fill_start;
    own_from <= writer_start ? P'(writer_from) : P'(begun_at) + P'(c.length);
    own_put <= !rst && (puts[REGIONS] || flushes[REGIONS]);
    fills <= {fills[0], state == PARSE};
  end

  // Own replies are short, and calls wait for them. They alternate with chunks.
  always_ff @(posedge clk) chunks_wait <= !rst && |tx_wants && !chunks_wait;
  assign own_turn = state == PARSE ? (c.place == AT_CHUNK || fill_dirty) && !chunks_wait :
      state inside {LIST, HEAD, LENGTH, TAG, TAG_ID, HEAD_END, BODY, DIGITS, FLUSH};

  http_writer #(
      .SOURCES      (REGIONS + 1),
      .SESSION_BITS (S),
      .RING_BITS    (LongerBits),
      .POSITION_BITS(P)
  ) u_writer (
      .clk,
      .rst,
      .valid        (puts),
      .flush        (flushes),
      .data         (put_data),
      .length       (put_length),
      .start        (put_starts),
      .from         (put_from),
      .session      (put_session),
      .position     (positions),
      .write        (written),
      .writes,
      .write_address,
      .write_data   (write_data),
      .write_keep   (write_keep)
  );

  assign fill = '{
    valid:   written && writes[REGIONS] && fills[1],
    address: 32'({write_address[LongerBits-3+:S], write_address[RX_RING_BITS-4:0]}),
    data:    write_data,
    keep:    write_keep
  };
  assign tx_write = '{
    valid:   written && !(writes[REGIONS] && fills[1]),
    address: 32'({write_address[LongerBits-3+:S], write_address[TX_RING_BITS-4:0]}),
    data:    write_data,
    keep:    write_keep
  };

  arbiter #(
      .N(REGIONS + 1)
  ) u_rx (
      .clk,
      .rst,
      .enable (1'b1),
      .request(rx_wants),
      .grant  (rx_may)
  );

  arbiter #(
      .N(REGIONS)
  ) u_tx (
      .clk,
      .rst,
      .enable (!own_turn),
      .request(tx_wants),
      .grant  (tx_may)
  );

  // A granted port is used a cycle later.
  always_comb begin
    rx_next = |(rx_wants & rx_may);
    rx_read = '{valid: |rx_reads, address: '0};
    for (int i = 0; i <= REGIONS; i++) if (rx_reads[i]) rx_read.address = 32'(rx_addresses[i]);
  end

  // ---- texts ----
  text_t text, ending;
  logic want_body, want_tag, want_end, text_ready, text_last, text_empty;
  logic [2:0] word;
  logic [63:0] text_data;
  logic [3:0] text_length;
  logic [4:0] metric;

  http_text #(
      .REGIONS(REGIONS)
  ) u_text (
      .clk(own_clk),
      .text,
      .want_body,
      .want_tag,
      .want_end,
      .ending,
      .wanted(state inside {HEAD, TAG, HEAD_END, BODY}),
      .same  (state == state_before),  // a state has one part or several
      .next  (text_ready && !writer_start),
      .ready (text_ready),
      .data  (text_data),
      .length(text_length),
      .last  (text_last),
      .empty (text_empty),
      .metric
  );

  // ---- the reply ----
  logic [31:0] digits;          // its length, eight decimal digits
  logic with_length, with_body, closing, then_discard;
  logic [31:0] room;
  logic [TxBits-1:0] free_space;

  // ---- the list of functions ----
  logic list_start, list_valid, list_last, list_counts, list_waits, counted;
  logic [3:0] counted_length;
  logic [63:0] list_data;
  logic [3:0] list_length;

  http_list #(
      .SLOTS(FUNCTIONS)
  ) u_list (
      .clk(own_clk),
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

  // ---- values of /metrics: one bit per cycle ----
  logic [63:0] binary;
  logic [79:0] decimal, adjusted;
  logic [5:0] bits_left;

  always_comb begin
    for (int i = 0; i < 20; i++)
    adjusted[4*i+:4] = decimal[4*i+:4] > 4'd4 ? decimal[4*i+:4] + 4'd3 : decimal[4*i+:4];
  end

  // ---- the request of a complete head ----
  function automatic logic persists(input request_t r);
    return !r.close && (!r.http10 || r.keep);
  endfunction

  function automatic text_t ending_of(input request_t r);
    return !persists(r) ? TEXT_END_CLOSE : r.http10 ? TEXT_END_KEEP : TEXT_END;
  endfunction

  logic persistent, wrong_method, may_run, stranger, all_there;
  text_t refusal;
  logic [5:0] id_left;
  localparam int RingBytes = 1 << TX_RING_BITS;
  // Minimum free space for a reply. The longest own replies, /metrics and the list of functions,
  // are shorter.
  localparam int Least = RingBytes < 8192 ? RingBytes / 2 : 4096;
  if (TX_RING_BITS < 12) $error("TX_RING_BITS must be at least 12: a ring must hold the list of functions");

  // A cycle late: writes are notified two cycles before they are needed.
  always_ff @(posedge own_clk) free_space <= TxBits'(RingBytes) - (TxBits'(written_at) - TxBits'(snd_una));
  assign una_of = s;

  // ---- looking up a function's name ----
  // States that cannot continue before the result.
  assign looks = looking ? c.place inside {AT_KEY, AT_BODY} : c.place inside {AT_NAME, AT_ENCODED} && c.route == ROUTE_FUNCTION && !find_ready;
  assign find_valid = state == PARSE && seen_valid && !ruined && !too_big && word_over;
  assign find_name = parsed_name;
  assign entry_of = found_valid ? found_function : c.number;
  assign persistent = persists(c);
  assign refusal = refusal_of(c, pending, length_over);
  assign wrong_method = c.route == ROUTE_FUNCTION ? c.method != METHOD_POST :
      !(c.method inside {METHOD_GET, METHOD_HEAD});
  // The key authorizes all requests; /healthz needs no key.
  assign stranger = api_key[7:0] != '0 && !c.authorized && c.route != ROUTE_HEALTH;
  assign body_there = arrived_to - RxBits'(at);
  // A reply may be four times as long as its request, or longer if no other data waits.
  assign room = 32'(Least) + {6'd0, c.length, 2'b00};
  assign all_there = 32'(body_there) >= 32'(c.length);
  assign may_run = !pending && (c.together || all_there) && 32'(free_space) >= (room > 32'(RingBytes) ? 32'(RingBytes) : room);

  // ---- calls ----
  assign request_valid = state == CALL;
  assign request_tag = s;
  assign request_function = c.number;
  assign request_call.cost = entry_then.speed > 32'd7 ? '1 : ({1'b0, c.length, 7'd0} >> (4'd10 - 4'(entry_then.speed)));
  assign request_call.timeout = entry_then.timeout;
  assign request_call.image = entry_then.image;
  always_comb for (int k = 0; k < 4; k++) request_call.params[32*k+:32] = c.keys[k] ? values_here[k] : '0;

  body_t granted_body;
  pending_reply_t granted;
  logic [REGIONS-1:0] starts, completes, overs, takes;
  logic [TxP-1:0] answers_to[REGIONS];
  logic finished;
  logic [REGIONS:0] id_reads;
  logic [S-1:0] id_sessions[REGIONS+1];
  logic [2:0] id_words[REGIONS+1];
  logic [63:0] id_data[REGIONS+1];
  assign granted_body = bodies[grant_tag];
  assign granted = called[grant_tag];

  // Expected calls, a cycle late.
  logic [REGIONS-1:0] hint_valid;
  logic [S-1:0] hint_tag[REGIONS];
  body_t hint_body[REGIONS];
  always_ff @(posedge clk) begin
    for (int i = 0; i < REGIONS; i++) begin
      hint_valid[i] <= next_valid[i] && !starts[i] && !rst;  // a call granted now is no longer
                                                             // expected
      hint_tag[i]   <= next_tag[i];
      hint_body[i]  <= bodies[next_tag[i]];
    end
  end

  for (genvar i = 0; i < REGIONS; i++) begin : g_call
    logic [TxP-1:0] put_at;
    assign put_from[i] = P'(put_at);
    assign starts[i] = grant && grant_region == R'(i);
    assign takes[i] = finished && !finish_refused && finish_region == R'(i);
    http_call #(
        .SESSION_BITS  (S),
        .RX_RING_BITS  (RX_RING_BITS),
        .TX_RING_BITS  (TX_RING_BITS),
        .MEMORY_LATENCY(MEMORY_LATENCY),
        .RX_POSITION_BITS(RxP),
        .TX_POSITION_BITS(TxP)
    ) u_call (
        .clk,
        .rst,
        .start           (starts[i]),
        .session         (grant_tag),
        .body_at         (granted_body.body_at),
        .body_bytes      (24'(granted_body.body_bytes)),
        .answer_at       (granted.answer_at),
        .room            (24'(granted.room)),
        .ending          (granted.close ? TEXT_END_CLOSE : granted.keep_alive ? TEXT_END_KEEP : TEXT_END),
        .id_bytes        (granted.id_bytes),
        .id_read         (id_reads[i]),
        .id_session      (id_sessions[i]),
        .id_word         (id_words[i]),
        .id_data         (id_data[i]),
        .ahead           (hint_valid[i]),
        .ahead_session   (hint_tag[i]),
        .ahead_body_at   (hint_body[i].body_at),
        .ahead_body_bytes(24'(hint_body[i].body_bytes)),
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
        .tx_valid        (puts[i]),
        .tx_flush        (flushes[i]),
        .tx_data         (put_data[i]),
        .tx_length       (put_length[i]),
        .tx_start        (put_starts[i]),
        .tx_from         (put_at),
        .tx_session      (put_session[i]),
        .tx_position     (TxP'(positions[i])),
        .k_valid         (region_in[i].s_valid),
        .k_ready         (region_out[i].s_ready),
        .k_data          (region_in[i].s_data),
        .k_keep          (region_in[i].s_keep),
        .k_last          (region_in[i].s_last),
        .r_valid         (region_out[i].m_valid),
        .r_ready         (region_in[i].m_ready),
        .r_data          (region_out[i].m_data),
        .r_keep          (region_out[i].m_keep),
        .r_last          (region_out[i].m_last)
    );
  end

  for (genvar k = 0; k < 4; k++) begin : g_value
    logic [31:0] values[SESSIONS];  // one memory each
    always_ff @(posedge own_clk) if (value_put && may_step && c.key == 2'(k)) values[s] <= value;
    assign values_here[k] = values[s];
  end

  // ---- requests' ids, for the calls and for the engine ----
  // Before an id, the memory holds the decoded name of a function.
  logic id_write;
  assign id_write = id_put && may_step;
  assign id_reads[REGIONS] = state inside {TAG, TAG_ID} || c.place == AT_ENCODED;
  assign id_sessions[REGIONS] = s;
  assign id_words[REGIONS] = state == TAG_ID ? word + 1'b1 : 3'(c.place == AT_ENCODED && stored_step != '0);

  // Read again after each step: its two words, one after another.
  always_ff @(posedge own_clk) begin
    stored_step <= state != PARSE || c.place != AT_ENCODED || reader_start || may_step ? '0 : stored_step + 2'(stored_step != '1);
    if (stored_step == 2'd1) stored_low <= id_data[REGIONS];
  end
  assign stored = {id_data[REGIONS], stored_low};
  for (genvar i = 0; i <= REGIONS; i++) begin : g_id
    http_ids #(
        .SESSIONS(SESSIONS)
    ) u_ids (
        .clk,
        .write        (id_write),
        .write_session(s),
        .write_at     (c.id_bytes),
        .write_data   (id_byte),
        .read         (id_reads[i]),
        .session      (id_sessions[i]),
        .word         (id_words[i]),
        .data         (id_data[i])
    );
  end

  // ---- marks: the consumed and written positions of a session ----
  // Set by the engine, the end of a call or a new connection.
  // The end of a call is processed after its reply was moved, in a cycle without other marks.
  logic finish_well, chunks_due, called_now, own_mark, mark_begin, mark_resume, mark_written;
  logic [S-1:0] mark_at;
  logic [RxP-1:0] opening_next, mark_value;
  logic [TxP-1:0] opening_una, mark_position;
  assign chunks_due = pending && !(c.coded || c.too_long || c.http10 || c.has_length) && (c.continued || !c.expect_100);
  assign called_now = state == CALL && request_ready;
  assign own_mark = state inside {CHUNKS, COMMIT, SAVE} || called_now;
  assign opens = opening && !own_mark;
  assign finish_ready = (finish_refused || completes[finish_region]) && !own_mark && !opening;
  assign finished = finish_valid && finish_ready;
  assign finish_well = finished && !finish_refused && !finish_killed && !overs[finish_region];

  assign mark_at = own_mark ? s : opening ? opening_at : finish_tag;
  assign mark_value = own_mark ? at : opening ? opening_next : afters[finish_tag];
  assign mark_position = own_mark ? position : opening ? opening_una : answers_to[finish_region];
  assign mark_resume = opens || finish_well || state == SAVE || called_now;
  assign mark_written = opens || finish_well || state == COMMIT;
  always_comb begin
    mark_begin = opens || finish_well || state == CHUNKS;
    case (state)
      COMMIT: mark_begin = text != TEXT_CONTINUE;
      SAVE: mark_begin = ends || (!in_chunks && !c.together);
      CALL: if (request_ready) mark_begin = !c.together;  // otherwise the body stays in place
      default: ;
    endcase
  end

  always_ff @(posedge own_clk) begin
    if (mark_resume) resumes[mark_at] <= mark_value;
    // Connections are opened many cycles apart.
    if (open) begin
      opening_at <= open_at;
      opening_next <= open_next;
      opening_una <= open_una;
    end
    opening <= !rst && (open || (opening && !opens));
  end

  // For a session's next turn, and for TCP.
  logic [RxP-1:0] begun_of[SESSIONS];
  logic [TxP-1:0] written_of[SESSIONS];
  always_ff @(posedge own_clk) begin
    if (mark_begin) begun_of[mark_at] <= mark_value;
    if (mark_written) written_of[mark_at] <= mark_position;
  end
  assign progress = '{
    valid:      notify,
    session:    session_t'(notify_at),
    read_to:    32'(begun_of[notify_at]),
    written_to: 32'(written_of[notify_at]),
    finish:     finish[notify_at]
  };
  assign released = '{valid: release_valid, session: session_t'(release_at)};

  // A malformed request is dropped in any case. Bytes visible while the reader starts belong to
  // another session.
  assign onward = moves ? (plenty ? {2'b01, at[2:0]} : 5'(at[2:0]) + 5'(seen_pass.take)) : may_step ? parse_onward : 5'(at[2:0]);

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
        writer_data   = id_data[REGIONS];
        writer_length = id_left > 6'd8 ? 4'd8 : id_left[3:0];
      end
      LENGTH: begin
        writer_valid  = 1'b1;
        writer_data   = decimal_text(digits);
        writer_length = 4'd8;
      end
      DIGITS: begin
        writer_valid = 1'b1;
        // The first digits are on top, and the others move there.
        for (int i = 0; i < 8; i++) writer_data[8*i+:8] = 8'h30 + 8'(decimal[76-4*i+:4]);
        writer_length = 4'd8;
        if (word[1]) begin
          writer_data[39:32] = 8'h0a;
          writer_length = 4'd5;
        end
      end
      default: ;
    endcase
  end

  // The next part is selected while a part without text is written.
  assign want_end = state inside {HEAD_END, TAG_ID} || (state == LENGTH && c.id_bytes == '0);
  assign want_tag = state inside {TAG, LENGTH};
  assign id_left = c.id_bytes - {word, 3'b000};
  assign want_body = state == BODY;
  assign writer_flush = state == FLUSH;

  always_ff @(posedge own_clk) begin
    if (state == SAVE || state == CALL) requests[s] <= c;
    request_next <= requests[pick_then];  // in PICK, without a write
    if (called_now) begin
      bodies[s] <= '{body_at: c.together ? begun_at : at, body_bytes: LengthBits'(c.length)};
      called[s] <= '{answer_at: written_at, room: free_space - TxBits'(1024), id_bytes: c.id_bytes,
                     keep_alive: c.http10, close: !persistent};
      afters[s] <= c.together ? at : at + RxP'(c.length);
    end
    if (finished) outcomes[finish_tag] <= finish_refused && finish_fetch == FetchSilent ? TEXT_504 :
        finish_refused && finish_fetch != FetchOk ? TEXT_502 : finish_refused ? TEXT_500_IMAGE : finish_killed ? TEXT_503 : TEXT_500_LONG;
  end

  always_ff @(posedge own_clk) begin
    reader_start <= 1'b0;
    writer_start <= 1'b0;
    notify <= 1'b0;
    release_valid <= 1'b0;
    list_start <= 1'b0;
    // The number of consumed bytes is known late, so it is counted in two steps.
    at[2:0] <= onward[2:0];
    at_gone <= onward[4:3];
    at[RxP-1:3] <= at[RxP-1:3] + (RxP - 3)'(at_gone);
    // If the parser does not move, no state changes; a malformed request is not parsed further.
    if (may_step) c <= parsed;
    stepped <= may_step;
    stepped_from <= at[2:0];
    if (stepped && !may_step) c.head_bytes <= c.head_bytes + 14'({at_gone, at[2:0]} - 5'(stepped_from));
    // The parser continues two cycles after a chunk at the earliest.
    passed <= chunk_moves ? pass.take : '0;
    if (passed != '0) c.length <= 24'(LengthBits'(c.length + 24'(passed)));
    if (chunk_moves) fill_dirty <= 1'b1;
    else if (fill_flush) fill_dirty <= 1'b0;
    state_before <= state;
    // If the session is saved in this state: its peer has closed, and no more data will be written.
    // Other states set this themselves.
    if (state == PARSE) ends <= seen_all && c.place != AT_END;

    case (state)
      PICK:
      if (pickable[pick_then]) begin
        s <= pick_then;
        pick_from <= pick_then + 1'b1;
        ready[pick_then] <= 1'b0;
        state <= LOAD;
      end

      LOAD:
      // A session may have ended since it became ready.
      if (!active[s]) state <= PICK;
      else if (dead[s]) begin
        active[s] <= 1'b0;
        mid_request[s] <= 1'b0;
        release_valid <= 1'b1;
        release_at <= s;
        finish[s] <= 1'b0;
        state <= PICK;
      end else begin
        c <= fresh[s] ? '0 : resumed;
        // No reply is possible any more: received data is dropped.
        if (shut[s] || finish[s]) c.place <= AT_END;
        fresh[s] <= 1'b0;
        at <= resumes[s];
        at_gone <= '0;
        begun_at <= begun_of[s];
        written_at <= written_of[s];
        turns <= '1;
        reader_start <= 1'b1;
        state <= PARSE;
      end

      PARSE:
      if (reader_start || looks) begin
      end else if (ruined) begin
        if (!looking) begin
          ends <= 1'b0;
          ruined <= 1'b0;
          text <= too_big_then ? TEXT_431 : version_then ? TEXT_505 : TEXT_400;
          with_length <= 1'b0;
          with_body <= c.method != METHOD_HEAD;
          closing <= 1'b1;
          then_discard <= 1'b0;
          ending <= TEXT_END_CLOSE;
          state <= HEAD;
          writer_start <= 1'b1;
          writer_from <= written_at;
          if (32'(free_space) < 32'(Least)) begin  // no space: the session is closed without a
                                                   // reply
            ends <= 1'b1;
            writer_start <= 1'b0;
            state <= SAVE;
          end
        end
      end else if (c.place == AT_BODY) begin
        if (chunks_due) state <= CHUNKS;
        else if (!fill_dirty && !fill_waits && !own_put) state <= DECIDE;
      end else if (chunks_over) begin
        c.too_long <= 1'b1;
        if (!fill_dirty) state <= DECIDE;
      end else if (passes) begin
        if (moves) begin
          c.chunk <= pass.all ? '0 : c.chunk - 24'(pass.take);
          if (pass.all) begin
            if (c.place == AT_CHUNK) begin
              c.place <= AT_CHUNK_END;
              c.head_bytes <= '0;
            end else c <= '0;
          end
        end else if (seen_pass.valid && seen_pass.take == '0 && seen_drained && !fill_dirty) begin
          state <= SAVE;
        end
      end else if (!seen_valid) begin
      end else if (broken || too_big) begin
        ruined <= 1'b1;
        too_big_then <= !broken;
        version_then <= other_version;
      end else if (moved) begin
        if (find_valid) begin  // the table is free, otherwise `looks`
          looking <= 1'b1;
          stale[s] <= 1'b0;
        end
      end else if (seen_drained && !fill_dirty && !looking) begin
        state <= SAVE;
      end

      CHUNKS: begin
        c.place <= AT_CHUNK_SIZE;
        c.length <= '0;
        c.chunk <= '0;
        c.digits <= 1'b0;
        c.head_bytes <= '0;
        begun_at <= at;
        state <= PARSE;
      end

      DECIDE: begin
        ends <= 1'b0;
        with_length <= 1'b0;
        digits <= '0;
        with_body <= c.method != METHOD_HEAD;
        closing <= !persistent;
        ending <= ending_of(c);
        then_discard <= 1'b1;
        writer_from <= written_at;
        word <= '0;
        metric <= '0;
        state <= HEAD;
        writer_start <= 1'b1;
        if (refusal != TEXT_END) begin
          text <= refusal;
          // The start of a next request is unknown, and so is whether a client that expects 100
          // sends the body.
          if (c.coded || c.too_long || length_over || (pending && (c.http10 || c.has_length)) || c.unexpected) begin
            closing <= 1'b1;
            ending <= TEXT_END_CLOSE;
          end
        end else if (stranger) text <= TEXT_401;
        else if (c.route == ROUTE_NONE || c.route == ROUTE_SYSTEM) text <= TEXT_404;
        else if (c.method == METHOD_OPTIONS)
          text <= c.route == ROUTE_SERVER ? TEXT_OPTIONS : c.route == ROUTE_FUNCTION ? TEXT_OPTIONS_POST : TEXT_OPTIONS_GET;
        else if (wrong_method) text <= c.route == ROUTE_FUNCTION ? TEXT_405_POST : TEXT_405_GET;
        else
          case (c.route)
            ROUTE_HEALTH: text <= TEXT_HEALTH;
            ROUTE_METRICS: text <= TEXT_METRICS;
            ROUTE_FUNCTIONS: begin
              text <= TEXT_FUNCTIONS;
              with_length <= 1'b1;
              listing <= 1'b1;
              list_waits <= 1'b1;
              list_counts <= 1'b1;
              state <= LIST;
            end
            default: begin
              if (failed[s]) text <= outcomes[s];
              else if (stale[s]) text <= TEXT_503_CHANGED;
              else if (may_run) begin
                state <= CALL;
                writer_start <= 1'b0;
              end else if (c.expect_100 && !c.continued && (pending || !all_there)) begin
                text <= TEXT_CONTINUE;
                c.continued <= 1'b1;
              end else begin
                state <= SAVE;
                writer_start <= 1'b0;
                ends <= arrived_all && !c.together && !all_there;
              end
            end
          endcase
        // A client that waits for 100 may or may not send the body after an error.
        if (c.expect_100 && !c.continued && (c.route != ROUTE_FUNCTION || wrong_method || c.bad || stranger || refusal != TEXT_END || (pending && stale[s]))) begin
          closing <= 1'b1;
          ending  <= TEXT_END_CLOSE;
        end
        if (32'(free_space) < 32'(Least)) begin
          state <= SAVE;
          writer_start <= 1'b0;
          listing <= 1'b0;
          c.continued <= c.continued;
        end
      end

      // The body stays in the ring until the call has ended.
      CALL: begin
        calling[s] <= 1'b1;
        lasting[s] <= persistent;
        if (request_ready) state <= PICK;
      end

      // Listed twice: for its length, and for its text. The table does not change meanwhile, once a
      // pending change has completed.
      LIST: begin
        list_waits <= list_waits && !find_ready;
        list_start <= list_waits && find_ready;
        if (list_valid && list_last) state <= list_counts ? HEAD : FLUSH;
      end

      HEAD:
      if (text_ready && !writer_start) begin
        if (text_last || text_empty) begin
          state <= text == TEXT_CONTINUE ? FLUSH : with_length ? LENGTH : c.id_bytes != '0 ? TAG : HEAD_END;
        end
      end
      LENGTH: state <= c.id_bytes != '0 ? TAG : HEAD_END;
      // The reply carries the request's id.
      TAG: if (text_ready && text_last) state <= TAG_ID;
      TAG_ID: begin
        word <= word + 1'b1;
        if (id_left <= 6'd8) begin
          word  <= '0;
          state <= HEAD_END;
        end
      end
      HEAD_END:
      if (text_ready) begin
        if (text_last) begin
          state <= !with_body ? FLUSH : with_length ? LIST : BODY;
          list_waits <= 1'b1;
          list_counts <= 1'b0;
        end
      end
      BODY:
      if (text_ready) begin
        if (text_last || text_empty) begin
          binary <= metrics[metric[$clog2(METRICS)-1:0]];
          decimal <= '0;
          bits_left <= '0;  // 64
          state <= text == TEXT_METRICS ? NUMBER : FLUSH;
        end
      end
      NUMBER: begin
        {decimal, binary} <= {adjusted[78:0], binary, 1'b0};
        bits_left <= bits_left - 6'd1;
        if (bits_left == 6'd1) state <= DIGITS;
      end
      DIGITS: begin
        word <= word + 1'b1;
        decimal <= decimal << 32;
        if (word[1]) begin
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
        written_at <= position;
        notify <= 1'b1;
        notify_at <= s;
        state <= PARSE;
        if (text != TEXT_CONTINUE) begin
          begun_at <= at;
          count_requests <= count_requests + 32'd1;
          failed[s] <= 1'b0;
          if (!(text inside {TEXT_HEALTH, TEXT_METRICS, TEXT_FUNCTIONS, TEXT_OPTIONS, TEXT_OPTIONS_GET, TEXT_OPTIONS_POST}))
            count_errors <= count_errors + 32'd1;
          c <= '0;
          turns <= turns - 3'(|turns);
          if (closing) begin
            finish[s] <= 1'b1;
            c.place   <= AT_END;
          end else if (then_discard && !c.together && c.length != '0) begin
            c.place <= AT_DISCARD;
            c.chunk <= c.length;
          end else if (|(pickable & ~(SESSIONS'(1) << s)) && turns == '0) begin
            // Other sessions wait: this session's next request is served later.
            ready[s] <= 1'b1;
            state <= SAVE;
          end
        end
      end

      default: begin  // SAVE
        notify <= 1'b1;
        notify_at <= s;
        if (ends) finish[s] <= 1'b1;
        mid_request[s] <= (c.place != AT_START || c.head_bytes != '0) && c.place != AT_END;
        state <= PICK;
      end
    endcase

    counted <= list_valid && list_counts;
    counted_length <= list_length;
    if (counted) digits <= add_decimal(digits, counted_length);
    found_before <= found_valid && !rst;
    // The function's entry is read from memory into a register.
    if (found_before) looking <= 1'b0;
    if (found_valid) begin
      c.number <= 6'(found_function);
      if (!found) begin
        c.route <= ROUTE_NONE;
        if (c.place == AT_KEY) c.place <= AT_QUERY_REST;
      end
    end
    if (changed) stale <= '1;

    // The end of a call. A failure is replied to in the session's next turn.
    if (finished) begin
      calling[finish_tag] <= 1'b0;
      ready[finish_tag] <= 1'b1;
      if (finish_well) begin
        fresh[finish_tag] <= 1'b1;
        mid_request[finish_tag] <= 1'b0;
        if (!lasting[finish_tag]) finish[finish_tag] <= 1'b1;
        count_requests <= count_requests + 32'd1;
        notify <= 1'b1;
        notify_at <= finish_tag;
      end else begin
        failed[finish_tag] <= 1'b1;
      end
    end

    if (arrived) ready[arrived_at] <= 1'b1;
    if (woken) ready[woken_at] <= 1'b1;
    if (opens) begin
      fresh[opening_at] <= 1'b1;
      mid_request[opening_at] <= 1'b0;
      active[opening_at] <= 1'b1;
      finish[opening_at] <= 1'b0;
      failed[opening_at] <= 1'b0;
    end
    if (rst) begin
      state  <= PICK;
      fill_dirty <= 1'b0;
      ready  <= '0;
      fresh  <= '0;
      mid_request <= '0;
      active <= '0;
      finish <= '0;
      pick_from <= '0;
      count_requests <= '0;
      count_errors <= '0;
      calling <= '0;
      looking <= 1'b0;
      ruined <= 1'b0;
      ends <= 1'b0;
      listing <= 1'b0;
      word <= '0;
    end
  end

  // An arrival is notified in the cycle in which its positions are visible.
  clock_gate u_gate (
      .clk,
      .wake (rst || open || opening || arrived || woken || finish_valid || changed || found_valid || state != PICK || |pickable ||
             reads || own_start || own_put || |fills),
      .gated(own_clk)
  );

endmodule
