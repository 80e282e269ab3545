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
// METRICS, as counted by http_text; BINDINGS, as in http_step.
module http_engine
  import fn_pkg::*;
  import net_pkg::*;
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
    parameter  bit BINDINGS = 1,
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
    input  logic [SESSIONS-1:0] yields,           // these are closed after their present reply
    // rings
    output logic                rx_next,          // there is a read in the next cycle
    output ring_read_t          rx_read,
    input  logic                rx_ready,         // memory permits a read in the next cycle
    input  ring_word_t          rx_word,
    output ring_write_t         tx_write,
    input  logic                tx_ready,         // place for the longest own reply
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
    input  logic [1:0]          finish_code,      // the kernel's
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

  logic notify, release_valid;
  logic [S-1:0] notify_at, release_at;

  state_t state;
  logic [S-1:0] s;
  logic [SESSIONS-1:0] fresh, active;
  // A call has ended; the served session is queued again; its call is accepted.
  logic finished, requeues, called_now;
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
  (* ram_style = "block", no_rw_check = 1 *) request_t requests[SESSIONS];
  request_t request_next;            // of the session served next
  // No number exceeds that of the longest body, or of a chunk with as many digits (http_parse).
  assign resumed = bounded(request_next, LengthBits);
  logic [RxP-1:0] afters[SESSIONS];  // of a call: the end of its request,
  logic [SESSIONS-1:0] lasting;      // and whether the connection outlives it
  logic [SESSIONS-1:0] finish;       // no more data will be written,
  logic ends;                        // also by the served session once it is saved
  logic [RxP-1:0] begun_at;          // of the served session: the consumed position, as notified to
                                     // TCP,
  logic [TxP-1:0] written_at;        // and the written position

  // ---- selection of the next session ----
  logic [2:0] turns;  // remaining requests of this session before others are served
  logic pick_valid, pick_any, pick_others, call_any;
  logic [S-1:0] pick_then;
  logic [RxP-1:0] pick_resume;
  assign busy = state != PICK || pick_any || call_any;

  http_picker #(
      .SESSIONS(SESSIONS)
  ) u_picker (
      .clk(own_clk),
      .rst,
      .session   (s),
      .picks     (state == PICK),
      .calls     (state == CALL),
      .again     (requeues),
      .arrived,
      .arrived_at,
      .woken,
      .woken_at,
      .finished,
      .finish_tag,
      .working,
      .next_valid(pick_valid),
      .next      (pick_then),
      .any       (pick_any),
      .others    (pick_others),
      .calling   (call_any)
  );

  // ---- reading ----
  logic own_rx_wants, own_rx_may, own_rx_read;
  logic [S+RX_RING_BITS-4:0] own_rx_address;
  logic [3:0] own_rx_note;
  logic own_word_valid;
  logic reader_start;
  logic [RxBits-1:0] arrived_to, body_there;
  logic arrived_all;     // at the end of the stream
  logic [127:0] bytes;
  kind_t [23:0] kinds;
  logic [23:0] there;
  logic seen_valid, seen_drained, seen_all;
  logic may_step;        // the classification is valid for a step,
  logic ruined;          // the request is malformed,
  logic too_big_then;    // because its head is too big,
  logic version_then;    // or of another version
  logic [4:0] count, onward, parse_onward;
  logic stepped;           // in the previous cycle,
  logic [2:0] stepped_from;  // from that lane: the bytes of the head are counted now
  logic [2:0] lane;
  logic drained, moved, broken, other_version, too_big, reads;
  logic word_over;       // of a function's name
  logic stored_second;   // the second word of an encoded name is read
  logic [63:0] id_data;
  logic looking, looks;  // a name is being looked up; other work has to wait
  logic id_put;          // into the memory of requests' ids
  logic [7:0] id_byte;
  logic found_before, length_over;
  logic pending;         // chunks of a body are not assembled yet
  logic body_begun;      // a cycle late
  logic own_turn;        // the engine's turn to write
  logic [3:0] passed;    // of a chunk, in the previous cycle

  logic opening, opens;
  logic [S-1:0] opening_at;

  http_reader #(
      .SESSIONS      (SESSIONS),
      .RX_RING_BITS  (RX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY)
  ) u_reader (
      .clk(own_clk),
      .idle       (state == PICK),
      .serves     (!(state inside {PICK, LOAD})),
      .session    (s),
      .start      (reader_start),
      .at,
      .pause      (body_begun),  // the call reads the body
      .next_any   (pick_any),
      .next_valid (pick_valid),
      .next       (pick_then),
      .next_resume(pick_resume),
      .drop       (opens),
      .drop_session(opening_at),
      .drop_next  (opening),
      .rx_wants   (own_rx_wants),
      .rx_may     (own_rx_may),
      .rx_read    (own_rx_read),
      .rx_address (own_rx_address),
      .rx_note    (own_rx_note),
      .word_valid (own_word_valid),
      .word_note  (rx_word.note.detail),
      .word_data  (rx_word.data),
      .busy       (reads),
      .*
  );

  // ---- skipped bytes, and the assembly of a chunked body ----
  pass_t pass, seen_pass;
  logic passes, moves, plenty, in_chunks, chunk_moves, chunks_over, chunks_wait, fill_start, fill_flush, fill_dirty, own_chunk;

  // Chunks are read once the head is valid; a client that waits for 100 has received it.
  assign pending = c.chunked && !c.together;
  always_ff @(posedge own_clk) body_begun <= c.place == AT_BODY && !pending;

  http_chunks #(
      .RX_RING_BITS(RX_RING_BITS),
      .BODY_BYTES  (BODY_BYTES)
  ) u_chunks (
      .clk(own_clk),
      .rst,
      .parses    (state == PARSE),
      .reader_start,
      .c,
      .count,
      .used      (at - begun_at),
      .used_known(at_gone == '0),
      .fill_ready,
      .chunks_wait,
      .pass,
      .seen_pass,
      .passes,
      .moves,
      .plenty,
      .in_chunks,
      .chunk_moves,
      .over      (chunks_over),
      .fill_start,
      .fill_flush,
      .fill_dirty,
      .own_turn  (own_chunk)
  );

  // ---- a step of the parser ----
  http_step #(
      .SESSIONS  (SESSIONS),
      .BODY_BYTES(BODY_BYTES), .BINDINGS(BINDINGS)
  ) u_step (
      .clk(own_clk),
      .parses    (state == PARSE),
      .reader_start,
      .session   (s),
      .c,
      .api_key,
      .bytes,
      .kinds,
      .there,
      .count,
      .lane,
      .place_lane(at[2:0]),
      .drained,
      .arrived_all,
      .passes,
      .ruined,
      .looking,
      .find_ready,
      .found_now (found_valid || found_before),
      .entry,
      .id_data,
      .seen_valid,
      .seen_drained,
      .seen_all,
      .may_step,
      .to        (parsed),
      .onward    (parse_onward),
      .moved,
      .broken,
      .other_version,
      .too_big,
      .word      (find_name),
      .word_over,
      .id_put,
      .id_byte,
      .id_second (stored_second),
      .length_over,
      .request_call
  );

  // ---- writing: the calls' replies, own replies, and by the same path assembled chunks ----
  localparam int P = RxP > TxP ? RxP : TxP;
  logic writer_start, writer_valid;
  logic [TxP-1:0] writer_from;
  logic [63:0] writer_data;
  logic [3:0] writer_length;
  logic [2:0] id_word;
  logic put, flush, own_put, own_start, tx_waits;
  logic [P-1:0] own_from;
  logic [1:0] fills;  // the engine's bytes, and those written, belong to a chunk
  logic [TxP-1:0] position;

  assign put = writer_valid || chunk_moves;
  assign flush = state == FLUSH || fill_flush;

  always_ff @(posedge own_clk) begin
    own_start <= writer_start || fill_start;
    own_from <= writer_start ? P'(writer_from) : P'(begun_at) + P'(c.length);
    own_put <= !rst && (put || flush);
    fills <= {fills[0], state == PARSE};
  end

  // Own replies are short, and calls wait for them. They alternate with chunks.
  always_ff @(posedge clk) chunks_wait <= !rst && tx_waits && !chunks_wait;
  assign own_turn = state == PARSE ? own_chunk :
      state inside {LIST, HEAD, LENGTH, TAG, TAG_ID, HEAD_END, BODY, DIGITS, FLUSH};

  // ---- the reply ----
  text_t text, ending;
  logic with_length, with_body, closing, then_discard;
  logic [TxBits-1:0] free_space;
  state_t reply_next;

  http_reply #(
      .REGIONS(REGIONS),
      .METRICS(METRICS)
  ) u_reply (
      .clk(own_clk),
      .rst,
      .state,
      .c,
      .text,
      .ending,
      .with_length,
      .with_body,
      .writer_start,
      .id_data,
      .find_ready,
      .slot_of,
      .slot_word,
      .slot_used,
      .slot_name,
      .metrics,
      .next     (reply_next),
      .word     (id_word),
      .valid    (writer_valid),
      .data     (writer_data),
      .length   (writer_length)
  );

  // ---- the request of a complete head ----
  logic persistent, stranger, all_there, too_full;
  decision_t decision;

  http_decide #(
      .TX_RING_BITS(TX_RING_BITS)
  ) u_decide (
      .active  (state == DECIDE),
      .c,
      .pending,
      .length_over,
      .stranger,
      .all_there,
      .arrived_all,
      .stale   (stale[s]),
      .failed  (failed[s]),
      .outcome (outcomes[s]),
      .free_space,
      .too_full,
      .decision
  );

  // A cycle late: writes are notified two cycles before they are needed.
  always_ff @(posedge own_clk) free_space <= TxBits'(1 << TX_RING_BITS) - (TxBits'(written_at) - TxBits'(snd_una));
  assign una_of = s;

  // ---- looking up a function's name ----
  // States that cannot continue before the result.
  assign looks = looking ? c.place inside {AT_KEY, AT_BODY} : c.place inside {AT_NAME, AT_ENCODED} && c.route == ROUTE_FUNCTION && !find_ready;
  assign find_valid = state == PARSE && seen_valid && !ruined && !too_big && word_over;
  assign entry_of = found_valid ? found_function : c.number;
  assign persistent = persists(c);
  // The key authorizes all requests; /healthz needs no key.
  assign stranger = api_key[7:0] != '0 && !c.authorized && c.route != ROUTE_HEALTH;
  assign body_there = arrived_to - RxBits'(at);
  assign all_there = 32'(body_there) >= 32'(c.length);

  // ---- calls ----
  assign request_valid = state == CALL;
  assign request_tag = s;
  assign request_function = c.number;

  logic complete, over;  // of the call in `finish_region`: its reply is complete; longer than its space
  logic [TxP-1:0] answer_to;

  http_calls #(
      .SESSIONS      (SESSIONS),
      .REGIONS       (REGIONS),
      .RX_RING_BITS  (RX_RING_BITS),
      .TX_RING_BITS  (TX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .BODY_BYTES    (BODY_BYTES)
  ) u_calls (
      .clk,
      .rst,
      .session    (s),
      .called     (called_now),
      .body_at    (c.together ? begun_at : at),
      .body_bytes (LengthBits'(c.length)),
      .answer_at  (written_at),
      .room       (free_space - TxBits'(1024)),
      .id_bytes   (c.id_bytes),
      .keep_alive (c.http10),
      .close      (!persistent),
      .grant,
      .grant_region,
      .grant_tag,
      .next_valid,
      .next_tag,
      .finish_region,
      .take       (finished && !finish_refused),
      .complete,
      .over,
      .answer_to,
      .region_in,
      .region_out,
      // The engine's own use of the rings.
      .own_rx_wants,
      .own_rx_may,
      .own_rx_read,
      .own_rx_address,
      .own_rx_note,
      .own_word_valid,
      .rx_ready,
      .rx_next,
      .rx_read,
      .rx_word,
      .own_turn,
      .put,
      .flush,
      .put_data   (state == PARSE ? bytes[63:0] : writer_data),
      .put_length (state == PARSE ? pass.take : writer_length),
      .put_start  (own_start),
      .put_from   (own_from),
      .put_chunk  (fills[1]),
      .position,
      .tx_waits,
      .tx_ready,
      .tx_write,
      .fill,
      // The ids of requests; before an id, the memory holds the decoded name of a function.
      .id_write   (id_put && may_step),
      .id_at      (c.id_bytes),
      .id_byte,
      .id_read    (state inside {TAG, TAG_ID} || c.place == AT_ENCODED),
      .id_word    (state == TAG_ID ? id_word + 1'b1 : 3'(stored_second)),
      .id_data
  );

  // ---- marks: the consumed and written positions of a session ----
  // Set by the engine, the end of a call or a new connection.
  // The end of a call is processed after its reply was moved, in a cycle without other marks.
  logic finish_well, chunks_due, own_mark, own_begin;
  logic [RxP-1:0] resume, begun_read, notify_begun;
  logic [TxP-1:0] written_read, notify_written;
  assign chunks_due = pending && !(c.coded || c.too_long || c.http10 || c.has_length) && (c.continued || !c.expect_100);
  assign called_now = state == CALL && request_ready;
  // Other sessions wait: this session's next request is served later.
  assign requeues = state == COMMIT && text != TEXT_CONTINUE && !closing && !(then_discard && !c.together && c.length != '0) &&
      pick_others && turns == '0;
  assign own_mark = state inside {CHUNKS, COMMIT, SAVE} || called_now;
  assign finish_ready = (finish_refused || complete) && !own_mark && !opening;
  assign finished = finish_valid && finish_ready;
  assign finish_well = finished && !finish_refused && !finish_killed && finish_code == '0 && !over;

  // The body of a call stays in place if it was assembled.
  assign own_begin = state == COMMIT ? text != TEXT_CONTINUE :
      state == SAVE ? ends || (!in_chunks && !c.together) : state != CALL || !c.together;

  http_marks #(
      .SESSIONS    (SESSIONS),
      .RX_RING_BITS(RX_RING_BITS),
      .TX_RING_BITS(TX_RING_BITS)
  ) u_marks (
      .clk(own_clk),
      .rst,
      .opened,
      .own         (own_mark),
      .own_begin,
      .own_resume  (state == SAVE || called_now),
      .own_written (state == COMMIT),
      .own_at      (at),
      .own_position(position),
      .session     (s),
      .ended       (finish_well),
      .ended_at    (finish_tag),
      .ended_after (afters[finish_tag]),
      .ended_to    (answer_to),
      .opening,
      .opens,
      .opening_at,
      .pick_at     (pick_then),
      .pick_resume,
      .resume,
      .begun       (begun_read),
      .written     (written_read),
      .notify_at,
      .notify_begun,
      .notify_written
  );

  assign progress = '{
    valid:      notify,
    session:    session_t'(notify_at),
    read_to:    32'(notify_begun),
    written_to: 32'(notify_written),
    finish:     finish[notify_at]
  };
  assign released = '{valid: release_valid, session: session_t'(release_at)};

  // A malformed request is dropped in any case. Bytes visible while the reader starts belong to
  // another session.
  assign onward = moves ? (plenty ? {2'b01, at[2:0]} : 5'(at[2:0]) + 5'(seen_pass.take)) : may_step ? parse_onward : 5'(at[2:0]);

  always_ff @(posedge own_clk) begin
    if (state == SAVE || state == CALL) requests[s] <= c;
    request_next <= requests[pick_then];  // in PICK, without a write
    if (called_now) afters[s] <= c.together ? at : at + RxP'(c.length);
    if (finished) outcomes[finish_tag] <= finish_refused && finish_fetch == FetchSilent ? TEXT_504 :
        finish_refused && finish_fetch != FetchOk ? TEXT_502 : finish_refused ? TEXT_500_IMAGE :
        finish_killed ? TEXT_503 : finish_code == 2'd1 ? TEXT_500_KERNEL : finish_code == 2'd2 ? TEXT_400_KERNEL : TEXT_500_LONG;
  end

  always_ff @(posedge own_clk) begin
    {reader_start, writer_start} <= 2'b00;
    notify <= 1'b0;
    release_valid <= 1'b0;
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
    // If the session is saved in this state: its peer has closed, and no more data will be written.
    // Other states set this themselves.
    if (state == PARSE) ends <= seen_all && c.place != AT_END;

    case (state)
      PICK:
      if (pick_valid) begin
        s <= pick_then;
        state <= LOAD;
      end

      LOAD:
      // A session may have ended since it became ready.
      if (!active[s]) state <= PICK;
      else if (dead[s]) begin
        {active[s], mid_request[s], finish[s]} <= '0;
        release_valid <= 1'b1;
        release_at <= s;
        state <= PICK;
      end else begin
        c <= fresh[s] ? '0 : resumed;
        // No reply is possible any more: received data is dropped.
        if (shut[s] || finish[s]) c.place <= AT_END;
        fresh[s] <= 1'b0;
        at <= resume;
        at_gone <= '0;
        begun_at <= begun_read;
        written_at <= written_read;
        turns <= '1;
        reader_start <= 1'b1;
        state <= PARSE;
      end

      PARSE:
      if (reader_start || looks) begin
      end else if (ruined) begin
        if (!looking && tx_ready) begin
          {ruined, with_length, then_discard} <= '0;
          text <= too_big_then ? TEXT_431 : version_then ? TEXT_505 : TEXT_400;
          with_body <= c.method != METHOD_HEAD;
          closing <= 1'b1;
          ending <= TEXT_END_CLOSE;
          writer_from <= written_at;
          // Without space for a reply, the session is closed at once.
          ends <= too_full;
          writer_start <= !too_full;
          state <= too_full ? SAVE : HEAD;
        end
      end else if (c.place == AT_BODY) begin
        if (chunks_due) state <= CHUNKS;
        else if (!fill_dirty && !fill_waits && !own_put && tx_ready) begin
          if (yields[s]) c.close <= 1'b1;
          state <= DECIDE;
        end
      end else if (chunks_over) begin
        c.too_long <= 1'b1;
        if (!fill_dirty && tx_ready) state <= DECIDE;
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
        ends <= decision.ends;
        text <= decision.text;
        ending <= decision.ending;
        with_length <= decision.with_length;
        with_body <= decision.with_body;
        closing <= decision.closing;
        then_discard <= 1'b1;
        listing <= decision.listing;
        if (decision.continues) c.continued <= 1'b1;
        writer_from <= written_at;
        writer_start <= decision.replies;
        state <= decision.next;
      end

      // The body stays in the ring until the call has ended.
      CALL: begin
        lasting[s] <= persistent;
        if (request_ready) state <= PICK;
      end

      LIST, HEAD, LENGTH, TAG, TAG_ID, HEAD_END, BODY, NUMBER, DIGITS: state <= reply_next;

      FLUSH: begin
        listing <= 1'b0;
        state <= COMMIT;
      end

      COMMIT: begin
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
          end else if (requeues) state <= SAVE;
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

    if (opens) begin
      fresh[opening_at] <= 1'b1;
      mid_request[opening_at] <= 1'b0;
      active[opening_at] <= 1'b1;
      finish[opening_at] <= 1'b0;
      failed[opening_at] <= 1'b0;
    end
    if (rst) begin
      state <= PICK;
      {fresh, mid_request, active, finish} <= '0;
      {count_requests, count_errors} <= '0;
      {looking, ruined, ends, listing} <= '0;
    end
  end

  // An arrival is notified in the cycle in which its positions are visible.
  clock_gate u_gate (
      .clk,
      .wake (rst || opened.valid || opening || arrived || woken || finish_valid || changed || found_valid || state != PICK || pick_any ||
             reads || own_start || own_put || |fills),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  released_sessions_have_ended : assert property (@(posedge clk) disable iff (rst)
      release_valid |-> !active[release_at]);
  called_bodies_have_arrived : assert property (@(posedge clk) disable iff (rst)
      called_now |-> all_there || c.together);
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      request_valid && !request_ready |=> $stable({s, c.number}));
`endif

endmodule
