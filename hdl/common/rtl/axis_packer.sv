// Packs pieces of 0 to W / 8 bytes into a stream whose beats are all full but the last.
//
// A full beat is held back until it is known whether it is the last, so that no empty beat follows
// others; an empty stream is one empty beat.
//
// Parameters: W, stream width in bits. Latency: 1 cycle and the wait for enough bytes.
// Throughput: W / 8 bytes a cycle; the end of a stream costs 1 or 2 cycles. `s_ready` depends on `m_ready`.
module axis_packer #(
    parameter int W = 64
) (
    input  logic                     clk,
    input  logic                     rst,
    input  logic                     s_valid,
    output logic                     s_ready,
    input  logic [W-1:0]             s_data,
    input  logic [$clog2(W/8+1)-1:0] s_count,
    input  logic                     s_last,
    output logic                     m_valid,
    input  logic                     m_ready,
    output logic [W-1:0]             m_data,
    output logic [W/8-1:0]           m_keep,
    output logic                     m_last
);

  localparam int B = W / 8;
  localparam int HaveBits = $clog2(2 * B + 1);
  localparam int ByteBits = $clog2(B);

  logic [W-1:0]        low, high, moved, turned;
  logic [HaveBits-1:0] have, left;
  logic                ending, put, get;
  logic [B-1:0]        stays;

  assign m_valid = ending || have > HaveBits'(B);
  assign m_last  = ending && have <= HaveBits'(B);
  assign m_data  = low;

  // Those of the first B bytes that there are.
  function automatic logic [B-1:0] first(input logic [HaveBits-1:0] count);
    first = |count[HaveBits-1:ByteBits] ? '1 : ~({B{1'b1}} << count[ByteBits-1:0]);
  endfunction

  assign m_keep = first(have);
  assign stays  = first(left);

  // What is held before a new piece fits in one beat, either because it did or because a beat leaves.
  assign s_ready = !ending && (have <= HaveBits'(B) || m_ready);
  assign put     = s_valid && s_ready;
  assign get     = m_valid && m_ready;

  // A piece is turned once: its bytes from `left` on continue the lower beat, those that wrapped around are the
  // upper one.
  assign left   = !get ? have : m_last ? '0 : have - HaveBits'(B);
  assign moved  = get ? high : low;
  assign turned = W'({s_data, s_data} >> (8 * (B - 32'(left) % B)));

  always_ff @(posedge clk) begin
    if (rst) begin
      have   <= '0;
      ending <= 1'b0;
    end else begin
      have <= left + (put ? HaveBits'(s_count) : '0);
      if (put && s_last) ending <= 1'b1;
      else if (get && m_last) ending <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    // Nothing changes while a beat waits, not even bytes without `keep`.
    if (put || get) begin
      for (int i = 0; i < B; i++) low[8*i+:8] <= stays[i] ? moved[8*i+:8] : turned[8*i+:8];
    end
    if (put) high <= turned;
  end

endmodule
