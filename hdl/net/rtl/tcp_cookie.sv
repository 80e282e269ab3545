// HalfSipHash-2-4 (Aumasson and Bernstein) of four words, for SYN cookies.
//
// Latency: 15 cycles from `start` to `done`; one hash at a time.
module tcp_cookie (
    input  logic         clk,
    input  logic         rst,
    input  logic         start,
    input  logic [ 63:0] secret,
    input  logic [127:0] message,  // word 0 in bits 31:0
    output logic         done,
    output logic [ 31:0] hash
);

  logic [31:0] v0, v1, v2, v3, m;
  logic [31:0] a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3;
  logic [3:0] round;  // two per word, a fifth word with the length of 16 bytes, then four
  logic running;

  function automatic logic [31:0] rotate(input logic [31:0] v, input int by);
    return (v << by) | (v >> (32 - by));
  endfunction

  always_comb begin
    case (round[3:1])
      3'd0: m = message[31:0];
      3'd1: m = message[63:32];
      3'd2: m = message[95:64];
      3'd3: m = message[127:96];
      3'd4: m = 32'h1000_0000;
      default: m = '0;
    endcase
    // A word is added before its first round and again after its second.
    a0 = v0;
    a1 = v1;
    a2 = round == 4'd10 ? v2 ^ 32'hff : v2;
    a3 = !round[0] ? v3 ^ m : v3;
    b0 = a0 + a1;
    b1 = rotate(a1, 5) ^ b0;
    b2 = a2 + a3;
    b3 = rotate(a3, 8) ^ b2;
    c0 = rotate(b0, 16) + b3;
    c3 = rotate(b3, 7) ^ c0;
    c2 = b2 + b1;
    c1 = rotate(b1, 13) ^ c2;
  end

  always_ff @(posedge clk) begin
    done <= running && round == 4'd13 && !rst;
    if (rst) running <= 1'b0;
    else if (start) begin
      running <= 1'b1;
      round <= '0;
      v0 <= secret[31:0];
      v1 <= secret[63:32];
      v2 <= secret[31:0] ^ 32'h6c79_6765;
      v3 <= secret[63:32] ^ 32'h7465_6462;
    end else if (running) begin
      v0 <= round[0] ? c0 ^ m : c0;
      v1 <= c1;
      v2 <= rotate(c2, 16);
      v3 <= c3;
      round <= round + 4'd1;
      if (round == 4'd13) running <= 1'b0;
    end
  end

  assign hash = v1 ^ v3;

`ifndef SYNTHESIS
  one_hash : assert property (@(posedge clk) disable iff (rst) start |-> !running);
  rounds_are_14 : assert property (@(posedge clk) disable iff (rst) running |-> round <= 4'd13);
  message_stays : assert property (@(posedge clk) disable iff (rst)
      running |=> $stable(message) || !running);
`endif

endmodule
