// TCP bridge, out: packets → transmit rings.
//
// A packet is appended to the ring of the session of its rank's station as soon as it fits
// completely. Packets wait until the station has a session; after the end of the session, they are
// dropped. Hellos and replies to PROBEs (msg_tcp_rx) are sent between two packets. A packet to the
// same rank as the previous one needs no lookup.
//
// Parameters: SESSIONS; RING_BITS, log2 of a ring's bytes. Latency: 5 cycles, to the same rank
// 1. Throughput: one beat per cycle, plus a cycle more than the latency for each packet.
module msg_tcp_tx
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter  int SESSIONS = 32,
    parameter  int RING_BITS = 14,
    localparam int S = $clog2(SESSIONS)
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic                   put,           // a rank's station
    input  logic [7:0]             put_rank,
    input  logic [7:0]             put_station,
    input  logic                   link,          // a station gets a session, or loses it
    input  logic [7:0]             link_station,
    input  logic                   link_open,
    input  logic [S-1:0]           link_session,
    input  logic                   open,          // a session begins with this byte
    input  logic [S-1:0]           open_at,
    input  logic [31:0]            open_una,
    input  logic                   acked,         // its peer has acknowledged all bytes before this
                                                  // one
    input  logic [S-1:0]           acked_at,
    input  logic [31:0]            acked_to,
    input  logic                   hello_valid,
    output logic                   hello_ready,
    input  logic [S-1:0]           hello_at,
    input  logic [2:0][63:0]       hello,
    input  logic                   s_valid,
    output logic                   s_ready,
    input  beat_t                  s_beat,
    input  logic                   a_valid,
    output logic                   a_ready,
    input  logic [7:0]             a_own,
    input  logic [7:0]             a_rank,
    input  logic [1:0]             a_state,
    output logic                   write,
    output logic [S+RING_BITS-4:0] write_address,
    output logic [63:0]            write_data,
    output logic [7:0]             write_keep,
    output logic                   busy,          // uses a session, which may not be selected yet
    output logic                   chosen,        // the session is selected
    output logic [S-1:0]           at,
    input  logic [31:0]            at_written,    // its written position
    output logic                   report_valid,    // its new written position
    input  logic                   report_ready,
    output logic [31:0]            report_to,
    output logic [15:0]            dropped
);

  localparam logic [31:0] Room = 32'(1 << RING_BITS) - 32'(LimitPacketBytes) - 32'd16;

  typedef enum logic [2:0] { Idle, Find, Fill, Check, Pack, Say, Drop } state_t;
  typedef enum logic [1:0] { Packet, Answer, Hello } source_t;
  typedef struct packed {
    logic         had;   // a session
    logic         open;
    logic [S-1:0] session;
  } link_t;

  state_t        state;
  source_t       source;
  logic [7:0]    stations[256];
  link_t         links[256];
  logic [31:0]   unas[SESSIONS];
  link_t         found;
  logic [7:0]    station, sweep;
  logic          sweeping, first, roomy, same, again;
  logic [7:0]    rank;      // for which `at` was looked up, if `same`
  logic [1:0]    step;
  logic [31:0]   to, una;
  logic          in_valid, in_last;
  logic [63:0]   in, turned, carried;
  logic [2:0]    turn;
  hum_envelope_t head;

  assign turn        = to[2:0];
  assign busy        = state != Idle;
  assign chosen      = state == Check || state == Pack || state == Say;
  assign s_ready     = (state == Pack && source == Packet) || state == Drop;
  assign report_valid  = state == Say;
  assign report_to     = to;
  assign a_ready     = source == Answer && ((state == Say && report_ready) || (state == Check && found.had && !found.open));
  assign hello_ready = source == Hello && state == Say && report_ready;

  // The rank's session is cached: no session was looked up, opened or released since.
  assign again       = same && s_valid && s_beat.data[7:0] == rank && roomy && !hello_valid && !a_valid && !link && !open;

  always_comb begin
    head      = '0;
    head.dest = a_rank;
    head.src  = a_own;
    head.kind = PacketState;
    head.size = 24'd8;
    case (source)
      Hello: begin
        in_valid = 1'b1;
        in       = hello[step];
        in_last  = step == 2'd2;
      end
      Answer: begin
        in_valid = 1'b1;
        in       = step == '0 ? head : {30'd0, a_state, 32'd0};
        in_last  = step == 2'd1;
      end
      default: begin
        in_valid = s_valid;
        in       = s_beat.data;
        in_last  = s_beat.last;
      end
    endcase
    for (int i = 0; i < 8; i++) turned[8*i+:8] = in[8*3'(3'(i)-turn)+:8];
  end

  always_ff @(posedge clk) begin
    if (put) stations[put_rank] <= put_station;
    if (sweeping || link) links[sweeping ? sweep : link_station] <= sweeping ? '0 : '{1'b1, link_open, link_session};
    if (open || acked) unas[open ? open_at : acked_at] <= open ? open_una : acked_to;
    if (state == Idle) station <= stations[a_valid ? a_rank : s_beat.data[7:0]];
    found   <= links[station];
    una     <= unas[at];
    roomy   <= to - una <= Room;
  end

  always_ff @(posedge clk) begin
    write <= 1'b0;
    case (state)
      Idle: begin
        source <= hello_valid ? Hello : a_valid ? Answer : Packet;
        if (hello_valid) at <= hello_at;
        step   <= '0;
        first  <= 1'b1;
        if (again) state <= Pack;
        else if (!sweeping && (hello_valid || a_valid || s_valid)) begin
          state <= hello_valid ? Fill : Find;
          same  <= 1'b0;
          rank  <= s_beat.data[7:0];
        end
      end
      Find: state <= Fill;
      Fill: begin
        if (source != Hello) at <= found.session;
        state <= Check;
        to    <= at_written;
      end
      Check: begin
        // Packets without space in their ring, or without a session yet, wait;
        // others may pass them.
        to <= at_written;
        if (first) first <= 1'b0;
        else begin
          first <= 1'b1;
          // A session that was configured meanwhile is not the one that was looked up.
          if (source == Hello || (found.open && found.session == at)) state <= to - una <= Room ? Pack : Idle;
          else if (found.had && !found.open) state <= source == Packet ? Drop : Idle;
          else state <= Idle;
        end
      end
      Pack:
      if (in_valid) begin
        write         <= 1'b1;
        write_address <= {at, to[RING_BITS-1:3]};
        write_keep    <= first ? 8'hff << turn : 8'hff;
        first         <= 1'b0;
        carried       <= turned;
        to            <= to + 32'd8;
        step          <= step + 1'b1;
        if (in_last) state <= Say;
      end
      Say: begin
        write         <= 1'b1;
        write_address <= {at, to[RING_BITS-1:3]};
        write_keep    <= ~(8'hff << turn);
        if (report_ready) begin
          state <= Idle;
          same  <= source == Packet;
        end
      end
      Drop:
      if (s_valid && s_beat.last) begin
        dropped <= dropped + 1'b1;
        state   <= Idle;
      end
      default: state <= Idle;
    endcase
    for (int i = 0; i < 8; i++)
      write_data[8*i+:8] <= state == Say || 3'(i) < turn ? carried[8*i+:8] : turned[8*i+:8];
    if (link || open || put) same <= 1'b0;
    if (sweeping) begin
      sweep    <= sweep + 1'b1;
      sweeping <= sweep != '1;
    end
    if (rst) begin
      state    <= Idle;
      same     <= 1'b0;
      sweeping <= 1'b1;
      sweep    <= '0;
      dropped  <= '0;
    end
  end

`ifndef SYNTHESIS
  reports_stay : assert property (@(posedge clk) disable iff (rst)
      report_valid && !report_ready |=> report_valid && $stable({at, report_to}));
  bytes_fit_the_ring : assert property (@(posedge clk) disable iff (rst)
      state inside {Pack, Say} |-> to - una <= 32'(1 << RING_BITS));
  one_source : assert property (@(posedge clk) disable iff (rst)
      $onehot0({s_ready && s_valid, a_ready, hello_ready}));
`endif

endmodule
