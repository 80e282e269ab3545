// The calls in progress: an http_call for each region, and the ports of the rings and of the memory of ids, which the
// calls share with the engine's own reading and writing.
//
// Parameters: as in http_engine. Latency: http_call's; a granted port of a ring is used a cycle later.
module http_calls
  import fn_pkg::*;
  import http_pkg::*;
  import net_pkg::ring_note_t;
  import net_pkg::ring_read_t;
  import net_pkg::ring_word_t;
  import net_pkg::ring_write_t;
#(
    parameter  int SESSIONS = 16,
    parameter  int REGIONS = 4,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    parameter  int BODY_BYTES = 1048576,
    localparam int S = $clog2(SESSIONS),
    localparam int R = $clog2(REGIONS),
    localparam int RxP = net_pkg::position_bits(RX_RING_BITS),
    localparam int TxP = net_pkg::position_bits(TX_RING_BITS),
    localparam int P = RxP > TxP ? RxP : TxP,
    localparam int TxBits = TX_RING_BITS + 1,
    localparam int LengthBits = $clog2(BODY_BYTES + 1)
) (
    input  logic                  clk,
    input  logic                  rst,
    // The served session requests a call: its body, and its reply.
    input  logic [S-1:0]          session,
    input  logic                  called,
    input  logic [RxP-1:0]        body_at,
    input  logic [LengthBits-1:0] body_bytes,
    input  logic [TxP-1:0]        answer_at,
    input  logic [TxBits-1:0]     room,
    input  logic [5:0]            id_bytes,
    input  logic                  keep_alive,
    input  logic                  close,
    // The function engine.
    input  logic                  grant,
    input  logic [R-1:0]          grant_region,
    input  logic [S-1:0]          grant_tag,
    input  logic [REGIONS-1:0]    next_valid,
    input  logic [S-1:0]          next_tag  [REGIONS],
    input  logic [R-1:0]          finish_region,
    input  logic                  take,         // the end of its call is accepted,
    output logic                  complete,     // once its reply is in the ring,
    output logic                  over,         // unless it is longer than its space
    output logic [TxP-1:0]        answer_to,    // the end of the reply
    output streams_in_t           region_in [REGIONS],
    input  streams_out_t          region_out[REGIONS],
    // Reading of the receive rings.
    input  logic                  own_rx_wants,
    output logic                  own_rx_may,
    input  logic                  own_rx_read,
    input  logic [S+RX_RING_BITS-4:0] own_rx_address,
    input  logic [3:0]            own_rx_note,
    output logic                  own_word_valid,
    input  logic                  rx_ready,     // memory permits a read in the next cycle
    output logic                  rx_next,
    output ring_read_t            rx_read,
    input  ring_word_t            rx_word,
    // Writing: replies into the transmit rings, and assembled chunks into the receive rings.
    input  logic                  own_turn,
    input  logic                  put,
    input  logic                  flush,
    input  logic [63:0]           put_data,
    input  logic [3:0]            put_length,
    input  logic                  put_start,
    input  logic [P-1:0]          put_from,
    input  logic                  put_chunk,    // what the engine writes belongs to a chunk
    output logic [TxP-1:0]        position,
    output logic                  tx_waits,     // a call waits to write
    input  logic                  tx_ready,     // there is place for what is written from now on
    output ring_write_t           tx_write,
    output ring_write_t           fill,
    // The memory of ids.
    input  logic                  id_write,
    input  logic [5:0]            id_at,
    input  logic [7:0]            id_byte,
    input  logic                  id_read,
    input  logic [2:0]            id_word,
    output logic [63:0]           id_data
);

  localparam int LongerBits = RX_RING_BITS > TX_RING_BITS ? RX_RING_BITS : TX_RING_BITS;

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

  // ---- the calls ----
  body_t bodies[SESSIONS], granted_body;
  pending_reply_t called_replies[SESSIONS], granted;
  logic [REGIONS-1:0] starts, completes, overs, takes;
  logic [TxP-1:0] answers_to[REGIONS];
  logic [REGIONS:0] rx_wants, rx_may, rx_reads, puts, flushes, put_starts, id_reads, writes;
  logic [REGIONS-1:0] tx_wants, tx_may;
  logic [S+RX_RING_BITS-4:0] rx_addresses[REGIONS+1];
  logic [3:0] rx_notes[REGIONS+1];
  logic [REGIONS:0] word_valid;
  logic [63:0] put_datas[REGIONS+1];
  logic [3:0] put_lengths[REGIONS+1];
  logic [P-1:0] put_froms[REGIONS+1], positions[REGIONS+1];
  logic [S-1:0] put_sessions[REGIONS+1], id_sessions[REGIONS+1];
  logic [2:0] id_words[REGIONS+1];
  logic [63:0] id_datas[REGIONS+1];

  always_ff @(posedge clk) begin
    if (called) begin
      bodies[session] <= '{body_at: body_at, body_bytes: body_bytes};
      called_replies[session] <= '{
        answer_at:  answer_at,
        room:       room,
        id_bytes:   id_bytes,
        keep_alive: keep_alive,
        close:      close
      };
    end
  end

  assign granted_body = bodies[grant_tag];
  assign granted = called_replies[grant_tag];
  assign complete = completes[finish_region];
  assign over = overs[finish_region];
  assign answer_to = answers_to[finish_region];

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
    assign put_froms[i] = P'(put_at);
    assign starts[i] = grant && grant_region == R'(i);
    assign takes[i] = take && finish_region == R'(i);
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
        .id_data         (id_datas[i]),
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
        .rx_read_note    (rx_notes[i]),
        .rx_word_valid   (word_valid[i]),
        .rx_word_note    (rx_word.note.detail),
        .rx_word_data    (rx_word.data),
        .tx_wants        (tx_wants[i]),
        .tx_may          (tx_may[i]),
        .tx_valid        (puts[i]),
        .tx_flush        (flushes[i]),
        .tx_data         (put_datas[i]),
        .tx_length       (put_lengths[i]),
        .tx_start        (put_starts[i]),
        .tx_from         (put_at),
        .tx_session      (put_sessions[i]),
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

  // ---- the rings ----
  assign puts[REGIONS] = put;
  assign flushes[REGIONS] = flush;
  assign put_datas[REGIONS] = put_data;
  assign put_lengths[REGIONS] = put_length;
  assign put_sessions[REGIONS] = session;
  assign put_starts[REGIONS] = put_start;
  assign put_froms[REGIONS] = put_from;
  assign position = TxP'(positions[REGIONS]);
  assign tx_waits = |tx_wants;

  logic written;
  logic [S+LongerBits-4:0] write_address;
  logic [63:0] write_data;
  logic [7:0] write_keep;

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
      .data         (put_datas),
      .length       (put_lengths),
      .start        (put_starts),
      .from         (put_froms),
      .session      (put_sessions),
      .position     (positions),
      .write        (written),
      .writes,
      .write_address,
      .write_data   (write_data),
      .write_keep   (write_keep)
  );

  assign fill = '{
    valid:   written && writes[REGIONS] && put_chunk,
    address: 32'({write_address[LongerBits-3+:S], write_address[RX_RING_BITS-4:0]}),
    data:    write_data,
    keep:    write_keep
  };
  assign tx_write = '{
    valid:   written && !(writes[REGIONS] && put_chunk),
    address: 32'({write_address[LongerBits-3+:S], write_address[TX_RING_BITS-4:0]}),
    data:    write_data,
    keep:    write_keep
  };

  assign rx_wants[REGIONS] = own_rx_wants;
  assign own_rx_may = rx_may[REGIONS];
  assign rx_reads[REGIONS] = own_rx_read;
  assign rx_addresses[REGIONS] = own_rx_address;
  assign rx_notes[REGIONS] = own_rx_note;
  assign own_word_valid = word_valid[REGIONS];

  arbiter #(
      .N(REGIONS + 1)
  ) u_rx (
      .clk,
      .rst,
      .enable (rx_ready),
      .request(rx_wants),
      .grant  (rx_may)
  );

  arbiter #(
      .N(REGIONS)
  ) u_tx (
      .clk,
      .rst,
      .enable (!own_turn && tx_ready),
      .request(tx_wants),
      .grant  (tx_may)
  );

  // A granted port is used a cycle later.
  always_comb begin
    rx_next = |(rx_wants & rx_may);
    rx_read = '0;
    rx_read.valid = |rx_reads;
    for (int i = 0; i <= REGIONS; i++) begin
      if (rx_reads[i]) begin
        rx_read.address = 32'(rx_addresses[i]);
        rx_read.note = '{reader: 8'(i), detail: rx_notes[i]};
      end
      word_valid[i] = rx_word.valid && rx_word.note.reader == 8'(i);
    end
  end

  // ---- requests' ids, for the calls and for the engine ----
  assign id_reads[REGIONS] = id_read;
  assign id_sessions[REGIONS] = session;
  assign id_words[REGIONS] = id_word;
  assign id_data = id_datas[REGIONS];

  for (genvar i = 0; i <= REGIONS; i++) begin : g_id
    http_ids #(
        .SESSIONS(SESSIONS)
    ) u_ids (
        .clk,
        .write        (id_write),
        .write_session(session),
        .write_at     (id_at),
        .write_data   (id_byte),
        .read         (id_reads[i]),
        .session      (id_sessions[i]),
        .word         (id_words[i]),
        .data         (id_datas[i])
    );
  end

`ifndef SYNTHESIS
  // One port of the rings' memory reads in a cycle.
  one_reader : assert property (@(posedge clk) disable iff (rst) $onehot0(rx_reads));
  // A region begins with a call only when it is granted.
  one_start : assert property (@(posedge clk) disable iff (rst) $onehot0(starts));
  one_end : assert property (@(posedge clk) disable iff (rst) take |-> complete);
  calls_wait_for_the_engine : assert property (@(posedge clk) disable iff (rst)
      own_turn |-> tx_may == '0);
`endif

endmodule
