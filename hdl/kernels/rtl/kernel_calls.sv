// A synthesized kernel's calls ↔ its ports.
//
// A call completes in the cycle in which `port_ready` is high; the word of a load is valid in that
// cycle.
module kernel_calls
  import kernel_calls_pkg::*;
(
    input  call_t       call,
    input  logic [31:0] call_command,
    input  logic [31:0] call_bytes,
    input  logic [63:0] call_data,
    output logic        port_ready,
    output logic [63:0] port_word,
    // The kernel's ports.
    input  logic        start,
    output logic        done,
    output logic [7:0]  status,
    output logic        print_valid,
    input  logic        print_ready,
    output logic [7:0]  print_data,
    output logic        mem_valid,
    input  logic        mem_ready,
    output logic [31:0] mem_address,
    output logic [7:0]  mem_strobe,
    output logic [63:0] mem_data,
    input  logic [63:0] mem_word
);

  always_comb begin
    case (call)
      CallStart: port_ready = start;
      CallText:  port_ready = print_ready;
      CallLoad, CallStore: port_ready = mem_ready;
      default:   port_ready = 1'b1;
    endcase
  end

  assign done        = call == CallEnd;
  assign status      = call_command[7:0];
  assign print_valid = call == CallText;
  assign print_data  = call_command[7:0];
  assign mem_valid   = call == CallLoad || call == CallStore;
  assign mem_address = call_command;
  assign mem_strobe  = call == CallStore ? call_bytes[7:0] : '0;
  assign mem_data    = call_data;
  assign port_word   = mem_word;

endmodule
