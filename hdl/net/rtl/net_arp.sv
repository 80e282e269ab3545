// Sends ARP (RFC 826): answers requests for the board's address, and asks for others. One frame at a time: a
// request that comes while one is being sent is dropped, and asked again.
//
// Who opens connections to the board needs no ARP table: it is answered at the address that spoke.
module net_arp
  import net_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic [47:0] own_mac,
    input  logic [31:0] own_ip,
    input  logic        request,    // with the asker's addresses
    input  logic [47:0] mac,
    input  logic [31:0] ip,
    input  logic        ask_valid,  // for an address, held until it is taken
    output logic        ask_ready,
    input  logic [31:0] ask_ip,
    output logic        m_valid,
    input  logic        m_ready,
    output beat_t       m
);

  logic [47:0] to_mac;
  logic [31:0] to_ip;
  logic [2:0] index;
  logic asking;

  assign ask_ready = !m_valid && !request;

  always_comb begin
    m.keep = 8'hff;
    m.last = 1'b0;
    case (index)
      3'd0: m.data = {swap16(own_mac[47:32]), asking ? 48'hffff_ffff_ffff : swap48(to_mac)};
      3'd1: m.data = {16'h0100, swap16(ETHERTYPE_ARP), swap32(own_mac[31:0])};
      3'd2: m.data = {swap16(own_mac[47:32]), asking ? 16'h0100 : 16'h0200, 32'h0406_0008};
      3'd3: m.data = {swap32(own_ip), swap32(own_mac[31:0])};
      3'd4: m.data = {swap16(to_ip[31:16]), asking ? 48'd0 : swap48(to_mac)};
      default: begin
        m.data = {48'd0, swap16(to_ip[15:0])};
        m.keep = 8'h03;
        m.last = 1'b1;
      end
    endcase
  end

  always_ff @(posedge clk) begin
    if (rst) m_valid <= 1'b0;
    else if ((request || ask_valid) && !m_valid) begin
      m_valid <= 1'b1;
      index   <= '0;
      to_mac  <= mac;
      to_ip   <= request ? ip : ask_ip;
      asking  <= !request;
    end else if (m_valid && m_ready) begin
      index <= index + 3'd1;
      if (m.last) m_valid <= 1'b0;
    end
  end

endmodule
