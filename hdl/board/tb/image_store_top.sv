// image_store for its bench; its structs signal by signal.
module image_store_top
  import axi_pkg::*;
  import fn_pkg::*;
  import net_pkg::*;
  import functions_pkg::*;
#(
    localparam int RX_RING_BITS = 21,
    localparam int TX_RING_BITS = 21,
    localparam int PATH_BYTES = 64,
    localparam int S = 4
) (
`include "http_server_ports.svh"
    input  logic [31:0]   base,
    input  logic          change_taken,
    input  name_t         change_name,
    input  logic          changed,
    input  logic [5:0]    changed_function,
    input  logic          request_valid,
    output logic          request_ready,
    input  logic [3:0]    request_tag,
    input  logic [5:0]    request_function,
    input  logic [31:0]   request_cost,
    input  logic [31:0]   request_timeout,
    input  logic [31:0]   request_image,
    input  logic [127:0]  request_params,
    output logic          finish_valid,
    input  logic          finish_ready,
    output logic [3:0]    finish_tag,
    output logic          finish_refused,
    output fetch_result_t finish_fetch,
    output logic          e_request_valid,
    input  logic          e_request_ready,
    output logic [3:0]    e_request_tag,
    output logic [5:0]    e_request_function,
    output logic [31:0]   e_request_cost,
    output logic [31:0]   e_request_timeout,
    output logic [31:0]   e_request_image,
    output logic [127:0]  e_request_params,
    input  logic          e_finish_valid,
    output logic          e_finish_ready,
    input  logic [3:0]    e_finish_tag,
    input  logic          e_finish_refused,
`include "axi_write_ports.svh"
    output logic [31:0]   count_fetches,
    output logic [31:0]   count_failures,
`include "client_ports.svh"
);

`include "axi_write_signals.svh"
`include "client_signals.svh"

  call_t request_call, e_request_call;

  assign request_call = '{
    bound:   1'b0,
    regions: '0,
    cost:    request_cost,
    timeout: request_timeout,
    image:   request_image,
    params:  request_params
  };
  assign {e_request_cost, e_request_timeout} = {e_request_call.cost, e_request_call.timeout};
  assign {e_request_image, e_request_params} = {e_request_call.image, e_request_call.params};

  image_store u_store (.*);

endmodule
