// Cuts a stream into rows: pieces of at most W / 8 bytes that never cross from one row to the next.
//
// `start` takes `width`, the bytes of a row, at least 1. A stream that ends within a row is filled up
// with zeros. Beats are full but the last, or have no bytes at all. After the last row comes one piece with `m_end` and no bytes.
//
// Parameters: W, stream width in bits; WIDTH_BITS, bits of `width`.
// Latency: 2 cycles. Throughput: one piece a cycle while the input keeps up. `s_ready` does not depend on
// `m_ready`.
module axis_rows #(
    parameter int W = 64,
    parameter int WIDTH_BITS = 16
) (
    input  logic                     clk,
    input  logic                     rst,
    input  logic                     start,
    input  logic [WIDTH_BITS-1:0]    width,
    input  logic                     s_valid,
    output logic                     s_ready,
    input  logic [W-1:0]             s_data,
    input  logic [$clog2(W/8+1)-1:0] s_count,
    input  logic                     s_last,
    output logic                     m_valid,
    input  logic                     m_ready,
    output logic [W-1:0]             m_data,
    output logic [$clog2(W/8+1)-1:0] m_count,
    output logic                     m_row_last,
    output logic                     m_end
);

  localparam int B = W / 8;
  localparam int CountBits = $clog2(B + 1);
  localparam int HaveBits = $clog2(2 * B + 1);
  localparam int OffsetBits = $clog2(B);

  typedef struct packed {
    logic [W-1:0]         data;
    logic [CountBits-1:0] count;
    logic                 last;
  } beat_t;

  logic  running, in_valid, in_ready, skid_ready, put, kept;
  beat_t in;

  assign s_ready = running && skid_ready;

  axis_skid #(
      .T(beat_t)
  ) u_skid (
      .clk,
      .rst      (rst || start),
      .s_valid  (running && s_valid),
      .s_ready  (skid_ready),
      .s_payload('{data: s_data, count: s_count, last: s_last}),
      .m_valid  (in_valid),
      .m_ready  (in_ready),
      .m_payload(in)
  );

  // A piece begins somewhere in the lower of two beats and may end in the upper one. Beats are full but the last,
  // so that nothing needs to be moved on its way in; those without bytes are not kept.

  logic [W-1:0]          low, high, window;
  logic                  low_full, high_full, ended, row_begins, get, moves;
  logic [OffsetBits-1:0] offset;              // of the piece in the lower beat
  logic [CountBits:0]    offset_next;
  logic [HaveBits-1:0]   have;                // bytes held
  logic [CountBits-1:0]  need;                // bytes of the piece
  logic [WIDTH_BITS-1:0] to_go, to_go_next;   // bytes that the row still needs, and after this piece

  assign m_end   = ended && have == '0 && row_begins;
  assign m_valid = running && (have >= HaveBits'(need) || ended);
  assign m_count = m_end ? '0 : need;
  assign window  = W'({high, low} >> {offset, 3'b000});

  always_comb begin
    for (int i = 0; i < B; i++) m_data[8*i+:8] = HaveBits'(i) < have ? window[8*i+:8] : 8'd0;
  end

  assign get         = m_valid && m_ready;
  assign offset_next = (CountBits + 1)'(offset) + (CountBits + 1)'(need);
  assign moves       = get && offset_next >= (CountBits + 1)'(B);
  assign in_ready    = !high_full || moves || in.count == '0;
  assign put         = in_valid && in_ready;
  assign kept        = put && in.count != '0;
  assign to_go_next  = m_row_last ? width : to_go - WIDTH_BITS'(B);

  always_ff @(posedge clk) begin
    if (rst || start) begin
      running   <= start && !rst;
      ended     <= 1'b0;
      have      <= '0;
      low_full  <= 1'b0;
      high_full <= 1'b0;
      offset    <= '0;
    end else begin
      if (put && in.last) ended <= 1'b1;
      if (get && m_end) running <= 1'b0;
      have <= (!get ? have : have >= HaveBits'(need) ? have - HaveBits'(need) : '0) + (put ? HaveBits'(in.count) : '0);
      if (get) offset <= offset_next[OffsetBits-1:0];
      low_full  <= (moves ? high_full : low_full) || kept;
      high_full <= moves ? high_full && kept : high_full || (low_full && kept);
    end
  end

  always_ff @(posedge clk) begin
    if (moves) low <= high_full ? high : in.data;
    else if (!low_full) low <= in.data;
    if (kept) high <= in.data;
    if (start) begin
      to_go      <= width;
      need       <= width < WIDTH_BITS'(B) ? CountBits'(width) : CountBits'(B);
      m_row_last <= width <= WIDTH_BITS'(B);
      row_begins <= 1'b1;
    end else if (get) begin
      to_go      <= to_go_next;
      need       <= to_go_next < WIDTH_BITS'(B) ? CountBits'(to_go_next) : CountBits'(B);
      m_row_last <= to_go_next <= WIDTH_BITS'(B);
      row_begins <= m_row_last;
    end
  end

endmodule
