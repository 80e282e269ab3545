// Cuts a stream into rows: pieces of at most W / 8 bytes that never cross from one row to the next.
//
// `start` samples `width`, the bytes of a row, at least 1. A stream that ends within a row is
// padded with zeros. Beats are full except the last, or have no bytes. After the last row comes a
// piece with `m_end` and no bytes.
//
// Parameters: W, stream width in bits; WIDTH_BITS, bits of `width`.
// Latency: 2 cycles. Throughput: one piece per cycle while input is available. `s_ready` does not
// depend on `m_ready`.
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
  localparam int OffsetBits = $clog2(B);
  localparam int PieceBits = WIDTH_BITS - OffsetBits;

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

  // A piece begins in the lower of two beats and may end in the upper one; the upper beat becomes
  // the lower one in place. Beats are full except the last, so that no alignment is needed on
  // input; beats without bytes are not stored. Missing bytes are zeros.

  logic [W-1:0]          beats[2];
  logic [1:0]            full;
  logic                  lower, into, ended, row_begins, get, moves, spans;
  logic                  past;           // the piece begins after the last beat's bytes, if that is
                                         // the lower and only beat
  logic [OffsetBits-1:0] offset;         // of the piece in the lower beat
  logic [CountBits-1:0]  need, behind;   // bytes of the piece; the position after it, from the
                                         // lower beat's first byte
  logic [CountBits-1:0]  need_next;
  logic [CountBits-1:0]  tail;           // bytes of the last stored beat
  logic [B-1:0]          in_keep;

  assign spans       = behind > CountBits'(B);
  assign m_end       = ended && row_begins && (!full[lower] || (!full[!lower] && past));
  assign m_valid     = running && (ended || (full[lower] && (full[!lower] || !spans)));
  assign m_count     = m_end ? '0 : need;

  // Each byte is selected from its beat, and then all are rotated in steps, which is less logic
  // than a full choice for each byte.
  always_comb begin
    for (int i = 0; i < B; i++) m_data[8*i+:8] = lower ^ (OffsetBits'(i) < offset) ? beats[1][8*i+:8] : beats[0][8*i+:8];
    for (int k = 0; k < OffsetBits; k++) if (offset[k]) m_data = (m_data >> (8 << k)) | (m_data << (W - (8 << k)));
  end

  assign get      = m_valid && m_ready;
  assign moves    = get && behind[CountBits-1];
  assign in_ready = !full[!lower] || moves || in.count == '0;
  assign put      = in_valid && in_ready;
  assign kept     = put && in.count != '0;
  assign into     = lower ^ (full[lower] && !full[!lower]);
  assign in_keep  = in.count[CountBits-1] ? '1 : ~({B{1'b1}} << in.count[OffsetBits-1:0]);

  always_ff @(posedge clk) begin
    if (rst || start) begin
      running <= start && !rst;
      ended   <= 1'b0;
      full    <= '0;
      lower   <= 1'b0;
      offset  <= '0;
      past    <= 1'b0;
    end else begin
      if (put && in.last) ended <= 1'b1;
      if (get && m_end) running <= 1'b0;
      if (get) offset <= behind[OffsetBits-1:0];
      // If an incoming beat becomes the lower one, a piece begins with it, and it has bytes.
      if (get) past <= behind[OffsetBits-1:0] != '0 && CountBits'(behind[OffsetBits-1:0]) >= tail;
      if (moves) begin
        full[lower] <= 1'b0;
        lower       <= !lower;
      end
      if (kept) full[into] <= 1'b1;
    end
  end

  always_ff @(posedge clk) begin
    if (kept) tail <= in.count;
    // The next beat is the incoming one, or zeros.
    for (int b = 0; b < 2; b++) begin
      if (!full[b] || (moves && lower == 1'(b)))
        for (int i = 0; i < B; i++)
          beats[b][8*i+:8] <= in_valid && into == 1'(b) && in_keep[i] ? in.data[8*i+:8] : 8'd0;
    end
  end

  // The remaining pieces of the row after this one: all except the last are full.

  logic [PieceBits-1:0]  whole, per_row;      // remaining full pieces, including this one; of a row
  logic                  begins;              // the next piece is a row's first one
  logic [OffsetBits-1:0] rest;                // bytes of the last one, if it is not full
  logic                  follows_last;

  assign rest         = width[OffsetBits-1:0];
  assign per_row      = width[WIDTH_BITS-1:OffsetBits];
  assign begins       = start || m_row_last;
  // The remainder after the next piece, before it is counted.
  assign need_next    = (begins ? per_row == '0 : whole == PieceBits'(1)) ? CountBits'(rest) : CountBits'(B);
  assign follows_last = begins ? per_row == '0 || (per_row == PieceBits'(1) && rest == '0) :
      whole == PieceBits'(1) || (whole == PieceBits'(2) && rest == '0);

  always_ff @(posedge clk) begin
    if (start || get) begin
      whole      <= begins ? per_row : whole - 1'b1;
      need       <= need_next;
      behind     <= (start ? '0 : CountBits'(behind[OffsetBits-1:0])) + need_next;
      m_row_last <= follows_last;
      row_begins <= begins;
    end
  end

`ifndef SYNTHESIS
  rows_have_bytes : assert property (@(posedge clk) disable iff (rst) start |-> width != '0);
  beats_are_full_or_empty : assert property (@(posedge clk) disable iff (rst)
      s_valid && s_ready && !s_last |-> s_count inside {'0, CountBits'(B)});
  pieces_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready && !start |=> m_valid && $stable({m_count, m_row_last, m_end}));
  // Bytes behind a short piece may change.
  bytes_stay : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_ready && !start && m_count == CountBits'(B) |=> $stable(m_data));
  pieces_fit : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_end |-> m_count != '0 && m_count <= CountBits'(B));
  // Only the last piece of a row is short.
  pieces_are_full : assert property (@(posedge clk) disable iff (rst)
      m_valid && !m_end && !m_row_last |-> m_count == CountBits'(B));
  // The upper beat is stored only behind a lower one.
  lower_is_first : assert property (@(posedge clk) disable iff (rst)
      running && full[!lower] |-> full[lower]);
`endif

endmodule
