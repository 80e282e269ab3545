// Reads streams one after the other, and the next one ahead: while bytes are taken from one, those of the one
// that is expected next come out of memory already. If another one is wanted then, nothing is lost but reads.
//
// Parameters: as of http_reader. Latency: 1 cycle from `start` to bytes that were read ahead, else that of
// http_reader. Throughput: 8 bytes a cycle.
module http_ahead #(
    parameter int SESSION_BITS = 4,
    parameter int RING_BITS = 21,
    parameter int MEMORY_LATENCY = 4,
    parameter int WORDS = 2 ** $clog2(MEMORY_LATENCY + 4)
) (
    input  logic                                clk,
    input  logic                                rst,
    input  logic                                start,         // go to `from` of `session`
    input  logic [            SESSION_BITS-1:0] session,
    input  logic [                        31:0] from,
    input  logic [                        31:0] up_to,         // what has arrived of it, after `start`; may grow
    // What is expected next.
    input  logic                                ahead,
    input  logic [            SESSION_BITS-1:0] ahead_session,
    input  logic [                        31:0] ahead_from,
    input  logic [                        31:0] ahead_up_to,
    // What was read ahead of this session is void.
    input  logic                                drop,
    input  logic [            SESSION_BITS-1:0] drop_session,
    output logic                                wants,         // would read in this cycle
    input  logic                                may,           // and may
    output logic                                read,
    output logic [SESSION_BITS+RING_BITS-4:0] read_address,
    input  logic [                        63:0] read_data,
    output logic [                       127:0] bytes,         // the next byte in bits 7:0
    output logic [                         4:0] count,         // how many of them are there, up to 16
    output logic                                drained,       // all that has arrived is in `bytes`
    input  logic [                         4:0] take           // at most `count`
);

  logic which;                              // the reader that is taken from
  logic begun;                              // the other one has something
  logic [SESSION_BITS-1:0] begun_session;   // of this session,
  logic [31:0] begun_from, begun_to;        // from here, to what had arrived
  logic hit, known, begin_other;

  logic [1:0] starts, reader_wants, reader_may, reads, all;
  logic other_wants;
  logic [SESSION_BITS-1:0] sessions[2];
  logic [31:0] froms[2], tos[2];
  logic [SESSION_BITS+RING_BITS-4:0] addresses[2];
  logic [127:0] windows[2];
  logic [4:0] counts[2], takes[2];

  assign hit = begun && begun_session == session && begun_from == from;
  assign known = begun && begun_session == ahead_session && begun_from == ahead_from;
  assign begin_other = ahead && !known && !start;

  always_comb begin
    for (int i = 0; i < 2; i++) begin
      starts[i] = which == 1'(i) ? start && !hit : begin_other;
      froms[i]  = which == 1'(i) ? from : ahead_from;
      tos[i]    = which == 1'(i) ? up_to : begun_to;
      takes[i]  = which == 1'(i) ? take : 5'd0;
    end
    // The one that is taken from goes first. The other one may hold what is left of an earlier stream.
    reader_may = 2'b00;
    reader_may[which] = may;
    reader_may[!which] = may && other_wants && !reader_wants[which];
  end

  assign other_wants = begun && reader_wants[!which];
  assign wants = reader_wants[which] || other_wants;
  assign read = |reads;
  assign read_address = reads[1] ? addresses[1] : addresses[0];
  assign bytes = windows[which];
  assign count = counts[which];
  assign drained = all[which];

  always_ff @(posedge clk) begin
    if (begin_other) begin
      begun <= 1'b1;
      begun_session <= ahead_session;
      begun_from <= ahead_from;
      sessions[!which] <= ahead_session;
    end
    if (ahead && (known || begin_other)) begun_to <= ahead_up_to;
    if (start) begin
      if (hit) which <= !which;
      else sessions[which] <= session;
      begun <= begun && !hit;
    end
    if (drop && begun_session == drop_session) begun <= 1'b0;
    if (rst) begin
      which <= 1'b0;
      begun <= 1'b0;
    end
  end

  for (genvar i = 0; i < 2; i++) begin : g_reader
    http_reader #(
        .SESSION_BITS  (SESSION_BITS),
        .RING_BITS     (RING_BITS),
        .MEMORY_LATENCY(MEMORY_LATENCY),
        .WORDS         (WORDS)
    ) u_reader (
        .clk,
        .rst,
        .start       (starts[i]),
        .session     (sessions[i]),
        .from        (froms[i]),
        .up_to       (tos[i]),
        .wants       (reader_wants[i]),
        .may         (reader_may[i]),
        .read        (reads[i]),
        .read_address(addresses[i]),
        .read_data,
        .bytes       (windows[i]),
        .count       (counts[i]),
        .drained     (all[i]),
        .take        (takes[i])
    );
  end

endmodule
