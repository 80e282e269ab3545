// The HTTP server. Takes the sessions that have something to do in turn, parses their requests,
// answers what the board knows itself, and runs kernels for functions.
//
// A kernel runs only when the whole body is in the receive ring and there is room for its answer in
// the transmit ring: neither a slow sender nor a slow reader can hold it. The kernel's output goes
// behind the place of the answer's head, which is written last, when its length is known; only then
// does the answer count as written.
//
// Whatever a request lacks, its state is saved and the next session has its turn.
//
// Parameters: SESSIONS; the rings' bits; MEMORY_LATENCY; BODY_BYTES, the longest body;
// KERNEL_CYCLES, how long a kernel may go without taking or giving a beat.
module http_engine
  import http_pkg::*;
  import functions_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    parameter  int BODY_BYTES = 1048576,
    parameter  int KERNEL_CYCLES = 1 << 22,
    parameter  int METRICS = 8,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic                clk,
    input  logic                rst,
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
    // kernels
    output logic                kernel_rst,
    output logic [3:0]          kernel_number,
    output logic                kernel_start,
    output logic [127:0]        kernel_params,
    input  logic                kernel_done,
    output logic                k_valid,
    input  logic                k_ready,
    output logic [63:0]         k_data,
    output logic [7:0]          k_keep,
    output logic                k_last,
    input  logic                r_valid,
    output logic                r_ready,
    input  logic [63:0]         r_data,
    input  logic [7:0]          r_keep,
    input  logic                r_last,
    // numbers for /metrics, the first three are counted here
    input  logic [31:0]         metrics    [METRICS],
    output logic [31:0]         count_requests,
    output logic [31:0]         count_errors,
    output logic [31:0]         count_busy,
    output logic                busy
);

  typedef enum logic [3:0] {
    PICK,
    LOAD,
    PARSE,
    DECIDE,
    RUN,
    SETTLE,    // the kernel has given its last beat
    HEAD,
    LENGTH,
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
  request_t requests[SESSIONS];
  request_t c, parsed;
  logic [31:0] at;      // the next byte of the stream

  // ---- reading ----
  logic reader_start;
  logic [31:0] arrived_to;
  logic [127:0] bytes;
  logic [4:0] count, take, parse_take;
  logic drained, moved, broken, too_big;

  // A peer's FIN takes a sequence number but is no byte.
  assign arrived_to = rcv_next[s] - 32'(rcv_ended[s]);

  http_reader #(
      .SESSION_BITS  (S),
      .RING_BITS     (RX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY)
  ) u_reader (
      .clk,
      .rst,
      .start       (reader_start),
      .session     (s),
      .from        (read_to[s]),
      .up_to       (arrived_to),
      .read        (rx_read),
      .read_address(rx_read_address),
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
      .bytes,
      .count,
      .to(parsed),
      .take(parse_take),
      .moved,
      .broken,
      .too_big
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
      .write        (tx_write),
      .write_address(tx_write_address),
      .write_data   (tx_write_data),
      .write_keep   (tx_write_keep)
  );

  // ---- texts ----
  text_t text, ending, shown;
  logic want_body, text_last, text_empty;
  logic [7:0] word;
  logic [63:0] text_data;
  logic [3:0] text_length, metric;

  http_text #(
      .METRICS(METRICS)
  ) u_text (
      .text  (shown),
      .want_body,
      .word,
      .data  (text_data),
      .length(text_length),
      .last  (text_last),
      .empty (text_empty),
      .metric
  );

  // ---- the answer ----
  logic [31:0] body_at;         // the answer's body starts here
  logic [31:0] digits;          // its length, eight decimal digits
  logic with_length, with_body, closing, then_discard;
  logic [23:0] left;            // bytes of the request's body
  logic [31:0] room, free_space, limit, given;
  logic over, last_out, last_in;
  logic [$clog2(KERNEL_CYCLES)-1:0] patience;

  // Adds 0 to 8 to eight decimal digits.
  function automatic logic [31:0] add_decimal(input logic [31:0] to, input logic [3:0] n);
    logic [4:0] sum;
    logic carry;
    sum = 5'(to[3:0]) + 5'(n);
    carry = sum > 5'd9;
    add_decimal[3:0] = carry ? 4'(sum - 5'd10) : sum[3:0];
    for (int i = 1; i < 8; i++) begin
      add_decimal[4*i+:4] = !carry ? to[4*i+:4] : to[4*i+:4] == 4'd9 ? 4'd0 : to[4*i+:4] + 4'd1;
      carry = carry && to[4*i+:4] == 4'd9;
    end
  endfunction

  // Eight digits as text, the first one first, blanks for zeros in front.
  function automatic logic [63:0] decimal_text(input logic [31:0] v);
    logic seen;
    seen = 1'b0;
    for (int i = 0; i < 8; i++) begin
      seen = seen || v[28-4*i+:4] != '0 || i == 7;
      decimal_text[8*i+:8] = seen ? 8'h30 + 8'(v[28-4*i+:4]) : 8'h20;
    end
  endfunction

  // ---- numbers of /metrics: one bit a cycle ----
  logic [31:0] binary;
  logic [39:0] decimal, adjusted;
  logic [5:0] bits_left;

  always_comb begin
    for (int i = 0; i < 10; i++)
    adjusted[4*i+:4] = decimal[4*i+:4] > 4'd4 ? decimal[4*i+:4] + 4'd3 : decimal[4*i+:4];
  end

  // ---- what a complete head asks for ----
  logic persistent, wrong_method, may_run;
  logic [31:0] ring_bytes, body_there;

  assign ring_bytes = 32'(1 << TX_RING_BITS);
  assign free_space = ring_bytes - (written_to[s] - snd_una[s]);
  assign persistent = !c.close && (!c.http10 || c.keep);
  assign wrong_method = c.route == ROUTE_FUNCTION ? c.method != METHOD_POST :
      !(c.method inside {METHOD_GET, METHOD_HEAD});
  assign body_there = arrived_to - at;
  // An answer may be four times as long as its request, and more if nothing else waits.
  assign room = 32'd4096 + {6'd0, c.length, 2'b00};
  assign may_run = body_there >= 32'(c.length) &&
      free_space >= (room > ring_bytes ? ring_bytes : room);

  // ---- the kernel's streams ----
  logic [3:0] in_length, out_length;
  assign in_length = left > 24'd8 ? 4'd8 : left[3:0];
  assign k_valid = state == RUN && !last_in && count >= 5'(in_length);
  assign k_data = bytes[63:0];
  assign k_keep = 8'((9'd1 << in_length) - 9'd1);
  assign k_last = left <= 24'd8;
  assign r_ready = state == RUN && !last_out && !writer_start;
  assign out_length = 4'($countones(r_keep));
  assign kernel_number = c.number;
  assign kernel_params = c.params;

  always_comb begin
    take = '0;
    case (state)
      // What shows while the reader starts is another session's.
      PARSE:
      if (reader_start) take = '0;
      else if (c.place == AT_DISCARD) take = 24'(count) > left ? left[4:0] : count;
      else if (c.place == AT_END) take = count;
      else if (!broken && !too_big) take = parse_take;
      RUN: if (k_valid && k_ready) take = 5'(in_length);
      default: ;
    endcase
  end

  always_comb begin
    writer_valid  = 1'b0;
    writer_data   = text_data;
    writer_length = text_length;
    case (state)
      RUN: begin
        writer_valid  = r_valid && r_ready && !over;
        writer_data   = r_data;
        writer_length = out_length;
      end
      HEAD, HEAD_END, BODY: writer_valid = !text_empty && !writer_start;
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

  assign shown = state == HEAD_END ? ending : text;
  assign want_body = state == BODY;
  assign writer_flush = state == SETTLE || state == FLUSH;

  request_t saved;
  always_comb begin
    saved = c;
    if (c.place == AT_DISCARD) saved.length = left;
  end

  logic [2:0] turns;  // requests that this session may still have before the others
  logic [S-1:0] pick_from, pick_next;
  logic [SESSIONS-1:0] pick_after;

  function automatic logic [S-1:0] first_of(input logic [SESSIONS-1:0] set);
    first_of = '0;
    for (int i = SESSIONS - 1; i >= 0; i--) if (set[i]) first_of = S'(i);
  endfunction

  assign busy = state != PICK || |ready;
  assign pick_after = ready & ({SESSIONS{1'b1}} << pick_from);
  assign pick_next  = |pick_after ? first_of(pick_after) : first_of(ready);

  always_ff @(posedge clk) begin
    reader_start <= 1'b0;
    writer_start <= 1'b0;
    notify <= 1'b0;
    release_valid <= 1'b0;
    kernel_start <= 1'b0;
    kernel_rst <= rst;
    at <= at + 32'(take);

    case (state)
      PICK:
      if (|ready) begin
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
        at <= read_to[s];
        turns <= '1;
        left <= requests[s].length;
        reader_start <= 1'b1;
        state <= PARSE;
      end

      PARSE:
      if (reader_start) begin
      end else if (c.place == AT_BODY) state <= DECIDE;
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
      end else if (drained) begin
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
        ending <= !persistent ? TEXT_END_CLOSE : c.http10 ? TEXT_END_KEEP : TEXT_END;
        then_discard <= 1'b1;
        writer_from <= written_to[s];
        left <= c.length;
        word <= '0;
        metric <= '0;
        state <= HEAD;
        writer_start <= 1'b1;
        if (c.chunked || c.too_long) begin
          text <= c.chunked ? TEXT_411 : TEXT_413;
          closing <= 1'b1;
          ending <= TEXT_END_CLOSE;
        end else if (c.bad || (!c.http10 && !c.has_host)) text <= TEXT_400;
        else if (c.route == ROUTE_NONE || c.route == ROUTE_SYSTEM) text <= TEXT_404;
        else if (wrong_method) text <= c.route == ROUTE_FUNCTION ? TEXT_405_POST : TEXT_405_GET;
        else
          case (c.route)
            ROUTE_HEALTH: text <= TEXT_HEALTH;
            ROUTE_METRICS: text <= TEXT_METRICS;
            ROUTE_FUNCTIONS: text <= TEXT_FUNCTIONS;
            default: begin
              text <= TEXT_OK;
              with_length <= 1'b1;
              then_discard <= 1'b0;
              if (may_run) begin
                state <= RUN;
                kernel_start <= 1'b1;
                digits <= '0;
                given <= '0;
                over <= 1'b0;
                last_in <= 1'b0;
                last_out <= 1'b0;
                patience <= '0;
                limit <= free_space - 32'd1024;
                writer_from <= written_to[s] + ok_head_bytes(!persistent ? TEXT_END_CLOSE :
                    c.http10 ? TEXT_END_KEEP : TEXT_END);
              end else if (c.expect_100 && !c.continued && body_there < 32'(c.length)) begin
                text <= TEXT_CONTINUE;
                c.continued <= 1'b1;
              end else begin
                state <= SAVE;
                writer_start <= 1'b0;
                if (rcv_ended[s] && body_there < 32'(c.length)) begin
                  finish[s] <= 1'b1;
                  c.place   <= AT_END;
                end
              end
            end
          endcase
        // A client that waits for 100 may or may not send the body after an error.
        if (c.expect_100 && !c.continued && (c.route != ROUTE_FUNCTION || wrong_method || c.bad)) begin
          closing <= 1'b1;
          ending  <= TEXT_END_CLOSE;
        end
        if (free_space < 32'd4096) begin
          state <= SAVE;
          writer_start <= 1'b0;
          kernel_start <= 1'b0;
          c.continued <= c.continued;
        end
      end

      RUN: begin
        patience <= patience + 1'b1;
        if (k_valid && k_ready) begin
          left <= left - 24'(in_length);
          if (k_last) last_in <= 1'b1;
          patience <= '0;
        end
        if (r_valid && r_ready) begin
          given  <= given + 32'(out_length);
          digits <= add_decimal(digits, out_length);
          if (given + 32'd16 > limit) over <= 1'b1;
          if (r_last) last_out <= 1'b1;
          patience <= '0;
        end
        if (kernel_done || (&patience)) begin
          state <= SETTLE;
          if (!kernel_done || over || !last_out) begin
            text <= !kernel_done ? TEXT_503 : TEXT_500;
            with_length <= 1'b0;
            closing <= 1'b1;
            ending <= TEXT_END_CLOSE;
            kernel_rst <= 1'b1;
          end
        end
        count_busy <= count_busy + 32'd1;
      end

      SETTLE: begin
        body_at <= position;
        writer_from <= written_to[s];
        writer_start <= 1'b1;
        word <= '0;
        state <= HEAD;
      end

      HEAD:
      if (!writer_start) begin
        word <= word + 8'd1;
        if (text_last || text_empty) begin
          word  <= '0;
          state <= text == TEXT_CONTINUE ? FLUSH : with_length ? LENGTH : HEAD_END;
        end
      end
      LENGTH: state <= HEAD_END;
      HEAD_END: begin
        word <= word + 8'd1;
        if (text_last) begin
          word  <= '0;
          state <= with_body && !with_length ? BODY : FLUSH;
        end
      end
      BODY: begin
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
          metric <= metric + 4'd1;
          state  <= metric == 4'(METRICS - 1) ? FLUSH : BODY;
        end
      end

      FLUSH: state <= COMMIT;

      COMMIT: begin
        metric <= '0;
        written_to[s] <= with_length && text == TEXT_OK ? body_at : position;
        notify <= 1'b1;
        notify_at <= s;
        state <= PARSE;
        if (text == TEXT_CONTINUE) state <= DECIDE;
        else begin
          read_to[s] <= at;
          count_requests <= count_requests + 32'd1;
          if (!(text inside {TEXT_OK, TEXT_HEALTH, TEXT_METRICS, TEXT_FUNCTIONS}))
            count_errors <= count_errors + 32'd1;
          c <= '0;
          turns <= turns - 3'(|turns);
          if (closing) begin
            finish[s] <= 1'b1;
            c.place   <= AT_END;
          end else if (then_discard && left != '0) begin
            c.place <= AT_DISCARD;
          end else if (|(ready & ~(SESSIONS'(1) << s)) && turns == '0) begin
            // Others wait: this session's next request has its turn later.
            ready[s] <= 1'b1;
            state <= SAVE;
          end
        end
      end

      default: begin  // SAVE
        requests[s] <= saved;
        read_to[s] <= at;
        notify <= 1'b1;
        notify_at <= s;
        state <= PICK;
      end
    endcase

    if (arrived) ready[arrived_at] <= 1'b1;
    if (woken) ready[woken_at] <= 1'b1;
    if (open) begin
      read_to[open_at] <= open_next;
      written_to[open_at] <= open_una;
      fresh[open_at] <= 1'b1;
      active[open_at] <= 1'b1;
      finish[open_at] <= 1'b0;
    end
    if (rst) begin
      state  <= PICK;
      ready  <= '0;
      fresh  <= '0;
      active <= '0;
      finish <= '0;
      pick_from <= '0;
      count_requests <= '0;
      count_errors <= '0;
      count_busy <= '0;
    end
  end

endmodule
