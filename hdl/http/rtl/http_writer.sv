// Writes a stream of bytes into a session's transmit ring at any byte position: turns each beat by
// the position's place in a word and joins what is left over with the next beat.
//
// Parameters: RING_BITS, log2 of a ring's bytes. Latency: 1 cycle. Throughput: 8 bytes a cycle.
module http_writer #(
    parameter int SESSION_BITS = 4,
    parameter int RING_BITS = 21
) (
    input  logic                                clk,
    input  logic                                rst,
    input  logic                                start,  // go to `from` of `session`
    input  logic [            SESSION_BITS-1:0] session,
    input  logic [                        31:0] from,
    input  logic                                valid,
    input  logic [                        63:0] data,
    input  logic [                         3:0] length, // bytes, 0 to 8
    input  logic                                flush,  // write out what is left; not with `valid`
    output logic [                        31:0] position,
    output logic                                write,
    output logic [SESSION_BITS+RING_BITS-4:0] write_address,
    output logic [                        63:0] write_data,
    output logic [                         7:0] write_keep
);

  logic [63:0] pending, turned;
  logic [7:0] pending_keep, filled;
  logic [15:0] keep;      // where the beat's bytes go: into this word and the next one
  logic [2:0] lane;

  // A beat is turned once: the bytes that wrap around are those of the next word.
  assign lane = position[2:0];
  assign turned = 64'({data, data} << {lane, 3'b000} >> 64);
  assign filled = length[3] ? '1 : ~(8'hff << length[2:0]);
  assign keep = 16'(filled) << lane;

  always_ff @(posedge clk) begin
    write <= valid ? keep[7] : flush && |pending_keep;
    write_address <= {session, position[RING_BITS-1:3]};
    for (int i = 0; i < 8; i++) begin
      write_data[8*i+:8] <= valid && keep[i] ? turned[8*i+:8] : pending[8*i+:8];
      if (valid && (keep[i] || keep[8+i])) pending[8*i+:8] <= turned[8*i+:8];
    end
    write_keep <= pending_keep | (valid ? keep[7:0] : '0);
    if (valid) begin
      position <= position + 32'(length);
      pending_keep <= keep[7] ? keep[15:8] : pending_keep | keep[7:0];
    end else if (flush) pending_keep <= '0;
    if (start) begin
      position <= from;
      pending_keep <= '0;
    end
    if (rst) begin
      write <= 1'b0;
      pending_keep <= '0;
    end
  end

endmodule
