// Which session a segment belongs to: compares the peer's address and port, and the board's port,
// with those of every session at once.
//
// Parameters: SESSIONS. Latency: combinational. The area grows with SESSIONS: for tens, not thousands.
module tcp_lookup #(
    parameter int SESSIONS = 16
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic [                63:0] key,   // peer's address, peer's port, own port
    output logic                        hit,
    output logic [$clog2(SESSIONS)-1:0] index,
    input  logic                        add,
    input  logic                        remove,
    input  logic [$clog2(SESSIONS)-1:0] at,
    input  logic [                63:0] new_key
);

  logic [63:0] keys[SESSIONS];
  logic [SESSIONS-1:0] live;

  always_comb begin
    hit   = 1'b0;
    index = '0;
    for (int i = 0; i < SESSIONS; i++) begin
      if (live[i] && keys[i] == key) begin
        hit   = 1'b1;
        index = index | $clog2(SESSIONS)'(i);
      end
    end
  end

  always_ff @(posedge clk) begin
    if (rst) live <= '0;
    else if (add) live[at] <= 1'b1;
    else if (remove) live[at] <= 1'b0;
    if (add) keys[at] <= new_key;
  end

endmodule
