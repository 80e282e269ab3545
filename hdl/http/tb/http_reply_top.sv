// http_reply for its bench, its types as numbers.
module http_reply_top
  import http_pkg::*;
  import functions_pkg::*;
#(
    localparam int REGIONS = 4,
    localparam int METRICS = 8 + 2 * REGIONS
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic [4:0]             state,
    input  logic [5:0]             id_bytes,
    input  logic [4:0]             reply,
    input  logic [4:0]             ending,
    input  logic                   with_length,
    input  logic                   with_body,
    input  logic                   writer_start,
    input  logic [63:0]            id_data,
    input  logic                   find_ready,
    output logic [NUMBER_BITS-1:0] slot_of,
    output logic                   slot_word,
    input  logic                   slot_used,
    input  logic [63:0]            slot_name,
    input  logic [63:0]            metrics[METRICS],
    output logic [4:0]             next,
    output logic [2:0]             word,
    output logic                   valid,
    output logic [63:0]            data,
    output logic [3:0]             length
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
