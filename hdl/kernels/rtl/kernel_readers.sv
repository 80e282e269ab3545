// The loads of a kernel that do not depend on its stores: each has a port (`kernel_reader`) that
// reads a word in every step while its lines are there, and lines are requested ahead. Words that
// the kernel writes meanwhile may be seen or not.
//
// Ports that want the same line share its request. A request is chosen in one cycle and compared with
// those in flight in the next, because both take about half of a cycle of 100 MHz; the next one is
// chosen when it has left, so that the comparison is not on the path to the ports. The guard gives the
// number of bytes of a line that belong to the buffer; a line without any is not read. A kernel begins
// with empty ports, because it is in reset before each launch, while no line is on its way.
//
// Parameters: PORTS; LINES of each port, except for those of SMALL, which have 16; STRIDES, see
// `kernel_reader`; FETCHES, lines that are requested at a time.
// Throughput: a word per port and cycle; a request of a line every second cycle.
module kernel_readers #(
    parameter int PORTS = 1,
    parameter int LINES = 16,
    parameter logic [PORTS-1:0] SMALL = '0,
    parameter bit STRIDES = 1'b0,
    parameter int FETCHES = 8
) (
    input  logic                   clk,
    input  logic                   rst,
    // By port: a step of the kernel, or of `kernel_words`.
    input  logic [PORTS-1:0]       port_steps,
    input  logic [PORTS-1:0]       port_reads,
    input  logic [PORTS-1:0][31:0] port_addresses,
    output logic [PORTS-1:0][63:0] port_words,
    output logic [PORTS-1:0]       ports_ready,
`include "kernel_fetch_ports.svh"
);

  localparam int Bits = $clog2(FETCHES);

  typedef struct packed {
    logic [25:0]      line;
    logic [7:0]       bytes;
    logic [PORTS-1:0] ports;   // that receive it
  } fetch_t;

  logic [PORTS-1:0]       ready, faults, wants, same, taken, busy, fills, filled;
  logic [PORTS-1:0][25:0] wanted;
  logic [PORTS-1:0][31:0] fault_places;
  fetch_t                 fetches[FETCHES];
  // Of a fetch: it has not ended; none of its words has arrived.
  logic [FETCHES-1:0]     active, unread;
  logic [Bits-1:0]        first, next;
  logic [3:0]             beat;
  logic [25:0]            line;        // the line that is chosen
  logic                   accepts;
  // The request that was chosen: `ports` is not 0 while there is one.
  struct packed {
    logic [25:0]      line;
    logic [PORTS-1:0] ports;
  } chosen;
  logic                   under_way, asks;
  logic                   fresh;       // in the first cycle of `chosen`
  logic                   absent;      // the chosen line has no bytes
  logic [Bits-1:0]        which;
  logic [25:0]            fill_line;
  logic [7:0]             fill_bytes;
  logic [31:0]            fault_place;
  logic [3:0]             fault_skew;

  assign ports_ready = ready;

  always_comb begin
    line = '0;
    for (int i = PORTS - 1; i >= 0; i--) if (wants[i]) line = wanted[i];
    for (int i = 0; i < PORTS; i++) same[i] = wants[i] && wanted[i] == line;
    // A request whose words have not begun to arrive is shared.
    under_way = 1'b0;
    which     = '0;
    for (int i = 0; i < FETCHES; i++)
      if (fetches[i].line == chosen.line && unread[i] && !(Bits'(i) == first && fetched_valid)) begin
        under_way = 1'b1;
        which     = Bits'(i);
      end
    busy = chosen.ports;
    for (int i = 0; i < FETCHES; i++) busy |= fetches[i].ports;
    fault_place = '0;
    for (int i = PORTS - 1; i >= 0; i--) if (faults[i]) fault_place = fault_places[i];
  end

  assign read_fault   = |faults;
  assign fault_skew   = fetch_skews[4*fault_place[31:28]+:4];
  assign read_address = {fault_place[31:28], fault_place[27:0] - {21'd0, fault_skew, 3'd0}};
  assign {fetch_buffer, fetch_line} = chosen.line;
  assign fetch_valid  = |chosen.ports && !under_way && !absent && !active[next];
  assign asks         = fetch_valid && fetch_ready && fetch_bytes != '0;
  assign accepts      = chosen.ports == '0;
  assign taken        = fresh ? chosen.ports : '0;

  assign fill_line    = fetched_valid ? fetches[first].line : chosen.line;
  assign fill_bytes   = fetched_valid ? fetches[first].bytes : '0;
  assign fills        = fetched_valid ? fetches[first].ports : '0;
  assign filled       = fetched_valid ? (fetched_last ? fetches[first].ports : '0) : absent ? chosen.ports : '0;

  always_ff @(posedge clk) begin
    // A line without bytes is complete once no word arrives.
    fresh  <= accepts;
    absent <= fetch_valid && fetch_ready && fetch_bytes == '0 || absent && fetched_valid;
    if (accepts) chosen <= '{line, same};
    else if (asks || under_way || absent && !fetched_valid) chosen.ports <= '0;
    if (asks) begin
      fetches[next] <= '{chosen.line, fetch_bytes, chosen.ports};
      next          <= next + 1'b1;
      active[next]  <= 1'b1;
      unread[next]  <= 1'b1;
    end else if (under_way) fetches[which].ports <= fetches[which].ports | chosen.ports;
    if (fetched_valid) begin
      beat          <= beat + 4'd1;
      unread[first] <= 1'b0;
    end
    if (fetched_valid && fetched_last) begin
      beat                 <= '0;
      first                <= first + 1'b1;
      active[first]        <= 1'b0;
      fetches[first].ports <= '0;
    end
    if (rst) begin
      chosen.ports <= '0;
      absent       <= 1'b0;
      for (int i = 0; i < FETCHES; i++) fetches[i].ports <= '0;
      fresh  <= 1'b0;
      active <= '0;
      unread <= '0;
      first  <= '0;
      next   <= '0;
      beat   <= '0;
    end
  end

  for (genvar i = 0; i < PORTS; i++) begin : g_ports
    kernel_reader #(
        .LINES  (SMALL[i] ? 16 : LINES),
        .STRIDES(STRIDES)
    ) u_reader (
        .clk,
        .rst,
        .step         (port_steps[i]),
        .read_valid   (port_reads[i]),
        .read_address (port_addresses[i]),
        .read_word    (port_words[i]),
        .ready        (ready[i]),
        .fault        (faults[i]),
        .fault_place  (fault_places[i]),
        .fetch_skews,
        .want         (wants[i]),
        .wanted       (wanted[i]),
        .taken        (taken[i]),
        .busy         (busy[i]),
        .fill         (fills[i]),
        .filled       (filled[i]),
        .fill_line,
        .fill_beat    (beat),
        .fill_word    (fetched_word),
        .fill_bytes
    );
  end

`ifndef SYNTHESIS
  words_were_requested : assert property (@(posedge clk) disable iff (rst)
      fetched_valid |-> active[first]);
  unread_fetches_are_active : assert property (@(posedge clk) disable iff (rst)
      (unread & ~active) == '0);
  // Fetches end in their order: the active ones are those from the first to the next.
  active_is_distance : assert property (@(posedge clk) disable iff (rst)
      Bits'($countones(active)) == next - first);
  lines_have_16_words : assert property (@(posedge clk) disable iff (rst)
      fetched_valid |-> fetched_last == (beat == '1));
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      fetch_valid && !fetch_ready |=> fetch_valid && $stable({fetch_buffer, fetch_line}));
`endif

endmodule
