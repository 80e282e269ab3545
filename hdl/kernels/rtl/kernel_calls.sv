// A synthesized kernel's calls ↔ its ports.
//
// A call completes in the cycle in which `step` is high, which requires `port_ready`; the word of a
// load is valid in the next step.
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
    input  logic        readers_ready,
    output logic        port_ready,
    output logic [63:0] port_word,
    // The kernel's ports.
`include "kernel_call_ports.svh"
`include "kernel_word_ports.svh"
);

  logic accepts, loading, keeps, kept;
  logic [63:0] kept_word;

  always_comb begin
    case (call)
      CallStart: accepts = start;
      CallText:  accepts = print_ready;
      CallLoad, CallStore: accepts = mem_ready;
      CallFence: accepts = fenced;
      default:   accepts = 1'b1;
    endcase
  end

  assign port_ready = accepts && readers_ready && (!loading || mem_answer);

  // A fence empties the cache, and with it the word of a load in the step before.
  assign keeps  = call == CallFence && readers_ready && loading && mem_answer;
  assign mem_go = step || keeps;

  always_ff @(posedge clk) begin
    if (keeps) begin
      loading   <= 1'b0;
      kept      <= 1'b1;
      kept_word <= mem_word;
    end
    if (step) begin
      loading <= call == CallLoad;
      kept    <= 1'b0;
    end
    if (rst) begin
      loading <= 1'b0;
      kept    <= 1'b0;
    end
  end

  assign done        = call == CallEnd && step;
  assign status      = call_command[7:0];
  assign print_valid = call == CallText && readers_ready && (!loading || mem_answer);
  assign print_data  = call_command[7:0];
  assign fence       = call == CallFence && readers_ready && !loading;
  assign mem_valid   = call == CallLoad || call == CallStore;
  assign mem_address = call_command;
  assign mem_strobe  = call == CallStore ? call_bytes[7:0] : '0;
  assign mem_data    = call_data;
  assign port_word   = kept ? kept_word : mem_word;

endmodule
