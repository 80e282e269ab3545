// http_reply for its bench, its types as numbers.
module http_reply_top
  import http_pkg::*;
  import functions_pkg::*;
#(
    localparam int REGIONS = 4,
    localparam int METRICS = 8 + 2 * REGIONS
) (
    input  logic                   clk,
    input  logic [4:0]             state,
    input  logic                   rst,
    input  logic [4:0]             reply,
    input  logic [5:0]             id_bytes,
    input  logic [4:0]             ending,
    input  logic                   with_body,
    input  logic                   with_length,
    input  logic [63:0]            id_data,
    input  logic                   writer_start,
    input  logic [63:0]            metrics[METRICS],
    input  logic                   find_ready,
    input  logic                   slot_used,
    output logic [NUMBER_BITS-1:0] slot_of,
    input  logic [63:0]            slot_name,
    output logic                   slot_word,
    output logic [2:0]             word,
    output logic [4:0]             next,
    output logic [3:0]             length,
    output logic                   valid,
    output logic [63:0]            data
);
  request_t c;
  state_t next_state;

  always_comb begin
    c = '0;
    c.id_bytes = id_bytes;
  end
  http_reply #(
      .REGIONS(REGIONS)
  ) u_reply (
      .state (state_t'(state)),
      .text  (text_t'(reply)),
      .ending(text_t'(ending)),
      .next  (next_state),
      .*
  );
  assign next = next_state;
endmodule
