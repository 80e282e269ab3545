// Scheduler: selects the next waiting request and its region,
// and whether the region must be loaded first.
//
// Policies (fn_pkg::policy_t, may change at any time):
//   Fifo      the oldest request that may run in an idle region, in the region that has its
//             function, otherwise in the least recently used one.
//   Affinity  the oldest request whose function is in an idle region; if there is none, the oldest
//             whose function is in no region. A request waits for a busy region that has its
//             function instead of loading a second copy, which minimizes reconfigurations.
//   Shortest  the request with the lowest cost, including a necessary load.
// A request that has been overtaken `patience` times has priority under any policy, as under Fifo;
// with a patience of 0 this applies to all requests. Under Affinity, such a request still waits for
// a busy region that has its function, because a second copy would cost another function its
// region: only requests of its own function precede it.
//
// A request may be limited to some regions, because its function's image is made for these. It then
// waits for one of them, under any policy, and the others are given to younger requests meanwhile.
//
// Requests are in a queue in the order of arrival. A decision examines one of them per cycle.
//
// Parameters: REGIONS; QUEUE, requests that can wait; FUNCTIONS; TAG_BITS, of the tag returned with
// a decision; SHORTEST, whether that policy exists; otherwise Affinity replaces it.
// Latency: 4 cycles from a request to its decision if it is alone and a region is idle, or from the
// end of a run to the next decision if all requests wait for the function of its region. Throughput:
// a decision takes 2 cycles plus one for each examined request.
module fn_scheduler
  import fn_pkg::*;
