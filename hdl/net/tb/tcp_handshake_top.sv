// tcp_handshake for its bench: the phases of tcp_engine that it takes part in, and its structs signal by signal.
module tcp_handshake_top
  import net_pkg::*;
  import tcp_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        begin_segment,  // a segment without a session
    input  logic        begin_connect,  // a connection of the board; or another port for it
    input  logic [47:0] mac,
    input  logic [31:0] ip,
    input  logic [15:0] port,
    input  logic [15:0] own_port,
    input  logic [31:0] seq_in,
    input  logic [31:0] ack_in,
    input  logic [7:0]  flags_in,
    input  logic [15:0] length,
    input  logic [15:0] mss_in,
    input  logic        scaled,
    input  logic [3:0]  scale,
    input  logic [63:0] secret,
    input  logic [15:0] listen_port,
    input  logic [15:0] epoch,
    output logic        idle,
    output logic        accepted,       // in this cycle, a valid cookie
    output logic [1:0]  scaling,
    output logic [2:0]  mss,
    output logic [31:0] hash,
    output logic        port_chosen,    // the hash is that of a port,
    output logic        number_chosen,  // or of a sequence number
    output logic        plain_valid,
    output logic        same_peer,      // the reply goes to the segment's sender
    output logic [31:0] seq,
    output logic [31:0] ack,
    output logic [15:0] window,
    output logic [7:0]  flags,
    output logic        with_mss,
    output logic        with_scale
);
  phase_t phase;
  head_t head;
  segment_t plain;
  logic syn, cookie_ack, done, checked, late, right, busy;

  assign head = '{
    mac: mac, ip: ip, port: port, own_port: own_port, seq: seq_in, ack: ack_in, window: '0, flags: flags_in,
    length: length, mss: mss_in, scaled: scaled, scale: scale
  };

  always_ff @(posedge clk) begin
    case (phase)
      IDLE:     if (begin_segment) phase <= STRANGER;
                else if (begin_connect) phase <= PORT;
      STRANGER: phase <= syn ? COOKIE : cookie_ack ? CHECK : IDLE;
      COOKIE:   if (done) phase <= IDLE;
      CHECK:    if (checked) phase <= IDLE;
      PORT:     if (done) phase <= NUMBER;
      default:  if (done) phase <= IDLE;  // NUMBER
    endcase
    if (rst) phase <= IDLE;
  end

  tcp_handshake #(
      .RX_RING_BITS(21),
      .TX_RING_BITS(21)
  ) u_handshake (
      .connect_start(phase == IDLE && begin_connect && !begin_segment),
      .connect_again(1'b0),
      .ack          (cookie_ack),
      .*
  );

  assign idle = phase == IDLE && !plain_valid && !busy;
  assign accepted = phase == CHECK && checked && right && !late;
  assign port_chosen = phase == PORT && done;
  assign number_chosen = phase == NUMBER && done;
  assign same_peer = plain.mac == mac && plain.ip == ip && plain.port == port && plain.own_port == own_port && plain.length == '0;
  assign {seq, ack, window, flags} = {plain.seq, plain.ack, plain.window, plain.flags};
  assign {with_mss, with_scale} = {plain.with_mss, plain.with_scale};

  // A segment has one reply at most, and a valid cookie none.
  accepted_cookies_have_no_reply : assert property (@(posedge clk) disable iff (rst) accepted |=> !plain_valid);
endmodule
