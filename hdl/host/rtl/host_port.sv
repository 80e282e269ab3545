// The board's interface to its host, as over PCIe: registers, and descriptors by DMA.
//
// With it a host uploads images into board memory, changes the function table, and calls the
// board's functions without the network. Its calls use the same function engine as those over HTTP
// and the same regions. Several calls are in progress at once, and beside them a copy: each has an
// engine of its own, and all engines share the bus.
//
// Parameters: CALLS at once; with 0, calls are malformed. Others as in host_registers and
// host_engine. QUEUE, descriptors that wait for an engine, of calls and of copies.
module host_port
  import axi_pkg::*;
  import host_pkg::*;
  import fn_pkg::*;
  import functions_pkg::*;
#(
    parameter  int REGIONS = 4,
    parameter  int CALLS = 4,
    parameter  bit READS = 1,
    parameter  logic [31:0] SHELL = 32'h1,
    parameter  int IMAGE_BYTES = 1 << 26,
    parameter  int QUEUE = 8,
    localparam int N = NUMBER_BITS + 1
) (
    input  logic        clk,
    input  logic        rst,
    input  host_in_t        host_in,
    output host_out_t       host_out,
    output logic            busy,
    // Board memory.
    output axi_read_t        axi_read,
    input  axi_read_reply_t  axi_read_reply,
    output axi_write_t       axi_write,
    input  axi_write_reply_t axi_write_reply,
    // The scheduler's settings and the function table.
    output scheduling_t     scheduling,
    output table_change_t   change,
    input  logic            change_ready,
    input  table_changed_t  changed,
    // To the function engine: function numbers are the table's,
    // and after those the host's own programs.
    output logic            forget,
    output logic [N-1:0]    forget_function,
    output host_call_t       call,
    input  host_call_reply_t call_reply,
    // The regions: those that have a call of the host, and their streams.
    input  logic [REGIONS-1:0] decouple,
    input  logic [31:0] region_loads[REGIONS],
    input  logic [63:0] region_busy[REGIONS],
    input  logic [31:0] region_image[REGIONS],
    output logic [REGIONS-1:0] region_on,
    output logic [REGIONS-1:0] region_kill,
    output streams_in_t  region_in[REGIONS],
    input  streams_out_t region_out[REGIONS],
    // The message door.
    output message_tables_t messages
);

  localparam int Engines = CALLS + 1;  // the first one carries out copies
  localparam int Burst = 32;
  localparam int BeatBits = $clog2(Burst + 1);

  logic post_valid, post_ready, post_copy, forget_own, abort_valid;
  logic [63:0] post_address;
  logic [31:0] abort_address;
  logic [NUMBER_BITS-1:0] forget_program;
  // Queues of copies and of calls.
  logic [1:0] queue_ready, queued, queue_take;
  logic [63:0] queued_address[2];
  logic [$clog2(QUEUE+2)-1:0] level[2];

  // The engines.
  logic [Engines-1:0] start, free, works, ended;
  logic [Engines-1:0] read_valid, read_ready, data_valid, write_valid, write_ready;
  logic [63:0] read_address[Engines], write_address[Engines], write_data[Engines];
  logic [BeatBits-1:0] read_beats[Engines];
  logic [7:0] write_keep[Engines];
  axi_read_t engine_read[Engines];
  axi_write_t engine_write[Engines];
  host_call_t calls[Engines];
  host_call_reply_t call_replies[Engines];
  logic [REGIONS-1:0] on[Engines];
  logic [Engines-1:0] kill;
  streams_in_t engine_in[Engines];
  streams_out_t engine_out[Engines];

  // The host does not do both at once.
  assign forget = (changed.valid && changed.changed) || forget_own;
  assign forget_function = forget_own ? {1'b1, forget_program} : {1'b0, changed.number};
  assign busy = works != '0 || level[0] != '0 || level[1] != '0 || post_valid || change.valid;

  host_registers #(
      .REGIONS    (REGIONS),
      .CALLS      (CALLS),
      .SHELL      (SHELL),
      .IMAGE_BYTES(IMAGE_BYTES)
  ) u_registers (
      .clk,
      .rst,
      .write    (host_in.write),
      .address  (host_in.address),
      .data     (host_in.data),
      .read_data(host_out.read_data),
      .policy   (scheduling.policy),
      .patience (scheduling.patience),
      .load_cost(scheduling.load_cost),
      .change_valid    (change.valid),
      .change_ready,
      .change_remove   (change.remove),
      .change_name     (change.name),
      .change_entry    (change.entry),
      .changed_valid   (changed.valid),
      .changed         (changed.changed),
      .changed_function(changed.number),
      .forget   (forget_own),
      .forget_program,
      .post_valid,
      .post_ready,
      .post_copy,
      .post_address,
      .queue_ready,
      .abort_valid,
      .abort_address,
      .ended    (host_out.ended),
      .messages,
      .decouple,
      .region_loads,
      .region_busy,
      .region_image
  );

  // ---- descriptors that wait ----
  // Without calls, all are for the one engine.
  localparam int Queues = CALLS == 0 ? 1 : 2;
  logic queue_clk;  // gated while no state changes
  logic [1:0] post_to;
  assign post_to    = CALLS == 0 || post_copy ? 2'b01 : 2'b10;
  assign post_ready = (queue_ready & post_to) != '0;

  for (genvar q = 0; q < 2; q++) begin : g_queue
    if (q < Queues) begin : g_posts
      axis_fifo #(
          .T    (logic [63:0]),
          .DEPTH(QUEUE),
          .BLOCK(1)
      ) u_posts (
          .clk(queue_clk),
          .rst,
          .s_valid  (post_valid && post_to[q]),
          .s_ready  (queue_ready[q]),
          .s_payload(post_address),
          .m_valid  (queued[q]),
          .m_ready  (queue_take[q]),
          .m_payload(queued_address[q]),
          .level    (level[q])
      );
    end else begin : g_none
      logic unused_take;
      assign unused_take = queue_take[q];
      assign queue_ready[q] = 1'b0;
      assign queued[q] = 1'b0;
      assign queued_address[q] = '0;
      assign level[q] = '0;
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || post_valid || level[0] != '0 || level[1] != '0),
      .gated(queue_clk)
  );

  // The first free engine begins.
  logic [Engines-1:0] call_free, first_free;
  assign call_free  = free & ~Engines'(1);
  assign first_free = call_free & (~call_free + 1'b1);
  assign queue_take = {call_free != '0, free[0]};
  assign start      = (queued[1] ? first_free : '0) | Engines'(queued[0] && free[0]);

  for (genvar e = 0; e < Engines; e++) begin : g_engine
    host_engine #(
        .REGIONS    (REGIONS),
        .CALLS      (e != 0),
        .COPIES     (e == 0),
        .READS      (READS && e == 0),
        .NUMBER_BITS(N),
        .BURST      (Burst)
    ) u_engine (
        .clk,
        .rst,
        .start        (start[e]),
        .start_address(queued_address[e!=0]),
        .free         (free[e]),
        .ended        (ended[e]),
        .abort_valid,
        .abort_address,
        .read_valid   (read_valid[e]),
        .read_ready   (read_ready[e]),
        .read_address (read_address[e]),
        .read_beats   (read_beats[e]),
        .data_valid   (data_valid[e]),
        .data         (host_in.dma_data),
        .data_error   (host_in.dma_data_error),
        .write_valid  (write_valid[e]),
        .write_ready  (write_ready[e]),
        .write_address(write_address[e]),
        .write_data   (write_data[e]),
        .write_keep   (write_keep[e]),
        .axi_read       (engine_read[e]),
        .axi_read_reply,
        .axi_write      (engine_write[e]),
        .axi_write_reply,
        .call         (calls[e]),
        .call_reply   (call_replies[e]),
        .region_on    (on[e]),
        .region_kill  (kill[e]),
        .region_in    (engine_in[e]),
        .region_out   (engine_out[e])
    );
    assign works[e] = !free[e];
  end

  // The bus accepts one beat per cycle, so that at most one engine ends.
  assign host_out.ended = ended != '0;
  assign axi_read  = engine_read[0];
  assign axi_write = engine_write[0];

  // ---- the bus ----
  if (CALLS == 0) begin : g_one
    assign host_out.dma_read_valid    = read_valid[0];
    assign host_out.dma_read_address  = read_address[0];
    assign host_out.dma_read_beats    = read_beats[0];
    assign host_out.dma_write_valid   = write_valid[0];
    assign host_out.dma_write_address = write_address[0];
    assign host_out.dma_write_data    = write_data[0];
    assign host_out.dma_write_keep    = write_keep[0];
    assign read_ready  = host_in.dma_read_ready;
    assign data_valid  = host_in.dma_data_valid;
    assign write_ready = host_in.dma_write_ready;
  end else begin : g_shared
    host_bus #(
        .N    (Engines),
        .BURST(Burst)
    ) u_bus (
        .clk,
        .rst,
        .s_read_valid   (read_valid),
        .s_read_ready   (read_ready),
        .s_read_address (read_address),
        .s_read_beats   (read_beats),
        .s_data_valid   (data_valid),
        .s_write_valid  (write_valid),
        .s_write_ready  (write_ready),
        .s_write_address(write_address),
        .s_write_data   (write_data),
        .s_write_keep   (write_keep),
        .read_valid     (host_out.dma_read_valid),
        .read_ready     (host_in.dma_read_ready),
        .read_address   (host_out.dma_read_address),
        .read_beats     (host_out.dma_read_beats),
        .data_valid     (host_in.dma_data_valid),
        .write_valid    (host_out.dma_write_valid),
        .write_ready    (host_in.dma_write_ready),
        .write_address  (host_out.dma_write_address),
        .write_data     (host_out.dma_write_data),
        .write_keep     (host_out.dma_write_keep)
    );
  end

  // ---- calls ----
  // The lowest engine requests first; a request that waits for the scheduler may be overtaken.
  logic [Engines-1:0] requests, chosen, finishes;
  logic [7:0] request_engine, request_function;
  call_t request_call;

  assign chosen = requests & (~requests + 1'b1);
  for (genvar e = 0; e < Engines; e++) begin : g_call
    localparam logic [7:0] Number = 8'(e) - 8'd1;
    assign requests[e] = calls[e].request_valid;
    assign finishes[e] = calls[e].finish_ready && call_reply.finish_engine == Number;
    assign call_replies[e] = '{
      request_ready: call_reply.request_ready && chosen[e],
      grant:         call_reply.grant && call_reply.grant_engine == Number,
      grant_engine:  call_reply.grant_engine,
      grant_region:  call_reply.grant_region,
      finish_valid:  call_reply.finish_valid && call_reply.finish_engine == Number,
      finish_engine: call_reply.finish_engine,
      finish_region: call_reply.finish_region,
      finish:        call_reply.finish
    };
  end

  always_comb begin
    request_engine   = '0;
    request_function = '0;
    request_call     = '0;
    for (int e = 1; e < Engines; e++) begin
      if (chosen[e]) begin
        request_engine   = request_engine | 8'(e - 1);
        request_function = request_function | calls[e].request_function;
        request_call     = request_call | calls[e].request_call;
      end
    end
  end

  assign call = '{
    request_valid:    requests != '0,
    request_engine:   request_engine,
    request_function: request_function,
    request_call:     request_call,
    finish_ready:     finishes != '0
  };

  // ---- the regions ----
  // An engine has at most one, and a region at most one engine: by number, so that the wide streams
  // are chosen once.
  localparam int RegionBits = REGIONS > 1 ? $clog2(REGIONS) : 1;
  localparam int EngineBits = Engines > 1 ? $clog2(Engines) : 1;
  logic [RegionBits-1:0] region_of[Engines];
  logic [EngineBits-1:0] engine_of[REGIONS];

  always_comb begin
    region_on   = '0;
    region_kill = '0;
    for (int r = 0; r < REGIONS; r++) engine_of[r] = '0;
    for (int e = 0; e < Engines; e++) begin
      region_of[e] = '0;
      for (int r = 0; r < REGIONS; r++) begin
        if (e != 0 && on[e][r]) begin
          region_on[r]   = 1'b1;
          region_kill[r] = kill[e];
          engine_of[r]   = engine_of[r] | EngineBits'(e);
          region_of[e]   = region_of[e] | RegionBits'(r);
        end
      end
    end
  end

  always_comb begin
    for (int r = 0; r < REGIONS; r++) region_in[r] = region_on[r] ? engine_in[engine_of[r]] : '0;
    for (int e = 0; e < Engines; e++) engine_out[e] = e != 0 && on[e] != '0 ? region_out[region_of[e]] : '0;
  end

`ifndef SYNTHESIS
  for (genvar r = 0; r < REGIONS; r++) begin : g_owners
    logic [Engines-1:0] owners;
    for (genvar e = 0; e < Engines; e++) begin : g_owner
      assign owners[e] = on[e][r];
    end
    one_call : assert property (@(posedge clk) disable iff (rst) $onehot0(owners));
  end
  one_ends : assert property (@(posedge clk) disable iff (rst) $onehot0(ended));
  starts_free_engines : assert property (@(posedge clk) disable iff (rst) (start & ~free) == '0);
  one_finishes : assert property (@(posedge clk) disable iff (rst)
      call_reply.finish_valid |-> $onehot0(finishes));
`endif

endmodule
