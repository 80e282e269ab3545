// Function engine: from requests to runs in regions. Combines scheduler, reconfiguration controller
// and statistics with the state of each region.
//
// A request carries all operands of its run; its body waits with the requester under the request's
// tag. When a region is ready for it, `grant` names the region: the requester connects the body of
// that tag to the region's stream and receives the reply from it. Each request ends with one
// `finish`, after its run, or without a run if its image was refused. While one region is loaded
// the others continue to run.
//
// Parameters: REGIONS; QUEUE, requests that wait; FUNCTIONS; TAG_BITS, of a request's tag, which
// must be unique among those in flight; SHELL, DATA, MAX_BYTES as in fn_reconfig;
// SHORTEST as in fn_scheduler.
// Latency: 6 cycles from a request to its grant, if a region has its function and is idle.
module fn_engine
  import axi_pkg::*;
  import fn_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter int QUEUE = 16,
    parameter int FUNCTIONS = 64,
    parameter int TAG_BITS = 6,
    parameter logic [31:0] SHELL = 32'h1,
    parameter int DATA = 64,
    parameter int MAX_BYTES = 1 << 26,
    parameter bit SHORTEST = 1
) (
    input  logic                         clk,
    input  logic                         rst,
    // Settings; they may change at any time.
    input  scheduling_t                  scheduling,
    // A function has a new image, or none: regions that hold the old one no longer serve it.
    input  logic                         forget,
    input  logic [$clog2(FUNCTIONS)-1:0] forget_function,
    // Requests.
    input  logic                         request_valid,
    output logic                         request_ready,
    input  logic [TAG_BITS-1:0]          request_tag,
    input  logic [$clog2(FUNCTIONS)-1:0] request_function,
    input  call_t                        request_call,
    // A region begins with a request.
    output logic                         grant,
    output logic [$clog2(REGIONS)-1:0]   grant_region,
    output logic [TAG_BITS-1:0]          grant_tag,
    // For each region, the expected next request, so that its body can be prefetched. It is exact
    // from the decision on.
    output logic [REGIONS-1:0]           next_valid,
    output logic [TAG_BITS-1:0]          next_tag[REGIONS],
    // A request has ended.
    output logic                         finish_valid,
    input  logic                         finish_ready,
    output logic [TAG_BITS-1:0]          finish_tag,
    output logic [$clog2(REGIONS)-1:0]   finish_region,
    output finish_t                      finish,
    // The regions' control (module region). `grant` starts the region it names.
    output logic [REGIONS-1:0]           region_start,
    output logic [127:0]                 region_params,
    output logic [31:0]                  region_timeout,
    output logic                         region_bound,
    output logic [REGIONS-1:0]           region_decouple,
    input  logic [REGIONS-1:0]           region_idle,
    input  logic [REGIONS-1:0]           region_done,
    input  logic [REGIONS-1:0]           region_failed,
    input  logic [REGIONS-1:0][1:0]      region_code,
    input  logic [31:0]                  region_cycles[REGIONS],
    // Board memory and configuration port (fn_reconfig).
    output axi_read_t                    axi_read,
    input  axi_read_reply_t              axi_read_reply,
    output configuration_t               configuration,
    input  logic                         configuration_ready,
    // Statistics (fn_stats).
    input  logic [$clog2(FUNCTIONS)-1:0] read_function,
    output logic [31:0]                  calls,
    output logic [31:0]                  failures,
    output logic [31:0]                  loads,
    output logic [47:0]                  cycles,
    // For each region: loads, and busy cycles of its kernels. They wrap around. And of the image
    // that it holds, the checksum of its header.
    output logic [31:0]                  region_loads[REGIONS],
    output logic [63:0]                  region_busy[REGIONS],
    output logic [31:0]                  region_image[REGIONS]
);

  localparam int RegionBits = $clog2(REGIONS);
  localparam int FunctionBits = $clog2(FUNCTIONS);

  typedef enum logic [2:0] {
    Free,
    Unloaded,   // waits for the controller
    Loading,
    Ready,      // waits for its start
    Running,
    Over        // waits until its finish is accepted
  } region_state_t;

  logic                                 own_clk;  // gated while no state changes
  // Packed, all regions' in one vector: arrays written by loops would cost a simulator a flag for
  // each element.
  region_state_t [REGIONS-1:0]          state;
  logic [REGIONS-1:0][TAG_BITS-1:0]     tag;
  logic [REGIONS-1:0][FunctionBits-1:0] fn;
  logic [REGIONS-1:0]                   was_loaded, was_killed;
  load_result_t [REGIONS-1:0]           load_result;
  logic [REGIONS-1:0][1:0]              codes;
  logic [REGIONS-1:0][31:0]             took, count_loads, images_held;
  logic [REGIONS-1:0][63:0]             count_busy;

  // The lowest region of a set.
  function automatic logic [RegionBits-1:0] lowest(input logic [REGIONS-1:0] set);
    lowest = '0;
    for (int r = REGIONS - 1; r >= 0; r--) if (set[r]) lowest = RegionBits'(r);
  endfunction

  logic [REGIONS-1:0] unloaded, loading, ready, over;

  always_comb begin
    for (int r = 0; r < REGIONS; r++) begin
      unloaded[r] = state[r] == Unloaded;
      loading[r]  = state[r] == Loading;
      ready[r]    = state[r] == Ready && region_idle[r];
      over[r]     = state[r] == Over;
    end
  end

  // The operands of a request wait under its tag. They are wide and not time-critical: block RAM.
  // No word is read in the cycle in which it is written, because no region has been selected then.

  (* ram_style = "block", no_rw_check = 1 *) logic [31:0]  images[1<<TAG_BITS];
  (* ram_style = "block", no_rw_check = 1 *) logic [160:0] settings[1<<TAG_BITS];

  always_ff @(posedge own_clk) begin
    if (request_valid && request_ready) begin
      images[request_tag]   <= request_call.image;
      settings[request_tag] <= {request_call.bound, request_call.timeout, request_call.params};
    end
  end

  logic                    run_valid, run_load;
  logic [RegionBits-1:0]   run_region;
  logic [FunctionBits-1:0] run_function;
  logic [TAG_BITS-1:0]     run_tag;
  logic [REGIONS-1:0]      freed, lost, busy;
  logic [$clog2(QUEUE+1)-1:0] waiting;
  logic [REGIONS-1:0]      queued_valid;
  logic [TAG_BITS-1:0]     queued_tag[REGIONS];
  logic                    unused_signals;

  assign unused_signals = &{1'b0, busy, waiting};

  always_comb begin
    for (int r = 0; r < REGIONS; r++) begin
      next_valid[r] = state[r] inside {Unloaded, Loading, Ready} || queued_valid[r];
      next_tag[r]   = state[r] inside {Unloaded, Loading, Ready} ? tag[r] : queued_tag[r];
    end
  end

  fn_scheduler #(
      .REGIONS  (REGIONS),
      .QUEUE    (QUEUE),
      .FUNCTIONS(FUNCTIONS),
      .TAG_BITS (TAG_BITS),
      .SHORTEST (SHORTEST)
  ) u_scheduler (
      .clk,
      .rst,
      .policy     (scheduling.policy),
      .patience   (scheduling.patience),
      .load_cost  (scheduling.load_cost),
      .request_valid,
      .request_ready,
      .request_function,
      .request_tag,
      .request_cost(request_call.cost),
      .request_regions(request_call.regions[REGIONS-1:0]),
      .run_valid,
      .run_ready  (1'b1),
      .run_region,
      .run_function,
      .run_tag,
      .run_load,
      .region_free(freed),
      .region_lost(lost),
      .forget,
      .forget_function,
      .region_busy(busy),
      .next_valid (queued_valid),
      .next_tag   (queued_tag),
      .waiting
  );

  // Loads, one after another. The image's address is read from memory in the cycle before the
  // request.

  logic                  load_requested, load_ready, loaded, swap;
  logic [RegionBits-1:0] load_region, swap_region;
  logic [31:0]           load_address, load_checksum;
  load_result_t          result;

  always_ff @(posedge own_clk) begin
    if (rst) load_requested <= 1'b0;
    else if (load_requested && load_ready) load_requested <= 1'b0;
    else if (!load_requested && loading == '0 && unloaded != '0) load_requested <= 1'b1;
  end

  always_ff @(posedge own_clk) begin
    if (!load_requested && unloaded != '0) begin
      load_region  <= lowest(unloaded);
      load_address <= images[tag[lowest(unloaded)]];
    end
  end

  fn_reconfig #(
      .REGIONS  (REGIONS),
      .SHELL    (SHELL),
      .DATA     (DATA),
      .MAX_BYTES(MAX_BYTES)
  ) u_reconfig (
      .clk,
      .rst,
      .load_valid(load_requested),
      .load_ready,
      .load_region,
      .load_address,
      .done      (loaded),
      .result,
      .kernel    (configuration.swap_kernel),
      .checksum  (load_checksum),
      .decouple  (region_decouple),
      .axi_read,
      .axi_read_reply,
      .icap_valid (configuration.valid),
      .icap_ready (configuration_ready),
      .icap_data  (configuration.data),
      .icap_region(swap_region)
  );

  assign swap = loaded && result == LoadOk;
  assign configuration.swap   = swap;
  assign configuration.region = 8'(swap_region);

  // Starts, one every two cycles.

  logic starting;

  always_ff @(posedge own_clk) begin
    if (rst || starting) starting <= 1'b0;
    else starting <= ready != '0;
  end

  always_ff @(posedge own_clk) begin
    if (ready != '0) begin
      grant_region <= lowest(ready);
      grant_tag    <= tag[lowest(ready)];
      {region_bound, region_timeout, region_params} <= settings[tag[lowest(ready)]];
    end
  end

  assign grant = starting;

  always_comb begin
    region_start = '0;
    region_start[grant_region] = starting;
  end

  // Ends.

  logic                  stats_ready, finished;
  logic [RegionBits-1:0] ended;

  assign ended         = lowest(over);
  assign finish_valid  = over != '0 && stats_ready;
  assign finished      = finish_valid && finish_ready;
  assign finish_tag    = tag[ended];
  assign finish_region = ended;
  assign finish.killed = was_killed[ended];
  assign finish.code   = codes[ended];
  assign finish.load   = load_result[ended];
  assign finish.loaded = was_loaded[ended];
  assign finish.cycles = took[ended];

  always_comb begin
    freed = '0;
    lost  = '0;
    freed[ended] = finished;
    lost[ended]  = finished && finish.load != LoadOk;
  end

  fn_stats #(
      .FUNCTIONS(FUNCTIONS)
  ) u_stats (
      .clk,
      .rst,
      .event_valid   (finished),
      .event_ready   (stats_ready),
      .event_function(fn[ended]),
      .event_failed  (finish.killed || finish.code != '0 || finish.load != LoadOk),
      .event_loaded  (finish.loaded),
      .event_cycles  (finish.cycles),
      .read_function,
      .calls,
      .failures,
      .loads,
      .cycles
  );

  always_ff @(posedge own_clk) begin
    for (int r = 0; r < REGIONS; r++) begin
      if (rst) begin
        count_loads[r] <= '0;
        count_busy[r]  <= '0;
      end else begin
        if (swap && swap_region == RegionBits'(r)) count_loads[r] <= count_loads[r] + 1'b1;
        if (state[r] == Running) count_busy[r] <= count_busy[r] + 1'b1;
      end
      if (swap && swap_region == RegionBits'(r)) images_held[r] <= load_checksum;
    end
  end

  for (genvar r = 0; r < REGIONS; r++) begin : g_count
    assign region_loads[r] = count_loads[r];
    assign region_busy[r]  = count_busy[r];
    assign region_image[r] = images_held[r];
  end

  // The states of the regions.

  always_ff @(posedge own_clk) begin
    for (int r = 0; r < REGIONS; r++) begin
      if (rst) begin
        state[r] <= Free;
      end else begin
        unique case (state[r])
          Free:     if (run_valid && run_region == RegionBits'(r)) state[r] <= run_load ? Unloaded : Ready;
          Unloaded: if (load_requested && load_ready && load_region == RegionBits'(r)) state[r] <= Loading;
          Loading:  if (loaded) state[r] <= result == LoadOk ? Ready : Over;
          Ready:    if (starting && grant_region == RegionBits'(r)) state[r] <= Running;
          Running:  if (region_done[r]) state[r] <= Over;
          default:  if (finished && ended == RegionBits'(r)) state[r] <= Free;
        endcase
      end
    end
  end

  always_ff @(posedge own_clk) begin
    for (int r = 0; r < REGIONS; r++) begin
      unique case (state[r])
        Free: if (run_valid && run_region == RegionBits'(r)) begin
          tag[r]         <= run_tag;
          fn[r]          <= run_function;
          was_loaded[r]  <= run_load;
          was_killed[r]  <= 1'b0;
          load_result[r] <= LoadOk;
          codes[r]       <= '0;
          took[r]        <= '0;
        end
        Loading: if (loaded) load_result[r] <= result;
        Running: if (region_done[r]) begin
          was_killed[r] <= region_failed[r];
          codes[r]      <= region_failed[r] ? '0 : region_code[r];
          took[r]       <= region_cycles[r];
        end
        default: ;
      endcase
    end
  end

  logic [REGIONS-1:0] works;
  always_comb for (int r = 0; r < REGIONS; r++) works[r] = state[r] != Free;
  clock_gate u_gate (
      .clk,
      .wake (rst || request_valid || run_valid || works != '0 || starting || load_requested || !stats_ready || loaded),
      .gated(own_clk)
  );

`ifndef SYNTHESIS
  one_start : assert property (@(posedge clk) disable iff (rst) $onehot0(region_start));
  starts_in_idle_regions : assert property (@(posedge clk) disable iff (rst)
      (region_start & ~region_idle) == '0);
  one_load : assert property (@(posedge clk) disable iff (rst) $onehot0(loading));
  runs_in_free_regions : assert property (@(posedge clk) disable iff (rst)
      run_valid |-> state[run_region] == Free);
  for (genvar r = 0; r < REGIONS; r++) begin : g_ends
    runs_end_once : assert property (@(posedge clk) disable iff (rst)
        region_done[r] |-> state[r] == Running);
  end
  finishes_are_over : assert property (@(posedge clk) disable iff (rst)
      finish_valid |-> state[ended] == Over);
`endif

endmodule
