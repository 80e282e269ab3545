// Writes streams of bytes into sessions' transmit rings at any byte position: rotates each beat by
// the position in a word and joins the remainder with the source's next beat. Each source has a
// position and a remainder, and at most one source at a time has a beat,
// because the rotation is expensive.
//
// Parameters: SOURCES; SESSION_BITS; RING_BITS, log2 of a ring's bytes; POSITION_BITS. Latency:
// 2 cycles.
// Throughput: 8 bytes per cycle.
module http_writer #(
    parameter int SOURCES = 3,
    parameter int SESSION_BITS = 4,
    parameter int RING_BITS = 21,
    parameter int POSITION_BITS = RING_BITS + 2
) (
    input  logic                                clk,
    input  logic                                rst,
    input  logic [             SOURCES-1:0]     valid,   // a beat, of at most one source
    input  logic [             SOURCES-1:0]     flush,   // instead: writes out the remainder
    input  logic [                    63:0]     data    [SOURCES],
    input  logic [                     3:0]     length  [SOURCES],  // bytes, 0 to 8
    // In the cycle after a beat or a flush: moves the source to `from` when that is done. The
    // source's session stays until the remainder is written out.
    input  logic [             SOURCES-1:0]     start,
    input  logic [       POSITION_BITS-1:0]     from    [SOURCES],
    input  logic [        SESSION_BITS-1:0]     session [SOURCES],
    // Two cycles after a beat, including it.
    output logic [       POSITION_BITS-1:0]     position[SOURCES],
    output logic                                write,
    output logic [             SOURCES-1:0]     writes,  // source of the write
    output logic [SESSION_BITS+RING_BITS-4:0]   write_address,
    output logic [                    63:0]     write_data,
    output logic [                     7:0]     write_keep
);

  logic own_clk;  // gated while no state changes

  // ---- the beat of the active source ----
  logic [SOURCES-1:0] who;
  logic put, flushes;
  logic [63:0] beat;
  logic [3:0] bytes;

  always_ff @(posedge own_clk) begin
    who <= valid | flush;
    put <= |valid && !rst;
    flushes <= |flush && !rst;
    for (int i = 0; i < SOURCES; i++)
    if (valid[i]) begin
      beat  <= data[i];
      bytes <= length[i];
    end
  end

  // ---- the state of that source ----
  logic [63:0] pending[SOURCES];
  logic [7:0] pending_keep[SOURCES];
  logic [63:0] left;
  logic [7:0] left_keep;
  logic [SESSION_BITS-1:0] of_session;
  logic [RING_BITS-1:0] at;

  always_comb begin
    {left, left_keep, of_session, at} = '0;
    for (int i = 0; i < SOURCES; i++)
    if (who[i]) begin
      left |= pending[i];
      left_keep |= pending_keep[i];
      of_session |= session[i];
      at |= position[i][RING_BITS-1:0];
    end
  end

  // ---- a beat is rotated once: the bytes that wrap around belong to the next word ----
  logic [63:0] turned;
  logic [7:0] filled;
  logic [15:0] keep;  // positions of the beat's bytes: in this word and the next one
  assign turned = 64'({beat, beat} << {at[2:0], 3'b000} >> 64);
  assign filled = bytes[3] ? '1 : ~(8'hff << bytes[2:0]);
  assign keep = put ? 16'(filled) << at[2:0] : '0;

  always_ff @(posedge own_clk) begin
    write <= !rst && (put ? keep[7] : flushes && |left_keep);
    writes <= who;
    write_address <= {of_session, at[RING_BITS-1:3]};
    for (int i = 0; i < 8; i++) write_data[8*i+:8] <= keep[i] ? turned[8*i+:8] : left[8*i+:8];
    write_keep <= left_keep | keep[7:0];
    for (int s = 0; s < SOURCES; s++) begin
      if (who[s]) begin
        for (int i = 0; i < 8; i++) if (keep[i] || keep[8+i]) pending[s][8*i+:8] <= turned[8*i+:8];
        pending_keep[s] <= flushes ? '0 : keep[7] ? keep[15:8] : left_keep | keep[7:0];
        if (put) position[s] <= position[s] + POSITION_BITS'(bytes);
      end
      if (start[s]) position[s] <= from[s];
      if (start[s] || rst) pending_keep[s] <= '0;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || |valid || |flush || |start || put || flushes || write),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  one_at_a_time : assert property (@(posedge clk) disable iff (rst) $onehot0(valid | flush));
  beats_are_words : assert property (@(posedge clk) disable iff (rst) put |-> bytes <= 4'd8);
  writes_have_bytes : assert property (@(posedge clk) disable iff (rst)
      write |-> write_keep != '0 && $onehot(writes));
`endif

endmodule
