// Sobel's edge detector on gray pixels: |gx| + |gy|, saturated, of every pixel.
//
// The bytes equal those of apps/functions/sobel (8-bit gray, one byte per pixel, rows from the
// top): border pixels extend the picture; gx and gy are exact, only their sum saturates.
// (apps/sobel does the same to each channel of four-byte pixels.)
//
// Scalars: 0, width in pixels, 1 to MAX_WIDTH; the height follows from the body's length. A body
// that ends within a row is padded with zeros; the reply to a width out of range is empty.
// Parameters: W, stream width in bits (32 or 64); MAX_WIDTH,
// maximum pixels of a row (two rows are stored).
// Latency: one row and 10 cycles. Throughput: W / 8 pixels per cycle; a row's last beat may be
// short, and the time of one row is spent after the last input.
module kernel_sobel #(
    parameter int W = 64,
    parameter int MAX_WIDTH = 4096
) (
`include "stream_kernel_ports.svh"
);

  localparam int B = W / 8;
  localparam int CountBits = $clog2(B + 1);
  localparam int WidthBits = $clog2(MAX_WIDTH + 1);
  localparam int Beats = (MAX_WIDTH + B - 1) / B;
  localparam int ColumnBits = $clog2(Beats);

  if (W != 32 && W != 64) $error("W must be 32 or 64");
  if (MAX_WIDTH <= B) $error("MAX_WIDTH must be more than a beat");

  logic taking, unused_params;

  assign unused_params = &{1'b0, params[127:32]};

  kernel_control u_control (
      .s_end (s_valid && s_ready && s_last),
      .m_end (m_valid && m_ready && m_last),
      .*
  );

  // Rows, from the cycle after the start on. A width out of range is a picture without pixels.

  logic                 bad, begins;
  logic [WidthBits-1:0] width;
  logic [CountBits-1:0] in_count;
  logic                 row_valid, row_ready, row_last, row_end, rows_ready;
  logic [W-1:0]         row_data;
  logic [CountBits-1:0] row_count;

  always_ff @(posedge clk) begin
    begins <= start && !rst;
    if (start) bad <= params[31:0] == '0 || params[31:0] > MAX_WIDTH;
  end

  assign width = bad ? WidthBits'(1) : params[WidthBits-1:0];

  always_comb begin
    in_count = '0;
    for (int i = 0; i < B; i++) if (s_keep[i] && !bad) in_count = CountBits'(i + 1);
  end

  assign s_ready = taking && rows_ready;

  axis_rows #(
      .W         (W),
      .WIDTH_BITS(WidthBits)
  ) u_rows (
      .clk,
      .rst,
      .start     (begins),
      .width,
      .s_valid   (taking && s_valid),
      .s_ready   (rows_ready),
      .s_data,
      .s_count   (in_count),
      .s_last,
      .m_valid   (row_valid),
      .m_ready   (row_ready),
      .m_data    (row_data),
      .m_count   (row_count),
      .m_row_last(row_last),
      .m_end     (row_end)
  );

  // Stage A: a piece of the row below the computed one. After the picture's end its last row
  // passes once more (`again`), as the row below itself; row 0 only fills the line buffers.

  typedef struct packed {
    logic [ColumnBits-1:0] column;
    logic [CountBits-1:0]  count;
    logic                  row_first;   // first piece of its row
    logic                  row_last;    // last piece of its row
    logic                  last;        // last piece of the picture
    logic                  shown;       // produces output: not for the first row
    logic                  below_mid;   // the row below is the row itself
  } piece_t;

  logic                  go, a_valid, a_move, again;
  logic [1:0]            rows;          // received rows: 0, 1, or 2 for more
  logic [ColumnBits-1:0] column, last_column;   // the latter: of a row's last piece
  logic [CountBits-1:0]  last_count;            // pixels of that
  logic [W-1:0]          a_data;
  piece_t                a;

  assign a_valid = again || (row_valid && (!row_end || rows == 2'd0));
  assign row_ready = !again && (a_move || (row_end && rows != 2'd0));

  always_comb begin
    a.column    = column;
    a.row_first = column == '0;
    a.shown     = rows != 2'd0 || row_end;
    a.below_mid = again;
    if (again) begin
      a.row_last = column == last_column;
      a.count    = a.row_last ? last_count : CountBits'(B);
      a.last     = a.row_last;
    end else begin
      a.row_last = row_last || row_end;
      a.count    = row_count;
      a.last     = row_end;
    end
    // A row is extended by its last pixel; that of a full piece is repeated later.
    a_data = row_data;
    for (int i = 1; i < B; i++) if (row_count == CountBits'(i)) a_data[8*i+:8] = row_data[8*i-8+:8];
  end

  always_ff @(posedge clk) begin
    if (rst || start) begin
      again  <= 1'b0;
      rows   <= '0;
      column <= '0;
    end else begin
      if (row_valid && row_ready && row_end && rows != 2'd0) again <= 1'b1;
      if (a_move) begin
        column <= a.row_last ? '0 : column + 1'b1;
        if (a.last) again <= 1'b0;
        if (a.row_last && !rows[1]) rows <= rows + 1'b1;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (a_move && a.row_last && !again) begin
      last_column <= column;
      last_count  <= row_count;
    end
  end

  // Stage B: the same piece of the two rows above, from the line buffers. In a picture of one piece
  // per row the data to read is still on its way to the buffers, and is forwarded. The first row is
  // also the row above itself.

  (* no_rw_check = 1 *) logic [W-1:0] line_mid[Beats];
  (* no_rw_check = 1 *) logic [W-1:0] line_above[Beats];
  logic [W-1:0] b_data, read_mid, read_above, b_above, b_mid, b_below, b_kept, near_mid, near_above;
  logic         b_valid, b_move, b_near;
  piece_t       b;

  assign b_mid   = b_near ? near_mid : read_mid;
  assign b_above = b_near ? near_above : read_above;
  assign b_below = b.below_mid ? b_mid : b_data;
  assign b_kept  = b.shown ? b_mid : b_data;
  assign a_move  = a_valid && (!b_valid || b_move);

  always_ff @(posedge clk) begin
    if (rst || start) b_valid <= 1'b0;
    else if (a_move) b_valid <= 1'b1;
    else if (b_move) b_valid <= 1'b0;
  end

  always_ff @(posedge clk) begin
    if (a_move) begin
      b          <= a;
      b_data     <= a_data;
      b_near     <= b_valid && a.column == b.column;
      near_mid   <= b_data;
      near_above <= b_kept;
      read_mid   <= line_mid[a.column];
      read_above <= line_above[a.column];
    end
    if (b_move) begin
      line_mid[b.column]   <= b_data;
      line_above[b.column] <= b_kept;
    end
  end

  // Stage C: the piece whose neighbors are the last pixel before it and the first one of stage B.

  logic [W-1:0] c_above, c_mid, c_below;
  logic [23:0]  c_before;               // the three pixels left of the piece
  logic         c_valid, c_move;
  piece_t       c;

  assign b_move = b_valid && (b.shown ? !c_valid || c_move : 1'b1);
  assign c_move = c_valid && go && (c.row_last || b_valid);

  always_ff @(posedge clk) begin
    if (rst || start) c_valid <= 1'b0;
    else if (b_move && b.shown) c_valid <= 1'b1;
    else if (c_move) c_valid <= 1'b0;
  end

  always_ff @(posedge clk) begin
    if (b_move && b.shown) begin
      c        <= b;
      c_above  <= b_above;
      c_mid    <= b_mid;
      c_below  <= b_below;
      c_before <= b.row_first ? {b_below[7:0], b_mid[7:0], b_above[7:0]}
                              : {c_below[W-1-:8], c_mid[W-1-:8], c_above[W-1-:8]};
    end
  end

  // Stage D: for each column, and those on both sides, the weighted sum and the difference. The
  // last one's pixels have just been read from the line buffers and are passed to the next stage
  // unchanged. A sum's lowest bit is that of the outer pixels' sum, which is kept out of the second
  // addition: adding three numbers at once would take half as much again.

  function automatic logic [9:0] weighted(input logic [8:0] outer, input logic [7:0] middle);
    logic [8:0] upper;
    upper = {1'b0, outer[8:1]} + {1'b0, middle};
    return {upper, outer[0]};
  endfunction

  logic        [7:0]           above[B+1], mid[B+1], below[B+1];
  logic        [8:0]           outer[B+1];
  logic        [9:0]           d_sum[B+1];
  logic signed [8:0]           d_difference[B+1];
  logic        [7:0]           d_above, d_mid, d_below;
  logic                        d_valid, d_last, e_valid, e_last, f_valid, f_last;
  logic        [CountBits-1:0] d_count, e_count, f_count;
  logic                        unused_column;

  assign unused_column = &{1'b0, c.column, c.row_first, c.shown, c.below_mid};

  always_comb begin
    {below[0], mid[0], above[0]} = c_before;
    for (int i = 0; i < B; i++) begin
      above[i+1] = c_above[8*i+:8];
      mid[i+1]   = c_mid[8*i+:8];
      below[i+1] = c_below[8*i+:8];
    end
    for (int i = 0; i <= B; i++) outer[i] = {1'b0, above[i]} + {1'b0, below[i]};
  end

  always_ff @(posedge clk) begin
    if (go) begin
      for (int i = 0; i <= B; i++) begin
        d_sum[i]        <= weighted(outer[i], mid[i]);
        d_difference[i] <= signed'({1'b0, below[i]}) - signed'({1'b0, above[i]});
      end
      d_above <= c.row_last ? above[B] : b_above[7:0];
      d_mid   <= c.row_last ? mid[B] : b_mid[7:0];
      d_below <= c.row_last ? below[B] : b_below[7:0];
      d_count <= c.count;
      d_last  <= c.last;
    end
  end

  // Stages E and F: both gradients, then the sum of their magnitudes. This is the magnitude of
  // their sum, or of their difference if one of them is negative; it has the sign of the first.
  // Negation flips each bit above the lowest set one.

  logic        [9:0]   sum[B+2];
  logic signed [8:0]   difference[B+2];
  logic        [8:0]   outer_last;
  logic signed [9:0]   d_outer[B];
  logic signed [9:0]   d_upper[B];
  logic signed [10:0]  e_gx[B], e_gy[B];
  logic        [W-1:0] f_data;

  assign outer_last = {1'b0, d_above} + {1'b0, d_below};

  always_comb begin
    for (int i = 0; i <= B; i++) begin
      sum[i]        = d_sum[i];
      difference[i] = d_difference[i];
    end
    sum[B+1]        = weighted(outer_last, d_mid);
    difference[B+1] = signed'({1'b0, d_below}) - signed'({1'b0, d_above});
    for (int i = 0; i < B; i++) begin
      d_outer[i] = 10'(difference[i]) + 10'(difference[i+2]);
      d_upper[i] = 10'(signed'(d_outer[i][9:1])) + 10'(difference[i+1]);
    end
  end

  function automatic logic [7:0] magnitudes(input logic signed [10:0] gx, input logic signed [10:0] gy);
    logic        opposed, lower;
    logic [11:0] total;
    opposed = gx[10] ^ gy[10];
    total   = {gx, 1'b1} + {gy ^ {11{opposed}}, opposed};
    lower   = 1'b0;
    for (int i = 0; i < 8; i++) begin
      magnitudes[i] = total[i+1] ^ (gx[10] && lower);
      lower         = lower || total[i+1];
    end
    // Saturates values of more than eight bits, or negative ones with eight zeros below.
    if (total[11:9] != {3{gx[10]}} || (gx[10] && !lower)) magnitudes = '1;
  endfunction

  always_ff @(posedge clk) begin
    if (go) begin
      for (int i = 0; i < B; i++) begin
        e_gx[i] <= signed'({1'b0, sum[i+2]}) - signed'({1'b0, sum[i]});
        e_gy[i] <= {d_upper[i], d_outer[i][0]};
        f_data[8*i+:8] <= magnitudes(e_gx[i], e_gy[i]);
      end
      e_count <= d_count;
      e_last  <= d_last;
      f_count <= e_count;
      f_last  <= e_last;
    end
  end

  always_ff @(posedge clk) begin
    if (rst || start) begin
      d_valid <= 1'b0;
      e_valid <= 1'b0;
      f_valid <= 1'b0;
    end else if (go) begin
      d_valid <= c_move;
      e_valid <= d_valid;
      f_valid <= e_valid;
    end
  end

  // Rows that are not a multiple of a beat produce pieces, which are packed again. The packer's
  // outputs depend only on registers.

  logic packer_ready;

  assign go = packer_ready || !f_valid;

  axis_packer #(
      .W(W)
  ) u_packer (
      .clk,
      .rst,
      .s_valid(f_valid),
      .s_ready(packer_ready),
      .s_data (f_data),
      .s_count(f_count),
      .s_last (f_last),
      .m_valid,
      .m_ready,
      .m_data,
      .m_keep,
      .m_last
  );

`ifndef SYNTHESIS
  pieces_fit : assert property (@(posedge clk) disable iff (rst)
      f_valid |-> f_count <= CountBits'(B));
  in_line : assert property (@(posedge clk) disable iff (rst) a_valid |-> 32'(column) < Beats);
  row_repeats_after_a_row : assert property (@(posedge clk) disable iff (rst) again |-> rows != '0);
  rows_saturate : assert property (@(posedge clk) disable iff (rst) rows != '1);
  first_row_is_not_shown : assert property (@(posedge clk) disable iff (rst) c_valid |-> c.shown);
  // A piece waits for the pixel to its right, or has none.
  pieces_have_neighbors : assert property (@(posedge clk) disable iff (rst)
      c_move |-> c.row_last || b_valid);
`endif

endmodule
