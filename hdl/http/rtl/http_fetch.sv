// Fetches a file from an HTTP server: opens a connection, sends the request, checks status and
// length, and passes the body on. The reply must be a 200 with a Content-Length of at most `most`;
// chunked or longer replies are refused.
//
// Time is bounded: by the connection's own limits, QUIET_MS without data from the server, and
// TOTAL_MS in all. After `done` the connection is closed in the background;
// then `ready` is set again.
//
// Parameters: the rings' bits; MEMORY_LATENCY as in http_ahead; PATH_BYTES; QUIET_MS, TOTAL_MS.
// Throughput: one byte of the head, or 8 bytes of the body, per cycle.
module http_fetch
  import net_pkg::*;
  import functions_pkg::*;
#(
    parameter  int SESSIONS = 16,
    parameter  int RX_RING_BITS = 21,
    parameter  int TX_RING_BITS = 21,
    parameter  int MEMORY_LATENCY = 4,
    parameter  int PATH_BYTES = 64,
    parameter  int QUIET_MS = 5000,
    parameter  int TOTAL_MS = 30000,
    localparam int S = $clog2(SESSIONS)
) (
`include "http_fetch_ports.svh"
    output client_t                 client,       // of net_stack, and of the rings
    input  client_reply_t           reply
);

  logic own_clk;  // gated while no state changes

  // The client's part of the stack; the session's number has the width of the memories.
  logic [S-1:0] session;
  logic [31:0] written_to;
  logic rx_wants, rx_read;
  logic [S+RX_RING_BITS-4:0] rx_read_address;
  logic [3:0] rx_read_note;
  logic unused_reply;
  assign unused_reply = &{1'b0, reply};

  localparam logic [8*4-1:0] Method = "GET ";
  localparam int EndBytes = 49;
  localparam logic [8*EndBytes-1:0] End = {".img HTTP/1.1", 16'h0d0a, "Host: store", 16'h0d0a, "Connection: close", 32'h0d0a_0d0a};
  localparam int HeadMost = 8192;

  typedef enum logic [3:0] {
    IDLE,
    CONNECT,
    METHOD,   // the request, one byte per cycle
    PATH,
    NAME,
    ENDING,
    HEAD,
    BODY,
    OVER
  } state_t;

  state_t state;
  logic [$clog2(PATH_BYTES+1)-1:0] i;  // byte of this part of the request
  logic [31:0] next, at, at_next, left;
  logic ended, dead, say;
  logic [$clog2(TOTAL_MS+1)-1:0] total_ms;
  logic [$clog2(QUIET_MS+1)-1:0] quiet_ms;

  assign ready = state == IDLE;

  // ---- the request ----
  logic [7:0] letter;
  logic part_over, writing;

  always_comb begin
    letter = Method[8*(3-32'(i))+:8];
    part_over = 1'b0;
    case (state)
      METHOD: part_over = i == 3;
      PATH: begin
        letter = path[8*32'(i)+:8];
        part_over = 32'(i) == PATH_BYTES - 1 || path[8*(32'(i)+1)+:8] == 8'd0;
      end
      NAME: begin
        letter = file[8*4'(i)+:8];
        part_over = 32'(i) == 15 || file[8*4'(4'(i)+4'd1)+:8] == 8'd0;
      end
      default: begin
        letter = End[8*(EndBytes-1-32'(i))+:8];
        part_over = 32'(i) == EndBytes - 1;
      end
    endcase
  end

  assign writing = state inside {METHOD, PATH, NAME, ENDING};

  // ---- the reply ----
  logic [63:0] bytes;
  logic [4:0] count, take;
  logic [2:0] lane;
  logic drained, reader_start, reads;
  http_pkg::kind_t [15:0] unused_kinds;
  logic [15:0] unused_there;

  http_ahead #(
      .SESSION_BITS  (S),
      .RING_BITS     (RX_RING_BITS),
      .MEMORY_LATENCY(MEMORY_LATENCY),
      .SHOWN         (8)
  ) u_reader (
      .clk(own_clk),
      .rst,
      .start       (reader_start),
      .session,
      .from        (at),
      .up_to       (next - 32'(ended)),
      .pause       (state == IDLE),
      .ahead       (1'b0),
      .ahead_session('0),
      .ahead_from  ('0),
      .ahead_up_to ('0),
      .drop        (1'b0),
      .drop_session('0),
      .wants       (rx_wants),
      .may         (reply.rx_may),
      .read        (rx_read),
      .read_address(rx_read_address),
      .read_note   (rx_read_note),
      .word_valid  (reply.rx_word.valid),
      .word_note   (reply.rx_word.note.detail),
      .word_data   (reply.rx_word.data),
      .bytes,
      .kinds       (unused_kinds),
      .there       (unused_there),
      .count,
      .drained,
      .lane,
      .onward      (5'(lane) + take),
      .busy        (reads)
  );

  // State of a line: the position, and the fields that it may still be.
  logic [13:0] head_bytes;
  logic [4:0] column;
  logic first_line, is_length, is_coding, bad, with_length, in_number, number_over;
  logic [7:0] byte_now, low;
  logic [11:0] status;

  localparam logic [8*15-1:0] LengthName = "content-length:";
  localparam logic [8*18-1:0] CodingName = "transfer-encoding:";
  localparam logic [8*7-1:0] Version = "HTTP/1.";

  assign byte_now = bytes[7:0];
  assign low = byte_now >= "A" && byte_now <= "Z" ? byte_now | 8'h20 : byte_now;

  assign m_last = left <= 32'd8;
  assign m_valid = state == BODY && (count >= 5'd8 || (m_last && 32'(count) >= left));

  always_comb begin
    take = '0;
    if (state == HEAD && !reader_start) take = 5'(count != '0);
    else if (m_valid && m_ready) take = m_last ? left[4:0] : 5'd8;
  end

  always_comb begin
    // Zeros follow the last byte, so that full words are written.
    m_data = bytes;
    for (int k = 0; k < 8; k++) if (32'(k) >= left) m_data[8*k+:8] = 8'd0;
  end

  // ---- control ----
  logic mine, silent, quit, releases;
  fetch_result_t quit_result;

  assign at_next = at + 32'(take);
  assign mine = reply.received.valid && reply.received.session[S-1:0] == session;
  assign silent = total_ms == '0 || quiet_ms == '0;

  always_comb begin
    client = '0;
    client.connect = state == CONNECT;
    client.session = session_t'(session);
    client.working = state inside {HEAD, BODY};
    client.progress = '{
      valid:      say,
      session:    session_t'(session),
      read_to:    at,
      written_to: written_to,
      finish:     state == OVER
    };
    client.released = '{valid: releases, session: session_t'(session)};
    client.rx_wants = rx_wants;
    client.rx_read = '{
      valid:   rx_read,
      address: 32'(rx_read_address),
      note:    '{reader: '0, detail: rx_read_note}
    };
    client.tx_write = '{
      valid:   writing && reply.tx_may,
      address: 32'({session, written_to[TX_RING_BITS-1:3]}),
      data:    {8{letter}},
      keep:    8'd1 << written_to[2:0]
    };
  end

  assign releases = state == OVER && dead && !say;

  always_comb begin
    quit = 1'b0;
    quit_result = FetchBroken;
    // An offered word stays until it is accepted.
    if ((state inside {HEAD, BODY} || writing) && !(m_valid && !m_ready)) begin
      if (silent) begin
        quit = 1'b1;
        quit_result = FetchSilent;
      end else if (dead) quit = 1'b1;
      // The stream has ended, and the rest is too short to continue.
      else if (state inside {HEAD, BODY} && !reader_start && ended && drained && (state == BODY ? !m_valid : count == '0))
        quit = 1'b1;
      else if (state == HEAD && (bad || head_bytes == 14'(HeadMost))) quit = 1'b1;
    end
  end

  always_ff @(posedge own_clk) begin
    done <= 1'b0;
    reader_start <= 1'b0;
    at <= at_next;
    if (say && reply.progress_ready) say <= 1'b0;
    if (tick && total_ms != '0) total_ms <= total_ms - 1'b1;
    if (tick && quiet_ms != '0) quiet_ms <= quiet_ms - 1'b1;
    if (mine) begin
      next <= reply.received.next;
      ended <= reply.received.ended;
      quiet_ms <= ($clog2(QUIET_MS + 1))'(QUIET_MS);
    end
    if (reply.change.valid && reply.change.dead && reply.change.session[S-1:0] == session) dead <= 1'b1;

    case (state)
      IDLE: begin
        total_ms <= ($clog2(TOTAL_MS + 1))'(TOTAL_MS);
        if (start) state <= CONNECT;
      end
      CONNECT: begin
        quiet_ms <= ($clog2(QUIET_MS + 1))'(QUIET_MS);
        i <= '0;
        if (reply.opened.valid) begin
          session <= reply.opened.session[S-1:0];
          next <= reply.opened.next;
          at <= reply.opened.next;
          written_to <= reply.opened.una;
          ended <= 1'b0;
          dead <= 1'b0;
        end
        if (reply.connect_done) begin
          state <= METHOD;
          if (reply.connect_result != CONNECT_OK) begin
            state <= IDLE;
            done <= 1'b1;
            result <= FetchSilent;
          end
        end
      end
      METHOD, PATH, NAME, ENDING:
      if (reply.tx_may) begin
        written_to <= written_to + 32'd1;
        i <= i + 1'b1;
        if (part_over) begin
          i <= '0;
          state <= state == METHOD ? PATH : state == PATH ? NAME : state == NAME ? ENDING : HEAD;
          if (state == ENDING) begin
            say <= 1'b1;
            reader_start <= 1'b1;
          end
        end
        head_bytes <= '0;
        column <= '0;
        first_line <= 1'b1;
        is_length <= 1'b1;
        is_coding <= 1'b1;
        bad <= 1'b0;
        with_length <= 1'b0;
        in_number <= 1'b0;
        number_over <= 1'b0;
        left <= '0;
      end
      HEAD:
      if (take != '0) begin
        head_bytes <= head_bytes + 14'd1;
        if (column != '1) column <= column + 5'd1;
        if (first_line) begin
          if (column < 5'd7 && byte_now != Version[8*(6-3'(column))+:8]) bad <= 1'b1;
          if (column == 5'd8 && byte_now != " ") bad <= 1'b1;
          if (column inside {9, 10, 11}) status <= {status[7:0], byte_now[3:0]};
          if (column inside {9, 10, 11} && (byte_now < "0" || byte_now > "9")) bad <= 1'b1;
        end else begin
          if (column < 5'd15 && low != LengthName[8*(14-4'(column))+:8]) is_length <= 1'b0;
          if (column < 5'd18 && low != CodingName[8*(17-5'(column))+:8]) is_coding <= 1'b0;
          // A chunked body, or two lengths, are refused.
          if (column == 5'd18 && is_coding) bad <= 1'b1;
          if (column == 5'd14 && is_length && low == ":") begin
            with_length <= 1'b1;
            in_number <= 1'b1;
            number_over <= 1'b0;
            if (with_length) bad <= 1'b1;
          end
          if (in_number) begin
            if (byte_now >= "0" && byte_now <= "9") begin
              left <= (left << 3) + (left << 1) + 32'(byte_now[3:0]);
              if (number_over || left > most) bad <= 1'b1;
            end else if (byte_now inside {" ", 8'h09}) number_over <= left != '0;
            else if (!(byte_now inside {8'h0d, 8'h0a})) bad <= 1'b1;
          end
        end
        if (byte_now == 8'h0a) begin
          first_line <= 1'b0;
          in_number <= 1'b0;
          column <= '0;
          is_length <= 1'b1;
          is_coding <= 1'b1;
          if (first_line && column < 5'd12) bad <= 1'b1;
          // An empty line: the head is over.
          if (!first_line && column == '0) begin
            state <= BODY;
            if (status != 12'h200 || !with_length || left == '0 || left > most) begin
              state <= OVER;
              say <= 1'b1;
              done <= 1'b1;
              result <= status != 12'h200 ? FetchMissing : FetchBroken;
            end
          end
        end else if (byte_now == 8'h0d && column == '0 && !first_line) column <= '0;
      end
      BODY:
      if (take != '0) begin
        left <= left - 32'(take);
        // Advances the window occasionally.
        if (at_next[RX_RING_BITS-3] != at[RX_RING_BITS-3]) say <= 1'b1;
        if (m_last) begin
          state <= OVER;
          say <= 1'b1;
          done <= 1'b1;
          result <= FetchOk;
        end
      end
      default: begin  // OVER: skips further data, so that the server reaches its end
        if (mine && !dead) begin
          at <= reply.received.next - 32'(reply.received.ended);
          say <= 1'b1;
        end
        if (releases && reply.release_ready) state <= IDLE;
      end
    endcase

    if (quit) begin
      state <= OVER;
      at <= next - 32'(ended);
      say <= 1'b1;
      done <= 1'b1;
      result <= quit_result;
    end
    if (rst) begin
      state <= IDLE;
      say <= 1'b0;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || start || state != IDLE || say || done || reader_start || reads),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  starts_when_ready : assert property (@(posedge clk) disable iff (rst) start |-> ready);
  body_stays : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable({m_data, m_last}));
  body_fits : assert property (@(posedge clk) disable iff (rst)
      state == BODY |-> left != '0 && left <= most);
  taken_bytes_are_visible : assert property (@(posedge clk) disable iff (rst) take <= count);
  done_for_a_cycle : assert property (@(posedge clk) disable iff (rst) done |=> !done);
  progress_stays : assert property (@(posedge clk) disable iff (rst)
      say && !reply.progress_ready |=> say);
  released_sessions_are_dead : assert property (@(posedge clk) disable iff (rst)
      client.released.valid |-> dead && state == OVER);
`endif

endmodule
