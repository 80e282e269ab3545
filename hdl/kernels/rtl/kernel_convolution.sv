// A layer of a convolutional network: 3x3 convolution in 8-bit integers, and ReLU.
//
// The body is the weights (channels out x 3 x 3 x channels in, signed bytes), the biases (channels
// out, signed 32-bit, least significant byte first), and then the picture, row by row, each pixel
// with its channels, signed bytes. The reply is a picture of the same size with the output
// channels: each is (bias + sum of 9 x channels in products), divided by 2^shift, halves rounded
// up, clamped to 0…127. Outside the picture is zero. A body that ends within a row is padded with
// zeros; the reply to a scalar out of range, or a body without a pixel, is empty.
//
// Scalars: 0, width in pixels, 1 to MAX_WIDTH; 1, channels in, 1 to MAX_IN; 2, channels out, 1 to
// MAX_OUT; 3, shift, 0 to 31. The height follows from the body's length.
// Parameters: W, stream width in bits (32 or 64); MAX_IN and MAX_OUT, powers of two; MAX_WIDTH;
// LANES, channels computed at once, a power of two, at most 4.
// Latency: one row and 10 cycles. Throughput: for each row, one byte per cycle of input, and then
// for each pixel channels in x (channels out / LANES, rounded up) cycles.
module kernel_convolution #(
    parameter int W = 64,
    parameter int MAX_WIDTH = 256,
    parameter int MAX_IN = 16,
    parameter int MAX_OUT = 16,
    parameter int LANES = 4
) (
`include "stream_kernel_ports.svh"
);

  localparam int CountBits = $clog2(W / 8 + 1);
  localparam int XBits = $clog2(MAX_WIDTH);
  localparam int Thirds = (MAX_WIDTH + 2) / 3;
  localparam int ThirdBits = $clog2(Thirds);
  localparam int InBits = $clog2(MAX_IN);
  localparam int OutBits = $clog2(MAX_OUT);
  localparam int LaneBits = $clog2(LANES);
  localparam int GroupBits = OutBits - LaneBits;

  if (W != 32 && W != 64) $error("W must be 32 or 64");
  if (MAX_IN != 1 << InBits || MAX_OUT != 1 << OutBits || LANES != 1 << LaneBits || LANES > 4 || MAX_OUT <= LANES)
    $error("MAX_IN, MAX_OUT and LANES must be powers of two");

  typedef enum logic [2:0] {
    Weights,
    Biases,
    Load,     // receives a row
    Compute,  // computes the previous row
    Excess,   // malformed: skips to the end of the body
    Empty,
    Done
  } state_t;

  state_t     state;
  logic       taking, byte_valid, byte_end, byte_taken, good;
  logic [7:0] next_byte;

  kernel_control u_control (
      .s_end (s_valid && s_ready && s_last),
      .m_end (m_valid && m_ready && m_last),
      .*
  );

  kernel_bytes #(
      .W(W)
  ) u_bytes (.*);

  logic [XBits-1:0]   x_last;
  logic [InBits-1:0]  in_last;
  logic [OutBits-1:0] out_last;
  logic [4:0]         shift;

  assign good = params[31:0] != '0 && params[31:0] <= MAX_WIDTH && params[63:32] != '0 && params[63:32] <= MAX_IN
      && params[95:64] != '0 && params[95:64] <= MAX_OUT && params[127:96] < 32'd32;
  assign x_last   = XBits'(params[31:0] - 1'b1);
  assign in_last  = InBits'(params[63:32] - 1'b1);
  assign out_last = OutBits'(params[95:64] - 1'b1);
  assign shift    = params[100:96];

  // The states of a run. Rows go to three slots in turn;
  // a row is computed when the one below it has arrived.

  logic                 ended;        // the body has ended: missing bytes of a row are zeros
  logic                 row_starts, row_ends, load_go, filling, first_row, final_row, row_made, empty_go, go;
  logic [1:0]           load_slot, mid_slot, x_class;
  logic [XBits-1:0]     x;
  logic [ThirdBits-1:0] third;        // x / 3; x_class is x % 3
  logic [InBits-1:0]    channel;
  logic [OutBits-1:0]   out_channel;  // while weights and biases arrive
  logic [3:0]           tap;          // of the nine, or byte of a bias
  logic [GroupBits-1:0] group;
  logic                 group_last, any_row;

  function automatic logic [1:0] next_of_three(input logic [1:0] from);
    return from == 2'd2 ? 2'd0 : from + 1'b1;
  endfunction

  assign row_starts = x == '0 && channel == '0;
  assign row_ends   = x == x_last && channel == in_last;
  assign filling    = ended && !row_starts;
  assign load_go    = state == Load && ((byte_valid && !byte_end && !ended) || filling);
  assign byte_taken = byte_valid && (state == Weights || state == Biases || state == Excess || (state == Load && !ended));
  assign group_last = group == out_last[OutBits-1:LaneBits];
  assign row_made   = row_ends && group_last;

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= Done;
    end else if (start) begin
      state <= good ? Weights : Excess;
    end else begin
      unique case (state)
        Weights: if (byte_taken) begin
          if (byte_end) state <= Empty;
          else if (channel == in_last && tap == 4'd8 && out_channel == out_last) state <= Biases;
        end
        Biases: if (byte_taken) begin
          if (byte_end) state <= Empty;
          else if (tap == 4'd3 && out_channel == out_last) state <= Load;
        end
        Load: begin
          if (ended && row_starts) state <= any_row ? Compute : Empty;
          else if (load_go && row_ends && any_row) state <= Compute;
        end
        Compute: if (go && row_made) state <= final_row ? Done : Load;
        Excess:  if (byte_taken && byte_end) state <= Empty;
        Empty:   if (empty_go) state <= Done;
        default: ;
      endcase
    end
  end

  always_ff @(posedge clk) begin
    unique case (state)
      Weights: if (byte_taken) begin
        channel <= channel == in_last ? '0 : channel + 1'b1;
        if (channel == in_last) begin
          tap <= tap == 4'd8 ? '0 : tap + 1'b1;
          if (tap == 4'd8) out_channel <= out_channel == out_last ? '0 : out_channel + 1'b1;
        end
      end
      Biases: if (byte_taken) begin
        tap <= tap == 4'd3 ? '0 : tap + 1'b1;
        if (tap == 4'd3) out_channel <= out_channel + 1'b1;
      end
      Load: begin
        if (byte_taken && byte_end) ended <= 1'b1;
        final_row <= ended && row_starts;
        if (load_go) begin
          channel <= channel == in_last ? '0 : channel + 1'b1;
          if (channel == in_last) begin
            x       <= row_ends ? '0 : x + 1'b1;
            x_class <= row_ends ? '0 : next_of_three(x_class);
            third   <= row_ends ? '0 : third + ThirdBits'(x_class == 2'd2);
          end
          if (row_ends) begin
            load_slot <= next_of_three(load_slot);
            any_row   <= 1'b1;
          end
        end
      end
      Compute: if (go) begin
        channel <= channel == in_last ? '0 : channel + 1'b1;
        if (channel == in_last) begin
          group <= group_last ? '0 : group + 1'b1;
          if (group_last) begin
            x       <= row_ends ? '0 : x + 1'b1;
            x_class <= row_ends ? '0 : next_of_three(x_class);
            third   <= row_ends ? '0 : third + ThirdBits'(x_class == 2'd2);
          end
        end
        if (row_made) begin
          mid_slot  <= next_of_three(mid_slot);
          first_row <= 1'b0;
        end
      end
      default: ;
    endcase
    if (start) begin
      {channel, tap, out_channel, group, x, x_class, third} <= '0;
      {load_slot, mid_slot} <= '0;
      ended     <= 1'b0;
      any_row   <= 1'b0;
      first_row <= 1'b1;
    end
  end

  // Stage 1: nine bytes from nine banks, one for each slot and each third of the columns, so that
  // three neighbors in three rows are read at once; and the weights for them.

  typedef struct packed {
    logic                 valid;
    logic                 first;      // channel in of its sum
    logic                 last;       // channel in of its sum
    logic                 end_all;    // of the reply
    logic [GroupBits-1:0] group;
    logic [LaneBits:0]    count;      // lanes in use
  } step_t;

  step_t             issue, at_read, at_window, at_product, at_tap, at_sum, at_round, at_out;
  logic              above_ok, below_ok, left_ok, right_ok;
  logic [1:0]        read_class, read_mid;
  logic signed [7:0] pixels[3][3];
  logic signed [7:0] weights_read[LANES][9], weights_window[LANES][9];
  logic signed [7:0] window[9];

  always_comb begin
    issue.valid   = state == Compute;
    issue.first   = channel == '0;
    issue.last    = channel == in_last;
    issue.end_all = final_row && x == x_last && group_last;
    issue.group   = group;
    issue.count   = group_last ? (LaneBits + 1)'(out_last[LaneBits-1:0]) + 1'b1 : (LaneBits + 1)'(LANES);
  end

  for (genvar s = 0; s < 3; s++) begin : g_slot
    for (genvar c = 0; c < 3; c++) begin : g_class
      logic signed [7:0]    bank[Thirds<<InBits];
      logic signed [7:0]    out_pixel;
      logic [ThirdBits-1:0] at;
      // The pixel to the left of class 0, and that to the right of class 2, are in another third.
      always_comb begin
        at = third;
        if (state == Compute && c == 2 && x_class == 2'd0) at = third - 1'b1;
        if (state == Compute && c == 0 && x_class == 2'd2) at = third + 1'b1;
      end
      always_ff @(posedge clk) begin
        if (load_go && load_slot == 2'(s) && x_class == 2'(c)) bank[{at, channel}] <= ended ? '0 : next_byte;
        if (go) out_pixel <= bank[{at, channel}];
      end
      assign pixels[s][c] = out_pixel;
    end
  end

  for (genvar l = 0; l < LANES; l++) begin : g_lane_weights
    for (genvar t = 0; t < 9; t++) begin : g_tap
      logic signed [7:0] bank[1<<(GroupBits+InBits)];
      logic signed [7:0] out_weight;
      always_ff @(posedge clk) begin
        if (state == Weights && byte_taken && tap == 4'(t) && out_channel[LaneBits-1:0] == LaneBits'(l))
          bank[{out_channel[OutBits-1:LaneBits], channel}] <= next_byte;
        if (go) out_weight <= bank[{group, channel}];
      end
      assign weights_read[l][t] = out_weight;
    end
  end

  always_ff @(posedge clk) begin
    if (go) begin
      read_class <= x_class;
      read_mid   <= mid_slot;
      above_ok   <= !first_row;
      below_ok   <= !final_row;
      left_ok    <= x != '0;
      right_ok   <= x != x_last;
    end
  end

  // Stage 2: the window, its rows and columns in order, zeros outside of the picture.

  always_ff @(posedge clk) begin
    if (go) begin
      for (int ky = 0; ky < 3; ky++) begin
        for (int kx = 0; kx < 3; kx++) begin
          window[3*ky+kx] <= '0;
          if ((ky != 0 || above_ok) && (ky != 2 || below_ok) && (kx != 0 || left_ok) && (kx != 2 || right_ok))
            window[3*ky+kx] <= pixels[(32'(read_mid)+ky+2)%3][(32'(read_class)+kx+2)%3];
        end
      end
      weights_window <= weights_read;
    end
  end

  // Stages 3 to 7: products, their sum, the sum over channels, rounding, shift and limits.

  logic signed [15:0] products[LANES][9];
  logic signed [19:0] tap_sum[LANES], tap_sum_next[LANES];
  logic signed [31:0] biases[1<<OutBits];
  logic signed [32:0] sum[LANES];
  logic signed [33:0] rounded[LANES], shifted[LANES];
  logic [31:0]        half;
  logic [8*LANES-1:0] out_bytes;

  assign half = shift == '0 ? '0 : 32'd1 << (shift - 1'b1);

  always_comb begin
    for (int l = 0; l < LANES; l++) begin
      tap_sum_next[l] = '0;
      for (int t = 0; t < 9; t++) tap_sum_next[l] = tap_sum_next[l] + 20'(products[l][t]);
      shifted[l] = rounded[l] >>> shift;
    end
  end

  always_ff @(posedge clk) begin
    if (state == Biases && byte_taken) biases[out_channel][8*tap[1:0]+:8] <= next_byte;
    if (go) begin
      for (int l = 0; l < LANES; l++) begin
        for (int t = 0; t < 9; t++) products[l][t] <= window[t] * weights_window[l][t];
        tap_sum[l] <= tap_sum_next[l];
        if (at_tap.valid)
          sum[l] <= 33'(tap_sum[l]) + (at_tap.first ? 33'(biases[{at_tap.group, LaneBits'(l)}]) : sum[l]);
        rounded[l] <= 34'(sum[l]) + 34'(half);
        out_bytes[8*l+:8] <= shifted[l] < 0 ? 8'd0 : shifted[l] > 34'sd127 ? 8'd127 : shifted[l][7:0];
      end
    end
  end

  always_ff @(posedge clk) begin
    if (rst || start) begin
      at_read    <= '0;
      at_window  <= '0;
      at_product <= '0;
      at_tap     <= '0;
      at_sum     <= '0;
      at_round   <= '0;
      at_out     <= '0;
    end else if (go) begin
      at_read    <= issue;
      at_window  <= at_read;
      at_product <= at_window;
      at_tap     <= at_product;
      at_sum     <= at_tap;
      at_round   <= at_sum;
      at_out     <= at_round;
    end
  end

  // Output. Only the last input channel has a complete sum.

  typedef struct packed {
    logic [W-1:0]   data;
    logic [W/8-1:0] keep;
    logic           last;
  } beat_t;

  logic  piece_valid, packer_ready, packed_valid, packed_ready, unused_steps;
  beat_t packed_beat;

  assign unused_steps = &{1'b0, at_out.first, at_out.group};
  assign piece_valid  = at_out.valid && at_out.last;
  assign go           = !piece_valid || packer_ready;
  assign empty_go     = packer_ready;

  axis_packer #(
      .W(W)
  ) u_packer (
      .clk,
      .rst,
      .s_valid(piece_valid || state == Empty),
      .s_ready(packer_ready),
      .s_data (W'(out_bytes)),
      .s_count(state == Empty ? '0 : CountBits'(at_out.count)),
      .s_last (state == Empty || at_out.end_all),
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
  in_picture : assert property (@(posedge clk) disable iff (rst)
      state inside {Load, Compute} |-> x <= x_last && channel <= in_last);
  in_weights : assert property (@(posedge clk) disable iff (rst)
      state inside {Weights, Biases} |->
      channel <= in_last && out_channel <= out_last && tap <= 4'd8);
  three_slots : assert property (@(posedge clk) disable iff (rst)
      state inside {Load, Compute} |-> load_slot != '1 && mid_slot != '1 && x_class != '1);
  third_of_column : assert property (@(posedge clk) disable iff (rst)
      state inside {Load, Compute} |-> 32'(x) == 3 * 32'(third) + 32'(x_class));
  rows_before_sums : assert property (@(posedge clk) disable iff (rst)
      state == Compute |-> any_row);
  scalars_stay : assert property (@(posedge clk) disable iff (rst)
      state != Done && !start |=> $stable(params));
`endif

endmodule
