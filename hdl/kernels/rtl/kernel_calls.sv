// A synthesized kernel's calls ↔ its ports.
//
// A call is made in the cycle in which `step` is high, which requires `port_ready`. Accesses to memory
// wait in a queue; the word of a load is there in the third step after it. After any other call,
// the next step waits for its completion; a step with the call `CallStart`, which is the first one and
// that after the end, waits for the start. `port_ready` and `port_word` come from registers, so that
// neither the memory's answers nor the kernel's own state are on the path to the kernel's enables.
//
// Latency of a load: three cycles, if the memory answers in the cycle after a request. Throughput: an
// access per cycle.
module kernel_calls
  import kernel_calls_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        step,
    input  call_t       call,
    input  logic [31:0] call_command,
    input  logic [31:0] call_bytes,
    input  logic [63:0] call_data,
    output logic        port_ready,
    output logic [63:0] port_word,
    // The kernel's ports.
`include "kernel_call_ports.svh"
`include "kernel_word_ports.svh"
);

  localparam int LoadSteps = 3;

  typedef struct packed {
    logic [31:0] address;
    logic [7:0]  strobe;
    logic [63:0] data;
  } request_t;

  // The queues of requests, and of words that the kernel has not read: the first entry is the next
  // one.
  request_t    requests[2];
  request_t    request;
  logic [63:0] words[2];
  logic [1:0]  request_count, word_count, request_count_next, word_count_next;
  logic        asks, accepted, loading, answered, read, drained;
  // By step before the current one: whether it had a load.
  logic [LoadSteps-1:0] loads, loads_next;
  // The call that is not complete, other than accesses to memory; at first, the start.
  call_t       waiting, waiting_next;
  logic [7:0]  command;
  logic        complete;

  assign asks     = step && (call == CallLoad || call == CallStore);
  assign request  = '{call_command, call == CallStore ? call_bytes[7:0] : '0, call_data};
  assign accepted = mem_valid && mem_ready && mem_go;
  assign answered = loading && mem_answer && mem_go;
  assign read     = step && loads[LoadSteps-1];
  assign drained  = request_count == '0 && !loading;

  assign request_count_next = request_count + 2'(asks) - 2'(accepted);
  assign word_count_next    = word_count + 2'(answered) - 2'(read);
  assign loads_next         = step ? {loads[LoadSteps-2:0], call == CallLoad} : loads;

  always_comb begin
    case (waiting)
      CallStart: complete = start;
      CallText:  complete = print_ready;
      CallFence: complete = fenced;
      CallEnd:   complete = drained;
      default:   complete = 1'b1;
    endcase
    waiting_next = waiting;
    if (complete) waiting_next = waiting == CallEnd ? CallStart : CallNone;
    if (step && call inside {CallText, CallFence, CallEnd}) waiting_next = call;
  end

  always_ff @(posedge clk) begin
    request_count <= request_count_next;
    word_count    <= word_count_next;
    loads         <= loads_next;
    waiting       <= waiting_next;
    if (accepted || request_count == '0) requests[0] <= request_count[1] ? requests[1] : request;
    if (!request_count[1]) requests[1] <= request;
    if (read || word_count == '0) words[0] <= word_count[1] ? words[1] : mem_word;
    if (!word_count[1]) words[1] <= mem_word;
    if (accepted || answered) loading <= accepted && mem_strobe == '0;
    if (step) command <= call_command[7:0];
    // Of the next step: a request has a place, the word that it reads is there, no call waits.
    port_ready <= !request_count_next[1] && (!loads_next[LoadSteps-1] || word_count_next != '0) &&
        waiting_next == CallNone;
    if (rst) begin
      request_count <= '0;
      word_count    <= '0;
      loads         <= '0;
      waiting       <= CallStart;
      loading       <= 1'b0;
      port_ready    <= 1'b0;
    end
  end

  assign done        = waiting == CallEnd && complete;
  assign status      = command;
  assign print_valid = waiting == CallText;
  assign print_data  = command;
  assign fence       = waiting == CallFence && drained;
  assign mem_valid   = request_count != '0;
  assign mem_address = requests[0].address;
  assign mem_strobe  = requests[0].strobe;
  assign mem_data    = requests[0].data;
  assign mem_go      = !word_count[1];
  assign port_word   = words[0];

`ifndef SYNTHESIS
  steps_when_ready : assert property (@(posedge clk) disable iff (rst) step |-> port_ready);
  requests_have_place : assert property (@(posedge clk) disable iff (rst)
      asks |-> !request_count[1]);
  two_requests : assert property (@(posedge clk) disable iff (rst) request_count <= 2'd2);
  two_words : assert property (@(posedge clk) disable iff (rst) word_count <= 2'd2);
  words_were_loaded : assert property (@(posedge clk) disable iff (rst) read |-> word_count != '0);
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      mem_valid && !(mem_ready && mem_go) |=>
      mem_valid && $stable({mem_address, mem_strobe, mem_data}));
  answers_were_requested : assert property (@(posedge clk) disable iff (rst)
      answered |-> !word_count[1]);
  // Text, a fence and the end wait for their completion.
  one_call : assert property (@(posedge clk) disable iff (rst) waiting != CallNone |-> !step);
`endif

endmodule
