// Matrix multiplication in 8-bit integers with exact sums, on a systolic array.
//
// The body is a (rows x inner) and then b (inner x columns), signed bytes, row by row; the reply is
// a b, signed 32-bit numbers, least significant byte first, row by row. The reply to a body of
// another length, or a size out of range, is empty.
//
// Scalars: 0, rows; 1, inner; 2, columns; each 1 to MAX.
// Parameters: W, stream width in bits (32 or 64); N, edge of the array, a power of two; MAX,
// largest size, a multiple of N and a power of two.
// Latency and throughput: one byte per cycle of input; then for each N rows of the reply, inner + 3
// N cycles for each N columns, and one cycle for each output number.
module kernel_matmul #(
    parameter int W = 64,
    parameter int N = 8,
    parameter int MAX = 64
) (
`include "stream_kernel_ports.svh"
);

  localparam int CountBits = $clog2(W / 8 + 1);
  localparam int EdgeBits = $clog2(N);
  localparam int SizeBits = $clog2(MAX + 1);
  localparam int IndexBits = $clog2(MAX);
  localparam int BlockBits = IndexBits - EdgeBits;        // of a block of N rows or columns
  localparam int SumBits = 16 + IndexBits;
  localparam int Settle = 2 * N;                          // cycles from the last address to the
                                                          // last sum

  if (W != 32 && W != 64) $error("W must be 32 or 64");
  if (N != 1 << EdgeBits || MAX != 1 << IndexBits || MAX <= N) $error("N and MAX must be powers of two, N the smaller");

  typedef enum logic [3:0] {
    LoadA,
    LoadB,
    Whole,     // both matrices have arrived: the body must end
    Excess,    // malformed: skips to the end of the body
    Multiply,  // issues the addresses of one block
    Wait,      // waits for its sums
    Store,     // stores them in the row of blocks
    Send,      // sends a complete row of blocks
    Empty,     // the reply to a malformed request
    Done
  } state_t;

  state_t state;
  logic   taking, byte_valid, byte_end, byte_taken, good, unused_signals;
  logic [7:0] next_byte;

  assign unused_signals = &{1'b0, params[127:96]};

  kernel_control u_control (
      .s_end (s_valid && s_ready && s_last),
      .m_end (m_valid && m_ready && m_last),
      .*
  );

  assign byte_taken = byte_valid && (state == LoadA || state == LoadB || state == Whole || state == Excess);

  kernel_bytes #(
      .W(W)
  ) u_bytes (.*);

  // Sizes, and the position of the next byte in its matrix. A malformed request loads no data.

  logic [SizeBits-1:0]  rows, inner, columns;
  logic [IndexBits-1:0] row, column, row_last, inner_last, column_last;
  logic                 line_ends;

  always_comb begin
    good = 1'b1;
    for (int i = 0; i < 3; i++) if (params[32*i+:32] == '0 || params[32*i+:32] > MAX) good = 1'b0;
  end

  assign rows        = params[SizeBits-1:0];
  assign inner       = params[32+:SizeBits];
  assign columns     = params[64+:SizeBits];
  assign row_last    = IndexBits'(rows - 1'b1);
  assign inner_last  = IndexBits'(inner - 1'b1);
  assign column_last = IndexBits'(columns - 1'b1);
  assign line_ends   = column == (state == LoadA ? inner_last : column_last);

  // Bank i of a has the rows i, i + N, …; bank j of b the columns j, j + N, …: each supplies one
  // value per cycle, of the same position in the sum.

  logic [BlockBits-1:0]  row_block, column_block;
  logic [IndexBits-1:0]  place;            // in the sum
  logic                  a_valid, a_first, loads_a, loads_b;
  logic signed [7:0]     a_read[N], b_read[N];

  assign loads_a = state == LoadA && byte_taken && !byte_end;
  assign loads_b = state == LoadB && byte_taken && !byte_end;

  for (genvar i = 0; i < N; i++) begin : g_bank
    logic signed [7:0] a[MAX*MAX/N];
    logic signed [7:0] b[MAX*MAX/N];
    logic signed [7:0] a_out, b_out;
    assign a_read[i] = a_out;
    assign b_read[i] = b_out;
    always_ff @(posedge clk) begin
      if (loads_a && row[EdgeBits-1:0] == EdgeBits'(i)) a[{row[IndexBits-1:EdgeBits], column}] <= next_byte;
      if (loads_b && column[EdgeBits-1:0] == EdgeBits'(i)) b[{column[IndexBits-1:EdgeBits], row}] <= next_byte;
      a_out <= a[{row_block, place}];
      b_out <= b[{column_block, place}];
    end
  end

  always_ff @(posedge clk) begin
    a_valid <= state == Multiply;
    a_first <= state == Multiply && place == '0;
  end

  // Row i and column j of the array are delayed by i and j cycles.

  logic signed [7:0]         a_in[N][N+1], b_in[N+1][N];
  logic                      first_in[N][N+1];
  logic signed [SumBits-1:0] sums[N+1][N];
  logic [N-1:0]              beyond;                // outputs of the array
  logic                      unused_edges;

  for (genvar i = 0; i < N; i++) begin : g_late
    if (i == 0) begin : g_none
      assign a_in[0][0]     = a_valid ? a_read[0] : '0;
      assign first_in[0][0] = a_first;
      assign b_in[0][0]     = b_read[0];
    end else begin : g_some
      logic signed [7:0] a_late[i], b_late[i];
      logic              first_late[i];
      always_ff @(posedge clk) begin
        a_late[0]     <= a_valid ? a_read[i] : '0;
        b_late[0]     <= b_read[i];
        first_late[0] <= a_first;
        for (int k = 1; k < i; k++) begin
          a_late[k]     <= a_late[k-1];
          b_late[k]     <= b_late[k-1];
          first_late[k] <= first_late[k-1];
        end
      end
      assign a_in[i][0]     = a_late[i-1];
      assign first_in[i][0] = first_late[i-1];
      assign b_in[0][i]     = b_late[i-1];
    end
    assign sums[N][i]    = '0;
    assign beyond[i]     = &{1'b0, a_in[i][N], first_in[i][N], b_in[N][i]};
  end

  assign unused_edges = &{1'b0, beyond};

  for (genvar i = 0; i < N; i++) begin : g_row
    for (genvar j = 0; j < N; j++) begin : g_column
      systolic_cell #(
          .SUM_BITS(SumBits)
      ) u_cell (
          .clk,
          .a_left     (a_in[i][j]),
          .first_left (first_in[i][j]),
          .b_above    (b_in[i][j]),
          .a_right    (a_in[i][j+1]),
          .first_right(first_in[i][j+1]),
          .b_below    (b_in[i+1][j]),
          .shift      (state == Store),
          .sum_below  (sums[i+1][j]),
          .sum        (sums[i][j])
      );
    end
  end

  // A row of blocks: for each of N rows and each block of columns, N sums.

  logic [N*SumBits-1:0] results[N<<BlockBits];
  logic [N*SumBits-1:0] top, shown;
  logic [EdgeBits-1:0]  line;              // of the row of blocks
  logic [$clog2(Settle)-1:0] wait_left;

  always_comb begin
    for (int j = 0; j < N; j++) top[SumBits*j+:SumBits] = sums[0][j];
  end

  always_ff @(posedge clk) begin
    if (state == Store) results[{line, column_block}] <= top;
  end

  // Output: a number is read from memory in the cycle after its address.

  logic                      out_valid, out_last, packer_ready, send_go, line_sent, all_sent;
  logic [EdgeBits-1:0]       out_column;
  logic signed [SumBits-1:0] number;

  assign send_go   = !out_valid || packer_ready;
  assign line_sent = column == column_last;
  assign all_sent  = line_sent && {row_block, line} == row_last;
  assign number    = shown[SumBits*out_column+:SumBits];

  always_ff @(posedge clk) begin
    if (send_go) begin
      shown      <= results[{line, column[IndexBits-1:EdgeBits]}];
      out_column <= column[EdgeBits-1:0];
      out_last   <= all_sent;
    end
    if (rst || start) out_valid <= 1'b0;
    else if (send_go) out_valid <= state == Send;
  end

  typedef struct packed {
    logic [W-1:0]   data;
    logic [W/8-1:0] keep;
    logic           last;
  } beat_t;

  logic  packed_valid, packed_ready;
  beat_t packed_beat;

  // The states of a run.

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= Done;
    end else if (start) begin
      state <= good ? LoadA : Excess;
    end else begin
      unique case (state)
        LoadA: if (byte_taken) begin
          if (byte_end) state <= Empty;
          else if (line_ends && row == row_last) state <= LoadB;
        end
        LoadB: if (byte_taken) begin
          if (byte_end) state <= Empty;
          else if (line_ends && row == inner_last) state <= Whole;
        end
        Whole:    if (byte_taken) state <= byte_end ? Multiply : Excess;
        Excess:   if (byte_taken && byte_end) state <= Empty;
        Multiply: if (place == inner_last) state <= Wait;
        Wait:     if (wait_left == '0) state <= Store;
        Store:    if (line == '1) state <= column_block == column_last[IndexBits-1:EdgeBits] ? Send : Multiply;
        Send: if (send_go) begin
          if (all_sent) state <= Done;
          else if (line_sent && line == '1) state <= Multiply;
        end
        Empty:    if (packer_ready) state <= Done;
        default: ;
      endcase
    end
  end

  always_ff @(posedge clk) begin
    place     <= state == Multiply ? place + 1'b1 : '0;
    wait_left <= state == Wait ? wait_left - 1'b1 : ($clog2(Settle))'(Settle - 1);
    unique case (state)
      LoadA, LoadB: if (byte_taken) begin
        column <= line_ends ? '0 : column + 1'b1;
        if (line_ends) row <= state == LoadA && row == row_last ? '0 : row + 1'b1;
      end
      Whole: begin
        row_block    <= '0;
        column_block <= '0;
        line         <= '0;
      end
      Store: begin
        line   <= line + 1'b1;
        column <= '0;
        if (line == '1) column_block <= column_block + 1'b1;
      end
      Send: if (send_go) begin
        column <= line_sent ? '0 : column + 1'b1;
        if (line_sent) line <= line + 1'b1;
        if (line_sent && line == '1) row_block <= row_block + 1'b1;
        column_block <= '0;
      end
      default: begin
        if (start) begin
          row    <= '0;
          column <= '0;
        end
      end
    endcase
  end

  axis_packer #(
      .W(W)
  ) u_packer (
      .clk,
      .rst,
      .s_valid(out_valid || state == Empty),
      .s_ready(packer_ready),
      .s_data (W'(32'(number))),
      .s_count(state == Empty ? '0 : CountBits'(4)),
      .s_last (state == Empty || out_last),
      .m_valid(packed_valid),
      .m_ready(packed_ready),
      .m_data (packed_beat.data),
      .m_keep (packed_beat.keep),
      .m_last (packed_beat.last)
  );

  kernel_output #(
      .W(W)
  ) u_output (
      .s_valid(packed_valid),
      .s_ready(packed_ready),
      .s_data (packed_beat.data),
      .s_keep (packed_beat.keep),
      .s_last (packed_beat.last),
      .*
  );

`ifndef SYNTHESIS
  in_a : assert property (@(posedge clk) disable iff (rst)
      state == LoadA |-> row <= row_last && column <= inner_last);
  in_b : assert property (@(posedge clk) disable iff (rst)
      state == LoadB |-> row <= inner_last && column <= column_last);
  in_sum : assert property (@(posedge clk) disable iff (rst)
      state == Multiply |-> place <= inner_last);
  in_result : assert property (@(posedge clk) disable iff (rst)
      state == Send |-> {row_block, line} <= row_last && column <= column_last);
  // All values have passed through the array before its sums move.
  sums_are_complete : assert property (@(posedge clk) disable iff (rst)
      state == Store |-> !a_valid && !a_first);
  scalars_stay : assert property (@(posedge clk) disable iff (rst)
      state != Done && !start |=> $stable(params));
`endif

endmodule
