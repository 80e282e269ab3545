// The board's own replies, part by part: status and header, the length of a list of functions, the request's id, and
// the body: a text, the list, or the values of /metrics in decimal.
//
// http_engine leads through the states; this module names the next one for those of a reply.
//
// Parameters: REGIONS; METRICS, as counted by http_text. Throughput: up to 8 bytes per cycle.
module http_reply
  import http_pkg::*;
  import functions_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter int METRICS = 8 + 2 * REGIONS
) (
    input  logic                   clk,
    input  logic                   rst,
    input  state_t                 state,
    input  request_t               c,             // the request
    input  text_t                  text,          // the reply, from HEAD on:
    input  text_t                  ending,        // the end of its header,
    input  logic                   with_length,   // whether its length is counted first,
    input  logic                   with_body,     // and whether it has a body
    input  logic                   writer_start,  // no byte is written in this cycle
    input  logic [63:0]            id_data,       // the request's id, word by word
    input  logic                   find_ready,    // the table does not change
    output logic [NUMBER_BITS-1:0] slot_of,
    output logic                   slot_word,
    input  logic                   slot_used,
    input  logic [63:0]            slot_name,
    input  logic [63:0]            metrics[METRICS],
    output state_t                 next,
    output logic [2:0]             word,          // of the id
    output logic                   valid,         // bytes to write
    output logic [63:0]            data,
    output logic [3:0]             length
);

  state_t state_before;

  // ---- texts ----
  logic text_ready, text_last, text_empty;
  logic [63:0] text_data;
  logic [3:0] text_length;
  logic [4:0] metric;

  http_text #(
      .REGIONS(REGIONS)
  ) u_text (
      .clk,
      .text,
      .want_body(state == BODY),
      .want_tag (state inside {TAG, LENGTH}),
      // The next part is selected while a part without text is written.
      .want_end (state inside {HEAD_END, TAG_ID} || (state == LENGTH && c.id_bytes == '0)),
      .ending,
      .wanted   (state inside {HEAD, TAG, HEAD_END, BODY}),
      .same     (state == state_before),  // a state has one part or several
      .next     (text_ready && !writer_start),
      .ready    (text_ready),
      .data     (text_data),
      .length   (text_length),
      .last     (text_last),
      .empty    (text_empty),
      .metric
  );

  // ---- the list of functions, first only for its length ----
  logic list_start, list_valid, list_last, list_counts, list_waits, counted;
  logic [3:0] counted_length, list_length;
  logic [63:0] list_data;
  logic [31:0] digits;  // its length, eight decimal digits

  http_list #(
      .SLOTS(FUNCTIONS)
  ) u_list (
      .clk,
      .rst,
      .start (list_start),
      .valid (list_valid),
      .data  (list_data),
      .length(list_length),
      .last  (list_last),
      .slot  (slot_of),
      .slot_word,
      .slot_used,
      .slot_name
  );

  // ---- values of /metrics: one bit per cycle ----
  logic [63:0] binary;
  logic [79:0] decimal, adjusted;
  logic [5:0] bits_left, id_left;

  assign id_left = c.id_bytes - {word, 3'b000};

  always_comb begin
    for (int i = 0; i < 20; i++)
    adjusted[4*i+:4] = decimal[4*i+:4] > 4'd4 ? decimal[4*i+:4] + 4'd3 : decimal[4*i+:4];
  end

  // ---- the bytes of each part ----
  always_comb begin
    valid  = 1'b0;
    data   = text_data;
    length = text_length;
    case (state)
      LIST: begin
        valid  = list_valid && !list_counts;
        data   = list_data;
        length = list_length;
      end
      HEAD, TAG, HEAD_END, BODY: valid = text_ready && !text_empty && !writer_start;
      TAG_ID: begin
        valid  = 1'b1;
        data   = id_data;
        length = id_left > 6'd8 ? 4'd8 : id_left[3:0];
      end
      LENGTH: begin
        valid  = 1'b1;
        data   = decimal_text(digits);
        length = 4'd8;
      end
      DIGITS: begin
        valid = 1'b1;
        // The first digits are on top, and the others move there.
        for (int i = 0; i < 8; i++) data[8*i+:8] = 8'h30 + 8'(decimal[76-4*i+:4]);
        length = 4'd8;
        if (word[1]) begin
          data[39:32] = 8'h0a;
          length = 4'd5;
        end
      end
      default: ;
    endcase
  end

  // ---- the order of the parts ----
  always_comb begin
    next = state;
    case (state)
      // Listed twice: for its length, and for its text. The table does not change meanwhile, once a
      // pending change has completed.
      LIST: if (list_valid && list_last) next = list_counts ? HEAD : FLUSH;
      HEAD:
      if (text_ready && !writer_start && (text_last || text_empty))
        next = text == TEXT_CONTINUE ? FLUSH : with_length ? LENGTH : c.id_bytes != '0 ? TAG : HEAD_END;
      LENGTH: next = c.id_bytes != '0 ? TAG : HEAD_END;
      // The reply carries the request's id.
      TAG: if (text_ready && text_last) next = TAG_ID;
      TAG_ID: if (id_left <= 6'd8) next = HEAD_END;
      HEAD_END: if (text_ready && text_last) next = !with_body ? FLUSH : with_length ? LIST : BODY;
      BODY: if (text_ready && (text_last || text_empty)) next = text == TEXT_METRICS ? NUMBER : FLUSH;
      NUMBER: if (bits_left == 6'd1) next = DIGITS;
      DIGITS: if (word[1]) next = metric == 5'(METRICS - 1) ? FLUSH : BODY;
      default: ;
    endcase
  end

  always_ff @(posedge clk) begin
    state_before <= state;
    list_start <= 1'b0;
    case (state)
      DECIDE: begin
        digits <= '0;
        word <= '0;
        metric <= '0;
        list_waits <= 1'b1;
        list_counts <= 1'b1;
      end
      LIST: begin
        list_waits <= list_waits && !find_ready;
        list_start <= list_waits && find_ready;
      end
      TAG_ID: word <= id_left <= 6'd8 ? '0 : word + 1'b1;
      HEAD_END:
      if (text_ready && text_last) begin
        list_waits <= 1'b1;
        list_counts <= 1'b0;
      end
      BODY:
      if (text_ready && (text_last || text_empty)) begin
        binary <= metrics[metric[$clog2(METRICS)-1:0]];
        decimal <= '0;
        bits_left <= '0;  // 64
      end
      NUMBER: begin
        {decimal, binary} <= {adjusted[78:0], binary, 1'b0};
        bits_left <= bits_left - 6'd1;
      end
      DIGITS: begin
        word <= word + 1'b1;
        decimal <= decimal << 32;
        if (word[1]) begin
          word   <= '0;
          metric <= metric + 5'd1;
        end
      end
      COMMIT: metric <= '0;
      default: ;
    endcase
    counted <= list_valid && list_counts;
    counted_length <= list_length;
    if (counted) digits <= add_decimal(digits, counted_length);
    if (rst) word <= '0;
  end

`ifndef SYNTHESIS
  // A list is written with the length that was counted before.
  bytes_follow_a_decision : assert property (@(posedge clk) disable iff (rst)
      valid |-> state inside {LIST, HEAD, LENGTH, TAG, TAG_ID, HEAD_END, BODY, DIGITS});
  // At most one word is written per cycle.
  words_have_eight_bytes : assert property (@(posedge clk) disable iff (rst)
      valid |-> length <= 4'd8);
  metrics_are_counted : assert property (@(posedge clk) disable iff (rst)
      state inside {NUMBER, DIGITS} |-> metric < 5'(METRICS));
`endif

endmodule
