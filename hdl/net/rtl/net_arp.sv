// Sends ARP (RFC 826): replies to requests for the board's address, and requests other addresses.
// One frame at a time: a request that arrives while a frame is being sent is dropped;
// its sender repeats it.
//
// A frame leaves from the cycle after `m_go`; otherwise `m` is zero,
// so that it can be ORed with other sources.
//
// Connections to the board need no ARP table: replies are sent to the address of the received
// frame.
module net_arp
  import net_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic        request,    // with the requester's addresses
    input  logic [47:0] mac,
    input  logic [31:0] ip,
    input  logic        ask_valid,  // requests an address; held until it is accepted
    output logic        ask_ready,
    input  logic [31:0] ask_ip,
    output logic        m_valid,    // a frame waits or leaves
    input  logic        m_go,       // the frame may leave
    input  logic        m_ready,    // its beat is accepted
    output beat_t       m
);

  logic [47:0] to_mac;
  logic [31:0] to_ip;
  logic [5:0] place;  // number of the beat that leaves
  logic asking;

  assign ask_ready = !m_valid && !request;

  // Values that are in several beats are selected once. While no frame leaves,
  // the model skips this.
  logic [47:0] peer_mac;
  logic [63:0] constants;
  always_comb begin
    peer_mac = asking ? {48{place[0]}} : swap48(to_mac);
    constants = '0;
    if (place[1]) constants[63:32] = {16'h0100, swap16(ETHERTYPE_ARP)};
    if (place[2]) constants[47:0] = {asking ? 16'h0100 : 16'h0200, 32'h0406_0008};
    m.keep = {{6{|place[4:0]}}, {2{|place}}};
    m.last = place[5];
    m.data = '0;
    if (place != '0)
      m.data = constants
          | {16'd0, {48{place[0] || place[4]}} & peer_mac}
          | {32'd0, {32{place[1] || place[3]}} & swap32(own_mac[31:0])}
          | {{16{place[0] || place[2]}} & swap16(own_mac[47:32]), 48'd0}
          | {{32{place[3]}} & swap32(own_ip), 32'd0}
          | {{16{place[4]}} & swap16(to_ip[31:16]), 48'd0}
          | {48'd0, {16{place[5]}} & swap16(to_ip[15:0])};
  end

  always_ff @(posedge clk) begin
    if (m_go) place <= 6'd1;
    else if (m_ready) place <= place << 1;
    if (rst) begin
      m_valid <= 1'b0;
      place <= '0;
    end else if ((request || ask_valid) && !m_valid) begin
      m_valid <= 1'b1;
      to_mac  <= mac;
      to_ip   <= ask_valid && !request ? ask_ip : ip;
      asking  <= ask_valid && !request;
    end else if (m_ready && m.last) begin
      m_valid <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  one_beat : assert property (@(posedge clk) disable iff (rst) $onehot0(place));
  idle_is_zero : assert property (@(posedge clk) disable iff (rst) place == '0 |-> m == '0);
  frames_leave_alone : assert property (@(posedge clk) disable iff (rst)
      m_go |-> m_valid && place == '0);
  beats_leave_in_a_frame : assert property (@(posedge clk) disable iff (rst)
      m_ready |-> place != '0);
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      ask_valid && !ask_ready |=> ask_valid && $stable(ask_ip));
`endif

endmodule
