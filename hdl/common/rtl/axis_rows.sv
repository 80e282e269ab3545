// Cuts a stream into rows: pieces of at most W / 8 bytes that never cross from one row to the next.
//
// `start` takes `width`, the bytes of a row, at least 1. A stream that ends within a row is filled up
// with zeros. After the last row comes one piece with `m_end` and no bytes.
//
// Parameters: W, stream width in bits; WIDTH_BITS, bits of `width`.
// Latency: 1 cycle. Throughput: one piece a cycle while the input keeps up.
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
  localparam int HaveBits = $clog2(3 * B + 1);

  logic [3*W-1:0]        held, filled;
  logic [HaveBits-1:0]   have;    // bytes held
  logic [WIDTH_BITS-1:0] to_go;   // bytes that the row still needs
  logic [HaveBits-1:0]   need;    // bytes of the next piece
  logic                  row_begins, ended, running, put, get;

  assign need       = to_go < WIDTH_BITS'(B) ? HaveBits'(to_go) : HaveBits'(B);
  assign m_row_last = to_go <= WIDTH_BITS'(B);
  assign m_end      = ended && have == '0 && row_begins;
  assign m_valid    = running && (have >= need || ended);
  assign m_count    = m_end ? '0 : need[$clog2(B+1)-1:0];

  // Room for a whole beat whatever leaves, so that `s_ready` does not depend on `m_ready`.
  assign s_ready = running && !ended && have <= HaveBits'(2 * B);
  assign put     = s_valid && s_ready;
  assign get     = m_valid && m_ready;

  always_comb begin
    for (int i = 0; i < B; i++) m_data[8*i+:8] = HaveBits'(i) < have ? held[8*i+:8] : 8'd0;
    filled = {{2 * W{1'b0}}, s_data} << {have, 3'b000};
    for (int i = 0; i < 3 * B; i++) if (HaveBits'(i) < have) filled[8*i+:8] = held[8*i+:8];
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      running <= 1'b0;
      ended   <= 1'b0;
      have    <= '0;
    end else if (start) begin
      running <= 1'b1;
      ended   <= 1'b0;
      have    <= '0;
    end else begin
      if (put && s_last) ended <= 1'b1;
      if (get && m_end) running <= 1'b0;
      have <= (get ? (have >= need ? have - need : '0) : have) + (put ? HaveBits'(s_count) : '0);
    end
  end

  always_ff @(posedge clk) begin
    held <= get ? filled >> {need, 3'b000} : filled;
    if (start || (get && m_row_last)) begin
      to_go      <= width;
      row_begins <= 1'b1;
    end else if (get) begin
      to_go      <= to_go - WIDTH_BITS'(need);
      row_begins <= 1'b0;
    end
  end

endmodule
