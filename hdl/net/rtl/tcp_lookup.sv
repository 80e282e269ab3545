// Which session a segment belongs to: compares the peer's address and port, and the board's port,
// with those of every session at once. The address has a cycle of its own: it must be there a cycle
// before the ports are.
//
// Parameters: SESSIONS. Latency: one cycle from the address, combinational from the ports. The area
// grows with SESSIONS: for tens, not thousands.
module tcp_lookup #(
    parameter int SESSIONS = 16
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic [                31:0] ip,     // the peer's
    input  logic [                31:0] ports,  // peer's, own
    output logic                        hit,
    output logic [$clog2(SESSIONS)-1:0] index,
    input  logic                        add,
    input  logic                        remove,
    input  logic [$clog2(SESSIONS)-1:0] at,
    input  logic [                63:0] new_key  // the peer's address, ports
);

  logic [63:0] keys[SESSIONS];
  logic [SESSIONS-1:0] live, same_ip;

  always_comb begin
    hit   = 1'b0;
    index = '0;
    for (int i = 0; i < SESSIONS; i++) begin
      if (live[i] && same_ip[i] && keys[i][31:0] == ports) begin
        hit   = 1'b1;
        index = index | $clog2(SESSIONS)'(i);
      end
    end
  end

  always_ff @(posedge clk) begin
    for (int i = 0; i < SESSIONS; i++) same_ip[i] <= keys[i][63:32] == ip;
    if (rst) live <= '0;
    else if (add) live[at] <= 1'b1;
    else if (remove) live[at] <= 1'b0;
    if (add) keys[at] <= new_key;
  end

endmodule
