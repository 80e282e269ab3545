// Shares the bus to host memory between several engines, in turn: reads by bursts, writes by beats.
//
// The bus replies to reads in the order of the requests, so data goes to the engines in that order.
// An engine keeps its request until it is accepted, and has space for the data that it requests
// (host_reader).
//
// Parameters: N; BURST, maximum beats of a read; OUTSTANDING, reads in progress, a power of two.
// Latency: none. Throughput: that of the bus.
module host_bus #(
    parameter int N = 5,
    parameter int BURST = 32,
    parameter int OUTSTANDING = 16
) (
    input  logic                       clk,
    input  logic                       rst,
    // The engines. Data has no address: `s_data_valid` selects its engine.
    input  logic [N-1:0]               s_read_valid,
    output logic [N-1:0]               s_read_ready,
    input  logic [63:0]                s_read_address[N],
    input  logic [$clog2(BURST+1)-1:0] s_read_beats[N],
    output logic [N-1:0]               s_data_valid,
    input  logic [N-1:0]               s_write_valid,
    output logic [N-1:0]               s_write_ready,
    input  logic [63:0]                s_write_address[N],
    input  logic [63:0]                s_write_data[N],
    input  logic [7:0]                 s_write_keep[N],
    // The bus.
    output logic                       read_valid,
    input  logic                       read_ready,
    output logic [63:0]                read_address,
    output logic [$clog2(BURST+1)-1:0] read_beats,
    input  logic                       data_valid,
    output logic                       write_valid,
    input  logic                       write_ready,
    output logic [63:0]                write_address,
    output logic [63:0]                write_data,
    output logic [7:0]                 write_keep
);

  localparam int BeatBits = $clog2(BURST + 1);
  localparam int SlotBits = $clog2(OUTSTANDING);

  if (OUTSTANDING != 1 << SlotBits) $error("OUTSTANDING must be a power of two");

  typedef struct packed {
    logic [N-1:0]        engine;
    logic [BeatBits-1:0] beats;
  } read_t;

  logic                own_clk;  // gated while no state changes
  // Of reads and of writes: the engine that is granted the bus now; one that has waited for it
  // since an earlier cycle; the one that has it.
  logic [N-1:0]        read_grant, read_held, read_chosen, write_grant, write_held, write_chosen;
  read_t               order[OUTSTANDING];  // reads in progress
  read_t               oldest;
  logic [SlotBits:0]   head, tail;
  logic [BeatBits-1:0] came;  // beats of the oldest read
  logic                full, some, requested, ended;

  assign full   = (head - tail) == (SlotBits + 1)'(OUTSTANDING);
  assign some   = head != tail;
  assign oldest = order[tail[SlotBits-1:0]];

  arbiter #(
      .N(N)
  ) u_reads (
      .clk    (own_clk),
      .rst,
      .enable (read_held == '0 && !full),
      .request(s_read_valid),
      .grant  (read_grant)
  );

  arbiter #(
      .N(N)
  ) u_writes (
      .clk    (own_clk),
      .rst,
      .enable (write_held == '0),
      .request(s_write_valid),
      .grant  (write_grant)
  );

  // A request that the bus has not accepted keeps its turn.
  assign read_chosen   = read_held != '0 ? read_held : read_grant;
  assign write_chosen  = write_held != '0 ? write_held : write_grant;
  assign read_valid    = read_chosen != '0;
  assign write_valid   = write_chosen != '0;
  assign s_read_ready  = read_ready ? read_chosen : '0;
  assign s_write_ready = write_ready ? write_chosen : '0;
  assign s_data_valid  = some && data_valid ? oldest.engine : '0;
  assign requested     = read_valid && read_ready;
  assign ended         = some && data_valid && came + 1'b1 == oldest.beats;

  always_comb begin
    read_address  = '0;
    read_beats    = '0;
    write_address = '0;
    write_data    = '0;
    write_keep    = '0;
    for (int i = 0; i < N; i++) begin
      if (read_chosen[i]) begin
        read_address = read_address | s_read_address[i];
        read_beats   = read_beats | s_read_beats[i];
      end
      if (write_chosen[i]) begin
        write_address = write_address | s_write_address[i];
        write_data    = write_data | s_write_data[i];
        write_keep    = write_keep | s_write_keep[i];
      end
    end
  end

  always_ff @(posedge own_clk) begin
    if (requested) order[head[SlotBits-1:0]] <= '{engine: read_chosen, beats: read_beats};
    if (rst) begin
      head       <= '0;
      tail       <= '0;
      came       <= '0;
      read_held  <= '0;
      write_held <= '0;
    end else begin
      read_held  <= read_ready ? '0 : read_chosen;
      write_held <= write_ready ? '0 : write_chosen;
      if (requested) head <= head + 1'b1;
      if (ended) tail <= tail + 1'b1;
      if (some && data_valid) came <= ended ? '0 : came + 1'b1;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || s_read_valid != '0 || s_write_valid != '0 || some || read_held != '0 || write_held != '0),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  // Data arrives only for a request.
  data_was_requested : assert property (@(posedge clk) disable iff (rst) data_valid |-> some);
  one_reads : assert property (@(posedge clk) disable iff (rst) $onehot0(read_chosen));
  one_writes : assert property (@(posedge clk) disable iff (rst) $onehot0(write_chosen));
  reads_have_beats : assert property (@(posedge clk) disable iff (rst)
      read_valid |-> read_beats inside {[1:BURST]});
  reads_stay : assert property (@(posedge clk) disable iff (rst)
      read_valid && !read_ready |=> read_valid && $stable({read_address, read_beats}));
  writes_stay : assert property (@(posedge clk) disable iff (rst)
      write_valid && !write_ready |=>
      write_valid && $stable({write_address, write_data, write_keep}));
  reads_end_with_their_beats : assert property (@(posedge clk) disable iff (rst)
      some |-> came < oldest.beats);
`endif

endmodule
