// TCP bridge, in: receive rings → packets.
//
// A session opened by the peer begins with a hello: a peer without the job's key, or that is not an
// expected station, is closed. Then a packet leaves its ring when it is complete. A session with a
// malformed packet is closed; a packet whose rank does not belong to the session's station is
// dropped. A PROBE about a kernel is passed to msg_tcp_tx.
//
// Parameters: SESSIONS; RING_BITS, log2 of a ring's bytes. Latency: 7 cycles from `rcv_notify` to
// the first beat. Throughput: one beat per cycle, plus one cycle per packet.
module msg_tcp_rx
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter  int SESSIONS = 32,
    parameter  int RING_BITS = 14,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic                   put,           // a rank's station, and its port if it is on this
                                                  // board
    input  logic [7:0]             put_rank,
    input  logic [7:0]             put_station,
    input  logic [4:0]             put_port,
    input  logic [31:0]            states,        // two bits per kernel: 0 running, 1 ended, 2
                                                  // failed
    input  logic [1:0][63:0]       job_key,
    input  logic                   open,          // a session begins: opened by this board to this
                                                  // station, or by the peer
    input  logic                   open_active,
    input  logic [S-1:0]           open_at,
    input  logic [7:0]             open_station,
    input  logic                   rcv_notify,          // its bytes have arrived up to this one
    input  logic [S-1:0]           rcv_notify_at,
    input  logic [31:0]            rcv_notify_next,
    input  logic                   rcv_notify_ended,
    input  logic                   close,         // the session has ended
    input  logic [S-1:0]           close_at,
    input  logic                   late,          // closes sessions without a hello
    output logic                   friend_valid,  // a station that has sent its hello: held until
                                                  // the decision
    input  logic                   friend_ready,
    input  logic                   friend_good,
    output logic [7:0]             friend_station,
    output logic [SESSIONS-1:0]    live,          // sessions of stations
    output logic [7:0]             station_of[SESSIONS],
    output logic [S+RING_BITS-4:0] read_address,
    input  logic [63:0]            read_data,     // a cycle later
    output logic                   m_valid,
    input  logic                   m_ready,
    output beat_t                  m_beat,
    output logic                   a_valid,
    input  logic                   a_ready,
    output logic [7:0]             a_own,
    output logic [7:0]             a_rank,
    output logic [1:0]             a_state,
    output logic                   busy,          // with this session
    output logic [S-1:0]           at,
    input  logic [31:0]            at_read,       // its read position
    output logic                   report_valid,    // its new read position; no more data will be
                                                    // written if `finish`
    input  logic                   report_ready,
    output logic [31:0]            report_to,
    output logic                   report_finish,
    output logic [15:0]            strange
);

  localparam int DEPTH = 8;

  typedef enum logic [3:0] { Idle, Look, Size, Greet, Friend, Head, Judge, Body, Settle, Say } state_t;
  typedef enum logic [1:0] { Closed, Stranger, Open, Refused } mode_t;

  state_t               state;
  mode_t                modes[SESSIONS];
  mode_t                mode;
  logic [32:0]          nexts[SESSIONS];
  logic [SESSIONS-1:0]  pending, request, grant, old;
  logic [S-1:0]         picked;
  logic [7:0]           stations[256];
  logic [4:0]           ports[256];
  logic [31:0]          next, from;
  logic [RING_BITS-3:0] words, left;      // of the ring; of a packet, including its first beat
  logic                 ended, moved, right, skip;
  logic [1:0]           step;
  hum_envelope_t        head;
  logic [7:0]           source_station;
  logic [4:0]           port;
  logic                 carries;
  logic [7:0]           more, body;           // beats after the packet's first

  // ---- the ring, from `from` on, in whole words ----

  logic                 fetching, coming, primed, push, pop, w_valid, flush;
  logic [RING_BITS-3:0] fetch_left;
  logic [RING_BITS-4:0] fetch_at;
  logic [63:0]          earlier, aligned, word;
  logic [2:0]           turn;
  logic [3:0]           credit;

  assign read_address = {at, fetch_at};
  assign fetching     = fetch_left != '0 && credit != '0 && !flush;
  assign push         = coming && (turn == '0 || primed) && !flush;
  assign flush        = state inside {Idle, Look, Size, Settle, Say};

  always_comb
    for (int i = 0; i < 8; i++)
      aligned[8*i+:8] = turn == '0 || 4'(i) + 4'(turn) >= 4'd8 ? read_data[8*3'(3'(i)+turn)+:8] : earlier[8*3'(3'(i)+turn)+:8];

  fifo #(
      .T(logic [63:0]),
      .DEPTH(DEPTH)
  ) u_words (
      .clk,
      .rst      (flush),
      .s_valid  (push),
      .s_ready  (),  // bounded by the credit
      .s_payload(aligned),
      .m_valid  (w_valid),
      .m_ready  (pop),
      .m_payload(word)
  );

  always_ff @(posedge clk) begin
    coming <= fetching;
    if (coming) begin
      earlier <= read_data;
      primed <= 1'b1;
    end
    if (fetching) begin
      fetch_at   <= fetch_at + 1'b1;
      fetch_left <= fetch_left - 1'b1;
    end
    credit <= credit - 4'(fetching) + 4'(pop && w_valid) + 4'(coming && !push);
    if (state == Size) begin
      fetch_at   <= from[RING_BITS-1:3];
      fetch_left <= words + (RING_BITS - 2)'(from[2:0] != '0);
      turn       <= from[2:0];
      primed     <= 1'b0;
      credit     <= 4'(DEPTH);
    end
  end

  // ---- selection of the session ----

  arbiter #(
      .N(SESSIONS)
  ) u_arbiter (
      .clk,
      .rst,
      .enable (state == Idle),
      .request(pending),
      .grant
  );

  always_comb begin
    picked = '0;
    for (int i = 0; i < SESSIONS; i++) if (grant[i]) picked |= S'(i);
    request = '0;
    if (rcv_notify) request[rcv_notify_at] = 1'b1;
    for (int i = 0; i < SESSIONS; i++) if (late && old[i] && modes[i] == Stranger) request[i] = 1'b1;
  end

  for (genvar i = 0; i < SESSIONS; i++) begin : g_live
    assign live[i] = modes[i] == Open;
  end

  assign words    = (RING_BITS - 2)'((next - from) >> 3);
  assign more     = carries ? beats(head.size[10:0]) : '0;
  assign carries  = has_payload(head.kind);
  assign busy     = state != Idle;
  assign pop      = state == Head || state == Greet || (state == Body && (!m_valid || m_ready || skip));
  assign report_valid     = state == Say;
  assign report_to        = from;
  assign report_finish    = ended;
  assign friend_valid   = state == Friend && right;

  always_ff @(posedge clk) begin
    if (put) begin
      stations[put_rank] <= put_station;
      ports[put_rank]    <= put_port;
    end
    if (rcv_notify) nexts[rcv_notify_at] <= {rcv_notify_ended, rcv_notify_next};
    if (state == Head) begin
      source_station <= stations[word[15:8]];
      port           <= ports[word[7:0]];
    end
  end

  always_ff @(posedge clk) begin
    pending <= (pending & ~grant) | request;
    if (m_ready) m_valid <= 1'b0;
    if (a_ready) a_valid <= 1'b0;
    case (state)
      Idle: begin
        at <= picked;
        if (grant != '0) state <= Look;
      end
      Look: begin
        {ended, next} <= nexts[at];
        from          <= at_read;
        mode          <= modes[at];
        moved         <= 1'b0;
        step          <= '0;
        right         <= 1'b1;
        state         <= Size;
      end
      Size: begin
        left <= words;
        case (mode)
          Closed: state <= Idle;
          Refused: begin
            from  <= next;
            ended <= 1'b1;
            state <= Say;
          end
          Stranger: state <= words >= (RING_BITS - 2)'(3) ? Greet : ended ? Say : Idle;
          default: state <= words != '0 ? Head : ended ? Say : Idle;
        endcase
      end
      Greet:
      if (w_valid) begin
        case (step)
          2'd0: begin
            right          <= word[55:0] == Greeting;
            friend_station <= word[63:56];
          end
          2'd1: right <= right && word == job_key[0];
          default: begin
            right <= right && word == job_key[1];
            state <= Friend;
          end
        endcase
        step <= step + 1'b1;
        from <= from + 32'd8;
        left <= left - 1'b1;
      end
      Friend:
      if (!right || friend_ready) begin
        moved <= 1'b1;
        if (right && friend_good) begin
          modes[at]      <= Open;
          station_of[at] <= friend_station;
          state          <= left == '0 ? Settle : Head;
        end else begin
          modes[at] <= Refused;
          ended     <= 1'b1;
          state     <= Settle;
        end
      end
      Head:
      if (w_valid) begin
        head  <= hum_envelope_t'(word);
        state <= Judge;
      end
      Judge:
      if (carries && head.size > PacketBytes) begin
        // The start of the next packet is unknown.
        modes[at] <= Refused;
        strange   <= strange + 1'b1;
        ended     <= 1'b1;
        moved     <= 1'b1;
        state     <= Settle;
      end else if (carries && left <= (RING_BITS - 2)'(beats(head.size[10:0]))) state <= Settle;  // the rest has not arrived
      else if (source_station != station_of[at] || head.kind == PacketProbe || !m_valid || m_ready) begin
        // A PROBE waits for the reply to the previous one.
        if (source_station != station_of[at] || head.kind != PacketProbe || !a_valid || a_ready) begin
          body  <= more;
          skip  <= source_station != station_of[at] || head.kind == PacketProbe;
          from  <= from + 32'd8;
          left  <= left - 1'b1;
          moved <= 1'b1;
          state <= more != '0 ? Body : left == (RING_BITS - 2)'(1) ? Settle : Head;
          if (source_station != station_of[at]) strange <= strange + 1'b1;
          else if (head.kind == PacketProbe) begin
            a_valid <= !port[4];
            a_own   <= head.dest;
            a_rank  <= head.src;
            a_state <= states[{port[3:0], 1'b0}+:2];
          end else begin
            m_valid <= 1'b1;
            m_beat  <= '{last: more == '0, data: head};
          end
        end
      end
      Body:
      if (w_valid && pop) begin
        body <= body - 1'b1;
        from <= from + 32'd8;
        left <= left - 1'b1;
        if (!skip) begin
          m_valid <= 1'b1;
          m_beat  <= '{last: body == 8'd1, data: word};
        end
        if (body == 8'd1) state <= left == (RING_BITS - 2)'(1) ? Settle : Head;
      end
      Settle: state <= moved || ended ? Say : Idle;
      Say: if (report_ready) state <= Idle;
      default: ;
    endcase
    if (open) begin
      modes[open_at] <= open_active ? Open : Stranger;
      if (open_active) station_of[open_at] <= open_station;
    end
    if (close) modes[close_at] <= Closed;
    if (late)
      for (int i = 0; i < SESSIONS; i++) begin
        old[i] <= modes[i] == Stranger;
        if (request[i] && old[i] && modes[i] == Stranger) modes[i] <= Refused;
      end
    if (rst) begin
      state   <= Idle;
      pending <= '0;
      old     <= '0;
      m_valid <= 1'b0;
      a_valid <= 1'b0;
      strange <= '0;
      for (int i = 0; i < SESSIONS; i++) modes[i] <= Closed;
    end
  end

`ifndef SYNTHESIS
  output_stays : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready |=> m_valid && $stable(m_beat));
  probes_stay : assert property (@(posedge clk) disable iff (rst)
      a_valid && !a_ready |=> a_valid && $stable({a_own, a_rank, a_state}));
  stations_stay : assert property (@(posedge clk) disable iff (rst)
      friend_valid && !friend_ready |=> friend_valid && $stable(friend_station));
  reports_stay : assert property (@(posedge clk) disable iff (rst)
      report_valid && !report_ready |=> report_valid && $stable({at, report_to, report_finish}));
  credit_is_bounded : assert property (@(posedge clk) disable iff (rst)
      !flush |-> credit <= 4'(DEPTH));
  packets_have_beats : assert property (@(posedge clk) disable iff (rst)
      state == Body |-> body != '0 && left != '0);
`endif

endmodule
