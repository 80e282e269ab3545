// Statistics of each function: calls, failed calls, loads, and cycles of its runs.
//
// After a reset the counters are cleared one per cycle, and events wait. Counters wrap around.
//
// Parameters: FUNCTIONS. Latency: 1 cycle from `read_function` to the counters. Throughput:
// one event per 2 cycles.
module fn_stats #(
    parameter int FUNCTIONS = 64
) (
    input  logic                         clk,
    input  logic                         rst,
    // The end of a call.
    input  logic                         event_valid,
    output logic                         event_ready,
    input  logic [$clog2(FUNCTIONS)-1:0] event_function,
    input  logic                         event_failed,
    input  logic                         event_loaded,   // its region was loaded for it
    input  logic [31:0]                  event_cycles,
    // Reading.
    input  logic [$clog2(FUNCTIONS)-1:0] read_function,
    output logic [31:0]                  calls,
    output logic [31:0]                  failures,
    output logic [31:0]                  loads,
    output logic [47:0]                  cycles
);

  localparam int FunctionBits = $clog2(FUNCTIONS);

  typedef struct packed {
    logic [31:0] calls;
    logic [31:0] failures;
    logic [31:0] loads;
    logic [47:0] cycles;
  } counters_t;

  typedef enum logic [1:0] {
    Clear,
    Idle,
    Add
  } state_t;

  // Two copies, so that each has one reader.
  counters_t               totals[FUNCTIONS];
  counters_t               shown[FUNCTIONS];
  counters_t               old, sum, out;
  state_t                  state;
  logic [FunctionBits-1:0] at;
  logic                    failed, loaded;
  logic [31:0]             took;

  assign event_ready = state == Idle;

  always_comb begin
    sum = '0;
    if (state == Add) begin
      sum.calls    = old.calls + 1'b1;
      sum.failures = old.failures + 32'(failed);
      sum.loads    = old.loads + 32'(loaded);
      sum.cycles   = old.cycles + 48'(took);
    end
  end

  always_ff @(posedge clk) begin
    if (state != Idle) begin
      totals[at] <= sum;
      shown[at]  <= sum;
    end
    old <= totals[event_function];
    out <= shown[read_function];
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= Clear;
      at    <= '0;
    end else begin
      unique case (state)
        Clear: begin
          at <= at + 1'b1;
          if (at == FunctionBits'(FUNCTIONS - 1)) state <= Idle;
        end
        Idle: if (event_valid) begin
          state  <= Add;
          at     <= event_function;
          failed <= event_failed;
          loaded <= event_loaded;
          took   <= event_cycles;
        end
        default: state <= Idle;
      endcase
    end
  end

  assign calls    = out.calls;
  assign failures = out.failures;
  assign loads    = out.loads;
  assign cycles   = out.cycles;

`ifndef SYNTHESIS
  counts_the_event : assert property (@(posedge clk) disable iff (rst)
      state == Add |-> at == $past(event_function));
  counts_once : assert property (@(posedge clk) disable iff (rst) state == Add |=> state == Idle);
`endif

endmodule