#(
    parameter int REGIONS = 4,
    parameter int QUEUE = 16,
    parameter int FUNCTIONS = 64,
    parameter int TAG_BITS = 8,
    parameter bit SHORTEST = 1
) (
`include "fn_scheduler_ports.svh"
    input  logic [$clog2(FUNCTIONS)-1:0] request_function,
    input  logic [TAG_BITS-1:0]          request_tag,
    input  logic [31:0]                  request_cost,  // expected cycles of its run
    input  logic [REGIONS-1:0]           request_regions,  // in which it may run; none: in any
    // Decisions.
    output logic                         run_valid,
    input  logic                         run_ready,
    output logic [$clog2(REGIONS)-1:0]   run_region,
    output logic [$clog2(FUNCTIONS)-1:0] run_function,
    output logic [TAG_BITS-1:0]          run_tag,
    output logic                         run_load,      // the region must be loaded first
    // Changes of regions.
    input  logic [REGIONS-1:0]           region_free,   // pulse: its run has ended
    input  logic [REGIONS-1:0]           region_lost,   // pulse: its function is lost
    input  logic                         forget,        // pulse: copies of this function in regions
                                                        // are outdated
    input  logic [$clog2(FUNCTIONS)-1:0] forget_function,
    output logic [REGIONS-1:0]           region_busy,
    // For each region, the oldest request that waits for its function: the expected next one.
    // A cycle late.
    output logic [REGIONS-1:0]           next_valid,
    output logic [TAG_BITS-1:0]          next_tag[REGIONS],
    output logic [$clog2(QUEUE+1)-1:0]   waiting
);

  logic own_clk, queue_clk;  // gated while no state changes

  localparam int RegionBits = $clog2(REGIONS);
  localparam int FunctionBits = $clog2(FUNCTIONS);
  localparam int CountBits = $clog2(QUEUE + 1);

  policy_t by;
  assign by = policy == Shortest && !SHORTEST ? Affinity : policy;

  typedef struct packed {
    logic [FunctionBits-1:0] fn;
    logic [TAG_BITS-1:0]     tag;
    logic [7:0]              overtaken;
    logic                    old;        // its function has a new image
  } request_t;

  // Of the examined request: only the overtakings of the oldest count.
  typedef struct packed {
    logic [FunctionBits-1:0] fn;
    logic [TAG_BITS-1:0]     tag;
    logic                    old;
  } looked_t;

  typedef enum logic [1:0] {
    Wait,
    Look,     // examines one request after another
    Decide,
    Run       // a decision is offered
  } state_t;

  state_t                  state;
  request_t                queue[QUEUE];      // oldest first
  looked_t                 next, seen;        // the examined request, read from the queue a cycle
                                              // before
  logic                    first_due;         // the oldest has been overtaken often enough
  logic [31:0]             costs[1<<TAG_BITS];  // by tag, because entries of the queue move
  logic [31:0]             seen_cost;
  logic [REGIONS-1:0]      limits[1<<TAG_BITS];  // regions in which a request may run, by tag
  logic [REGIONS-1:0]      seen_may, best_may;
  logic [CountBits-1:0]    at_next;
  logic [FunctionBits-1:0] best_function;
  logic [TAG_BITS-1:0]     best_tag;
  logic [CountBits-1:0]    at, best_at;
  logic                    best_found, best_old, seen_better, look_ends, restarts, take, put;

  // All requests wait for busy regions, as found by the last examination; since the present one has
  // begun, this may have changed.
  logic                    all_wait, may_load;

  logic [FunctionBits-1:0] loaded[REGIONS];
  logic [REGIONS-1:0]      loaded_valid;
  logic [REGIONS-1:0][RegionBits-1:0] rank;  // 0: most recently used

  // The regions of a function.

  function automatic logic [REGIONS-1:0] holders(input logic [FunctionBits-1:0] fn);
    for (int r = 0; r < REGIONS; r++) holders[r] = loaded_valid[r] && loaded[r] == fn;
  endfunction

  // An image loaded for a request from before a change is not a copy of the present function.
  function automatic logic outdated(input logic old, input logic [FunctionBits-1:0] fn);
    return old || (forget && forget_function == fn);
  endfunction

  logic [REGIONS-1:0] seen_in, best_in;
  logic [REGIONS-1:0] look_busy;                 // state at the start of the examination, the same
                                                 // for all requests
  logic               seen_ready, seen_elsewhere;   // in an idle region; only in busy ones
  logic               seen_runs;                 // an idle region may run it

  assign seen_in        = holders(seen.fn) & seen_may;
  assign seen_ready     = |(seen_in & ~look_busy);
  assign seen_elsewhere = |seen_in && !seen_ready;
  assign seen_runs      = |(seen_may & ~look_busy);
  assign best_in        = holders(best_function) & best_may;

  // Examination. `urgent`: the request has priority, whatever the policy.

  logic        urgent, in_order, waits, best_ready;
  logic [31:0] seen_time, best_time, seen_total;
  logic        carry;

  assign waits               = by == Affinity && seen_elsewhere && patience != '0;
  assign in_order            = by == Fifo || patience == '0;
  assign urgent              = seen_runs && (in_order || (at == '0 && first_due && !waits));
  assign {carry, seen_total} = seen_cost + load_cost;
  assign seen_time           = seen_ready ? seen_cost : carry ? '1 : seen_total;

  always_comb begin
    seen_better = 1'b0;
    unique case (by)
      Shortest: seen_better = SHORTEST && seen_runs && (!best_found || seen_time < best_time);
      default:  seen_better = seen_ready ? !best_ready : seen_runs && !best_found && !seen_elsewhere;
    endcase
    if (urgent) seen_better = 1'b1;
    look_ends = at + 1'b1 >= waiting || urgent || (by == Affinity && seen_ready);
  end

  // Decision: the region that has the function, otherwise an empty one, otherwise the least recently
  // used one. A region that has become idle since the start of the examination is not loaded: an
  // older request may wait for it.

  logic [RegionBits-1:0] chosen;
  logic                  chosen_load;
  logic [REGIONS-1:0]    candidates, wins;

  always_comb begin
    candidates  = best_in & ~region_busy;
    chosen_load = candidates == '0;
    if (chosen_load) candidates = ~loaded_valid & best_may & ~look_busy;
    if (candidates == '0) candidates = best_may & ~look_busy;
    // Ranks are distinct, so that exactly one region is the best.
    for (int r = 0; r < REGIONS; r++) begin
      wins[r] = candidates[r];
      for (int o = 0; o < REGIONS; o++) if (candidates[o] && rank[o] > rank[r]) wins[r] = 1'b0;
    end
    chosen = '0;
    for (int r = 0; r < REGIONS; r++) if (wins[r]) chosen = chosen | RegionBits'(r);
  end

  assign take          = state == Decide && best_found;
  assign request_ready = waiting != CountBits'(QUEUE);
  assign put           = request_valid && request_ready;

  always_ff @(posedge own_clk) begin
    if (rst) begin
      state     <= Wait;
      run_valid <= 1'b0;
    end else begin
      unique case (state)
        Wait:   if (waiting != '0 && region_busy != '1) state <= Look;
        Look:   if (look_ends && !restarts) state <= Decide;
        Decide: begin
          state     <= best_found ? Run : Wait;
          run_valid <= best_found;
        end
        default: if (run_ready) begin
          state     <= Wait;
          run_valid <= 1'b0;
        end
      endcase
    end
  end

  // While all requests wait for busy regions, one that becomes idle is considered at once.
  assign restarts = state == Look && region_free != '0 && all_wait;
  assign at_next = state == Look && !restarts ? at + 1'b1 : '0;
  always_comb begin
    next.fn  = queue[at_next[$clog2(QUEUE)-1:0]].fn;
    next.tag = queue[at_next[$clog2(QUEUE)-1:0]].tag;
    next.old = outdated(queue[at_next[$clog2(QUEUE)-1:0]].old, next.fn);
  end

  logic loadable;  // from this cycle on, a request may wait whose function is in no region
  assign loadable = (put && holders(request_function) == '0) || (take && chosen_load) || forget || region_lost != '0;

  always_ff @(posedge own_clk) begin
    if (loadable) may_load <= 1'b1;
    else if (state == Wait) may_load <= 1'b0;
    if (loadable || rst) all_wait <= 1'b0;
    else if (state == Decide && !best_found && !may_load) all_wait <= 1'b1;
  end

  always_ff @(posedge own_clk) begin
    at   <= at_next;
    seen <= next;
    first_due <= queue[0].overtaken >= patience;
    seen_cost <= costs[next.tag];
    seen_may <= limits[next.tag];
    if (put) begin
      costs[request_tag]  <= request_cost;
      limits[request_tag] <= request_regions == '0 ? '1 : request_regions;
    end
    best_old <= outdated(best_old, best_function);
    unique case (state)
      Wait: begin
        best_found <= 1'b0;
        best_ready <= 1'b0;
        look_busy  <= region_busy & ~region_free;
      end
      Look: begin
        if (restarts) begin
          best_found <= 1'b0;
          best_ready <= 1'b0;
          look_busy  <= region_busy & ~region_free;
        end else if (seen_better) begin
          best_function <= seen.fn;
          best_tag      <= seen.tag;
          best_may      <= seen_may;
          best_at       <= at;
          best_time     <= seen_time;
          best_found    <= 1'b1;
          best_ready    <= seen_ready;
          best_old      <= outdated(seen.old, seen.fn);
        end
      end
      Decide: begin
        run_region   <= chosen;
        run_function <= best_function;
        run_tag      <= best_tag;
        run_load     <= chosen_load;
      end
      default: ;
    endcase
  end

  // The queue: requests older than the selected one have been overtaken, younger ones move up. It
  // is large, and has a clock gate of its own.

  always_ff @(posedge own_clk) begin
    if (rst) waiting <= '0;
    else waiting <= waiting + CountBits'(put) - CountBits'(take);
  end

  always_ff @(posedge queue_clk) begin
    if (take || put || forget) for (int i = 0; i < QUEUE; i++) begin
      queue[i].old <= outdated(queue[i].old, queue[i].fn);
      if (take && CountBits'(i) >= best_at) begin
        if (i + 1 < QUEUE) begin
          queue[i]     <= queue[(i+1)%QUEUE];
          queue[i].old <= outdated(queue[(i+1)%QUEUE].old, queue[(i+1)%QUEUE].fn);
        end
      end else if (take && queue[i].overtaken != '1) begin
        queue[i].overtaken <= queue[i].overtaken + 1'b1;
      end
      if (put && CountBits'(i) == waiting - CountBits'(take))
        queue[i] <= '{fn: request_function, tag: request_tag, overtaken: '0, old: outdated(1'b0, request_function)};
    end
  end

  // It changes only after its inputs have.
  logic changes;
  always_ff @(posedge queue_clk) begin
    changes <= take || put || forget || region_lost != '0 || rst;
    if (changes) for (int r = 0; r < REGIONS; r++) begin
      next_valid[r] <= 1'b0;
      for (int i = QUEUE - 1; i >= 0; i--)
        if (CountBits'(i) < waiting && loaded_valid[r] && queue[i].fn == loaded[r]) begin
          next_valid[r] <= !rst;
          next_tag[r]   <= queue[i].tag;
        end
    end
  end

  // The regions.

  always_ff @(posedge own_clk) begin
    if (rst) begin
      region_busy  <= '0;
      loaded_valid <= '0;
      for (int r = 0; r < REGIONS; r++) rank[r] <= RegionBits'(r);
    end else begin
      region_busy  <= region_busy & ~region_free;
      loaded_valid <= loaded_valid & ~region_lost & ~(forget ? holders(forget_function) : '0);
      if (take) begin
        region_busy[chosen]  <= 1'b1;
        loaded_valid[chosen] <= !outdated(best_old && chosen_load, best_function);
        loaded[chosen]       <= best_function;
        for (int r = 0; r < REGIONS; r++) if (rank[r] < rank[chosen]) rank[r] <= rank[r] + 1'b1;
        rank[chosen] <= '0;
      end
    end
  end

  clock_gate u_gate (
      .clk,
      .wake (rst || request_valid || state != Wait || (waiting != '0 && region_busy != '1) ||
             region_free != '0 || region_lost != '0 || forget),
      .gated(own_clk)
  );
  clock_gate u_queue_gate (
      .clk,
      .wake (rst || take || put || forget || region_lost != '0),
      .gated(queue_clk)
  );

`ifndef SYNTHESIS
  // A request runs only in an idle region that it may have.
  in_its_regions : assert property (@(posedge clk) disable iff (rst)
      take |-> best_may[chosen] && !region_busy[chosen]);
  one_region : assert property (@(posedge clk) disable iff (rst) take |-> $onehot(wins));
  queue_is_bounded : assert property (@(posedge clk) disable iff (rst)
      waiting <= CountBits'(QUEUE));
  taken_requests_wait : assert property (@(posedge clk) disable iff (rst)
      take |-> best_at < waiting);
  freed_regions_are_busy : assert property (@(posedge clk) disable iff (rst)
      (region_free & ~region_busy) == '0);
  decisions_stay : assert property (@(posedge clk) disable iff (rst)
      run_valid && !run_ready |=>
      run_valid && $stable({run_region, run_function, run_tag, run_load}));
`endif

endmodule
