// Segments without a session: SYN cookies, which store the parameters of a connection in the own sequence number, and
// replies to segments of sessions that have ended; and port and sequence number of connections that the board opens.
//
// A cookie has 3 bits of time, 3 of MSS, 2 of window scaling, and 24 of a hash, which covers the complete time, of
// which these are the last bits. tcp_engine leads through the phases; this module holds the numbers.
//
// Parameters: as in tcp_engine. Latency: one cycle from STRANGER to a reset, 17 to the SYN with a cookie; 17 from
// STRANGER to `checked`.
module tcp_handshake
  import net_pkg::*;
  import tcp_pkg::*;
#(
    parameter int RX_RING_BITS = 21,
    parameter int WINDOW = 1 << RX_RING_BITS,
    parameter int TX_RING_BITS = 21,
    parameter int MSS = 1460,
    parameter bit ACTIVE_OPEN = 1,
`include "tcp_widths.svh"
) (
    input  logic        clk,
    input  logic        rst,
    input  phase_t      phase,
    input  head_t       head,           // of the segment, or of the connection to open
    input  logic [63:0] secret,
    input  logic [15:0] listen_port,
    input  logic [15:0] epoch,
    input  logic        connect_start,  // the port of a connection is chosen next: PORT follows
    input  logic        connect_again,  // another port
    output logic        syn,            // in STRANGER: a SYN, COOKIE follows
    output logic        ack,            // an ACK with a cookie, CHECK follows
    output logic        done,           // the hash is known
    output logic [31:0] hash,
    output logic        checked,        // in CHECK: the cookie is
    output logic        late,           // too old,
    output logic        right,          // or valid: the connection's parameters are
    output logic [1:0]  scaling,        // its window scaling,
    output logic [2:0]  mss,            // and the index of its MSS
    output logic        plain_valid,    // a reply without a session
    output segment_t    plain,
    output logic        busy
);

`include "tcp_types.svh"

  logic start;
  logic [31:0] given, irs;  // the cookie in an ACK; the peer's first sequence number
  logic [23:0] cookie_given;
  logic [15:0] cookie_epoch;
  logic [2:0] age;
  logic [1:0] subject;  // 0: a cookie, 2: a port, 3: a sequence number

  assign given = head.ack - 32'd1;
  assign syn = head.own_port == listen_port && head.flags[SYN] && !head.flags[ACK] && !head.flags[RST];
  assign ack = head.own_port == listen_port && head.flags[ACK] && !head.flags[SYN] && !head.flags[RST];
  assign busy = start || plain_valid;

  tcp_cookie u_cookie (
      .clk,
      .rst,
      .start,
      .secret,
      .message({subject, 9'd0, cookie_epoch, mss, scaling, irs, head.port, head.own_port, head.ip}),
      .done,
      .hash
  );

  always_ff @(posedge clk) begin
    start <= 1'b0;
    plain_valid <= 1'b0;
    if (connect_start) begin
      irs <= '0;
      cookie_epoch <= '0;
      mss <= 3'd1;
      scaling <= '0;
    end
    if (connect_start || connect_again) begin
      subject <= 2'd2;
      start <= 1'b1;
    end
    case (phase)
      STRANGER: begin
        plain <= '0;
        plain.mac <= head.mac;
        plain.ip <= head.ip;
        plain.port <= head.port;
        plain.own_port <= head.own_port;
        subject <= '0;
        cookie_epoch <= epoch;
        mss <= mss_index(head.mss);
        scaling <= scaling_of(head.scaled, head.scale);
        irs <= head.seq;
        if (syn) start <= 1'b1;
        else if (ack) begin
          start <= 1'b1;
          cookie_epoch <= epoch - 16'(3'(epoch[2:0] - given[31:29]));
          age <= epoch[2:0] - given[31:29];
          mss <= given[28:26];
          scaling <= given[25:24];
          irs <= head.seq - 32'd1;
        end else if (!head.flags[RST]) begin
          plain_valid <= 1'b1;
          plain.flags[RST] <= 1'b1;
          plain.flags[ACK] <= !head.flags[ACK];
          plain.seq <= head.flags[ACK] ? head.ack : 32'd0;
          plain.ack <= head.flags[ACK] ? 32'd0 :
              head.seq + 32'(head.length) + 32'(head.flags[SYN]) + 32'(head.flags[FIN]);
        end
      end
      COOKIE:
      if (done) begin
        plain_valid <= 1'b1;
        plain.flags[SYN] <= 1'b1;
        plain.flags[ACK] <= 1'b1;
        plain.seq <= {cookie_epoch[2:0], mss, scaling, hash[23:0]};
        plain.ack <= head.seq + 32'd1;
        plain.window <= first_offer(WINDOW);
        plain.with_mss <= 1'b1;
        plain.with_scale <= scaling != '0;
      end
      CHECK:
      if (checked && late) begin
        plain_valid <= 1'b1;
        plain.flags[RST] <= 1'b1;
        plain.seq <= head.ack;
      end
      PORT:
      if (ACTIVE_OPEN && done) begin
        subject <= 2'd3;
        start <= 1'b1;
      end
      default: ;
    endcase

    late <= age > 3'd4;
    cookie_given <= given[23:0];
    right <= hash[23:0] == cookie_given;
    checked <= done && phase == CHECK;
  end

`ifndef SYNTHESIS
  // A reset is never replied to (RFC 9293 section 3.5.2).
  resets_are_not_answered : assert property (@(posedge clk) disable iff (rst)
      phase == STRANGER && head.flags[RST] |=> !plain_valid && !start);
  // One hash at a time.
  hashes_do_not_overlap : assert property (@(posedge clk) disable iff (rst) start |-> !done);
`endif

endmodule
