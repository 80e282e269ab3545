// tcp_rx for its bench, after the parser; the bench supplies the lookup's result.
module tcp_rx_top
  import net_pkg::*;
#(
    localparam int RING_BITS = 15,
    localparam int S = 4
) (
`include "net_rx_ports.svh"
    output logic                   write,
    output logic [S+RING_BITS-4:0] write_address,
    output logic [7:0]             write_keep,
    input  logic                   finds,
    input  logic [S-1:0]           finds_index,
`include "tcp_rx_stream_ports.svh"
    output logic                   desc_valid,
    output logic                   desc_kept
);

  logic beat_valid, done, query, queried, hit;
  beat_t beat;
  logic [10:0] beat_index;
  head_t head, verdict_head;
  logic [13:0] payload_start;
  frame_kind_t verdict;
  logic [S-1:0] found_index, index;

  always_ff @(posedge clk) begin
    queried <= query;
    if (query) found_index <= finds_index;
    if (queried) begin
      index <= found_index;
      hit   <= finds;
    end
  end

  // Outputs that the bench ignores.
  logic [63:0] write_data, query_key;
  logic arrived, stranger, desc_hit, desc_gap, desc_fin, desc_exact, desc_inside, desc_near, unused;
  head_t desc_head;
  logic [S-1:0] desc_index;
  assign unused = &{1'b0, write_data, query_key, arrived, stranger, desc_head, desc_hit, desc_index, desc_gap, desc_fin, desc_exact,
      desc_inside, desc_near};

  net_parse u_parse (.*);

  tcp_rx #(
      .SESSIONS (1 << S),
      .RING_BITS(RING_BITS)
  ) u_rx (
      .desc_ready(1'b1),
      .*
  );

endmodule
