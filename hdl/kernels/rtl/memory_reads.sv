// The read channels of an AXI4 port for two masters: a kernel's cache, and the lines that it reads
// ahead. The cache comes first. Bursts of both return in the order of their requests.
//
// Throughput: a request per cycle; latency: one cycle. Up to BURSTS bursts are outstanding.
module memory_reads #(
    parameter int BURSTS = 8
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        cache_arvalid,
    output logic        cache_arready,
    input  logic [31:0] cache_araddr,
    output logic        cache_rvalid,
    input  logic        line_valid,
    output logic        line_ready,
    input  logic [31:0] fetch_address,
    output logic        fetched_valid,
    output logic        idle,           // no burst is outstanding
    // The port, whose words go to both masters.
    output logic        arvalid,
    input  logic        arready,
    output logic [31:0] araddr,
    input  logic        rvalid,
    input  logic        rlast
);

  localparam int Bits = $clog2(BURSTS);

  logic [BURSTS-1:0] owners;        // whether a burst is the cache's
  logic [Bits-1:0]   first, next;
  logic [Bits:0]     count;
  logic              free;

  assign free          = (!arvalid || arready) && count != (Bits + 1)'(BURSTS);
  assign cache_arready = free;
  assign line_ready    = free && !cache_arvalid;
  assign cache_rvalid  = rvalid && owners[first];
  assign fetched_valid = rvalid && !owners[first];
  assign idle          = count == '0;

  always_ff @(posedge clk) begin
    if (arready) arvalid <= 1'b0;
    if (free && (cache_arvalid || line_valid)) begin
      arvalid      <= 1'b1;
      araddr       <= cache_arvalid ? cache_araddr : fetch_address;
      owners[next] <= cache_arvalid;
      next         <= next + 1'b1;
    end
    if (rvalid && rlast) first <= first + 1'b1;
    count <= count + (Bits + 1)'(free && (cache_arvalid || line_valid)) - (Bits + 1)'(rvalid && rlast);
    if (rst) begin
      arvalid <= 1'b0;
      first   <= '0;
      next    <= '0;
      count   <= '0;
    end
  end

`ifndef SYNTHESIS
  bursts_are_bounded : assert property (@(posedge clk) disable iff (rst)
      count <= (Bits + 1)'(BURSTS));
  count_is_distance : assert property (@(posedge clk) disable iff (rst)
      Bits'(count) == next - first);
  words_were_requested : assert property (@(posedge clk) disable iff (rst) rvalid |-> count != '0);
  requests_stay : assert property (@(posedge clk) disable iff (rst)
      arvalid && !arready |=> arvalid && $stable(araddr));
  one_request : assert property (@(posedge clk) disable iff (rst)
      !(cache_arvalid && cache_arready && line_valid && line_ready));
`endif

endmodule
