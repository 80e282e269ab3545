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

  logic [63:0] pending;
  logic [7:0] pending_keep;
  logic [127:0] wide;
  logic [15:0] wide_keep;
  logic [2:0] lane;

  assign lane = position[2:0];
  assign wide = 128'(data) << {lane, 3'b000};
  assign wide_keep = 16'(8'((9'd1 << length) - 9'd1)) << lane;

  always_ff @(posedge clk) begin
    write <= 1'b0;
    write_address <= {session, position[RING_BITS-1:3]};
    if (valid) begin
      for (int i = 0; i < 8; i++)
      write_data[8*i+:8] <= wide_keep[i] ? wide[8*i+:8] : pending[8*i+:8];
      write_keep <= pending_keep | wide_keep[7:0];
      position <= position + 32'(length);
      if (5'(lane) + 5'(length) >= 5'd8) begin
        write <= 1'b1;
        pending <= wide[127:64];
        pending_keep <= wide_keep[15:8];
      end else begin
        for (int i = 0; i < 8; i++) if (wide_keep[i]) pending[8*i+:8] <= wide[8*i+:8];
        pending_keep <= pending_keep | wide_keep[7:0];
      end
    end else if (flush) begin
      write <= |pending_keep;
      write_data <= pending;
      write_keep <= pending_keep;
      pending_keep <= '0;
    end
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
