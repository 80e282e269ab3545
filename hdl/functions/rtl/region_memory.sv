// The memory port of a region's fixed boundary: the shell's protection from the kernel's side of
// AXI4 to board memory.
//
// A burst that has begun is completed whatever the kernel does: while `off` is high (reset,
// reconfiguration, the end of a run), and from then until all bursts have ended, replies to the
// kernel are masked, its requests wait, and the rest of a write is sent without strobes: the words
// that have not been taken from the kernel. `idle` is low until all bursts have ended: the next run
// must not begin earlier. The kernel accepts replies at any time, and its addresses are within the
// gigabyte from BASE on.
//
// Parameters: BASE, a multiple of a gigabyte; READS, read bursts in progress. Latency: one cycle
// for an address and for a word. Throughput: a beat per cycle.
module region_memory
  import axi_pkg::*;
  import fn_pkg::*;
#(
    parameter logic [31:0] BASE = 32'h4000_0000,
    parameter int READS = 8
) (
    input  logic          clk,
    input  logic          rst,
    input  logic          off,
    output logic          idle,
    // The kernel.
    input  memory_t       kernel,
    output memory_reply_t kernel_reply,
    // Board memory.
    output memory_t       board,
    input  memory_reply_t board_reply
);

  localparam int CountBits = $clog2(READS + 1);

  typedef enum logic [1:0] {
    Quiet,
    Address,
    Data,
    Answer
  } state_t;

  logic                 own_clk;  // gated while no state changes
  logic                 stale;    // bursts in progress are not those of the kernel's present run
  logic                 asks, asked, came, may;
  logic [CountBits-1:0] open;     // read bursts that were accepted and have not ended
  logic [31:0]          read_at, write_at;
  logic [7:0]           read_length, write_length;
  logic [7:0]           left;     // words to take after the next one
  logic                 full;     // a word is offered, or will be once its address was accepted
  logic                 last;     // it is the last of its burst
  logic [63:0]          word;
  logic [7:0]           strobes;
  logic                 accepts, takes, sent;
  state_t               state;
  logic                 unused_signals;

  // The size and the kind of a burst are fixed.
  assign unused_signals = &{1'b0, kernel};
  assign idle = !asks && open == '0 && state == Quiet;
  assign may = !stale && !off;

  always_ff @(posedge own_clk) begin
    if (rst) stale <= 1'b1;
    else stale <= off || (stale && !idle);
  end

  // Reads.
  assign asked = may && kernel.read.arvalid && kernel_reply.read.arready;
  assign came  = board_reply.read.rvalid && board_reply.read.rlast;

  always_ff @(posedge own_clk) begin
    if (asked) begin
      asks        <= 1'b1;
      read_at     <= {BASE[31:30], kernel.read.araddr[29:0]};
      read_length <= kernel.read.arlen;
    end else if (board_reply.read.arready) asks <= 1'b0;
    if (rst) begin
      asks <= 1'b0;
      open <= '0;
    end else if (asked != came) open <= asked ? open + 1'b1 : open - 1'b1;
  end

  always_comb begin
    kernel_reply.read         = board_reply.read;
    kernel_reply.read.arready = may && !asks && open != CountBits'(READS);
    kernel_reply.read.rvalid  = may && board_reply.read.rvalid;
  end

  assign board.read = '{
    arvalid: asks,
    araddr:  read_at,
    arlen:   read_length,
    arsize:  3'd3,
    arburst: BurstIncr,
    rready:  1'b1
  };

  // Writes: one burst at a time, of the length that its address has announced. Words come from a
  // register, because one that has been offered has to stay.
  assign sent = state == Data && full && board_reply.write.wready;
  assign accepts = (state == Address || state == Data) && (!full || (sent && !last));
  assign takes = accepts && (!may || kernel.write.wvalid);

  always_ff @(posedge own_clk) begin
    if (takes) begin
      word    <= kernel.write.wdata;
      strobes <= may ? kernel.write.wstrb : '0;
      last    <= left == '0;
      left    <= left - 1'b1;
    end
    unique case (state)
      Quiet: if (may && kernel.write.awvalid) begin
        write_at     <= {BASE[31:30], kernel.write.awaddr[29:0]};
        write_length <= kernel.write.awlen;
        left         <= kernel.write.awlen;
        state        <= Address;
      end
      Address: if (board_reply.write.awready) state <= Data;
      Data: if (sent && last) state <= Answer;
      default: if (board_reply.write.bvalid) state <= Quiet;
    endcase
    if (rst) state <= Quiet;
    if (rst) full <= 1'b0;
    else full <= takes || (full && !sent);
  end

  assign kernel_reply.write = '{
    awready: may && state == Quiet,
    wready:  may && accepts,
    bvalid:  may && state == Answer && board_reply.write.bvalid,
    bresp:   board_reply.write.bresp
  };

  assign board.write = '{
    awvalid: state == Address,
    awaddr:  write_at,
    awlen:   write_length,
    awsize:  3'd3,
    awburst: BurstIncr,
    wvalid:  state == Data && full,
    wdata:   word,
    wstrb:   strobes,
    wlast:   last,
    bready:  1'b1
  };

  clock_gate u_gate (
      .clk,
      .wake (rst || off != stale || !idle ||
             (may && (kernel.read.arvalid || kernel.write.awvalid))),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  reads_are_bounded : assert property (@(posedge clk) disable iff (rst) open <= CountBits'(READS));
  words_were_requested : assert property (@(posedge clk) disable iff (rst)
      board_reply.read.rvalid |-> open != '0);
  responses_were_requested : assert property (@(posedge clk) disable iff (rst)
      board_reply.write.bvalid |-> state == Answer);
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      board.read.arvalid && !board_reply.read.arready |=>
      board.read.arvalid && $stable({board.read.araddr, board.read.arlen}));
  writes_stay : assert property (@(posedge clk) disable iff (rst)
      board.write.awvalid && !board_reply.write.awready |=>
      board.write.awvalid && $stable({board.write.awaddr, board.write.awlen}));
  words_stay : assert property (@(posedge clk) disable iff (rst)
      board.write.wvalid && !board_reply.write.wready |=>
      board.write.wvalid && $stable({board.write.wdata, board.write.wstrb, board.write.wlast}));
  bursts_end : assert property (@(posedge clk) disable iff (rst)
      state == Answer |-> !full && last);
  // A kernel has its own gigabyte.
  in_the_kernels_part : assert property (@(posedge clk) disable iff (rst)
      (!board.read.arvalid || board.read.araddr[31:30] == BASE[31:30]) &&
      (!board.write.awvalid || board.write.awaddr[31:30] == BASE[31:30]));
  // Nothing reaches a kernel while it is off.
  off_is_silent : assert property (@(posedge clk) disable iff (rst)
      off |-> !kernel_reply.read.rvalid && !kernel_reply.write.bvalid);
`endif

endmodule
