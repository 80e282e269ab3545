// Shares one AXI4 write port of board memory between several writers: one burst at a time, in turn.
// The selected writer has the port from its address to its response; the others wait.
// Responses (bresp) go to all.
//
// Parameters: N. Latency: one cycle from an address to its output, one between bursts. Throughput:
// otherwise that of the port.
module axi_writers #(
    parameter int N = 2
) (
    input  logic         clk,
    input  logic         rst,
    // Each writer holds its address and its data until they are accepted, as AXI4 requires.
    input  logic [N-1:0] s_awvalid,
    output logic [N-1:0] s_awready,
    input  logic [31:0]  s_awaddr[N],
    input  logic [ 7:0]  s_awlen [N],
    input  logic [N-1:0] s_wvalid,
    output logic [N-1:0] s_wready,
    input  logic [63:0]  s_wdata [N],
    input  logic [ 7:0]  s_wstrb [N],
    input  logic [N-1:0] s_wlast,
    output logic [N-1:0] s_bvalid,
    input  logic [N-1:0] s_bready,
    // The memory's port.
    output logic         awvalid,
    input  logic         awready,
    output logic [31:0]  awaddr,
    output logic [ 7:0]  awlen,
    output logic [ 2:0]  awsize,
    output logic [ 1:0]  awburst,
    output logic         wvalid,
    input  logic         wready,
    output logic [63:0]  wdata,
    output logic [ 7:0]  wstrb,
    output logic         wlast,
    input  logic         bvalid,
    output logic         bready
);

  logic [N-1:0] may, next;  // writer of the burst, at most one; writer of the next burst
  logic         taken;      // its address was accepted

  arbiter #(
      .N(N)
  ) u_turns (
      .clk,
      .rst,
      .enable (may == '0),
      .request(s_awvalid),
      .grant  (next)
  );

  assign awsize  = 3'd3;
  assign awburst = 2'b01;
  assign awvalid = !taken && |(may & s_awvalid);
  assign wvalid  = |(may & s_wvalid);
  assign wlast   = |(may & s_wlast);
  assign bready  = |(may & s_bready);

  assign s_awready = may & {N{awready && !taken}};
  assign s_wready  = may & {N{wready}};
  assign s_bvalid  = may & {N{bvalid}};

  always_comb begin
    awaddr = '0;
    awlen  = '0;
    wdata  = '0;
    wstrb  = '0;
    for (int i = 0; i < N; i++)
    if (may[i]) begin
      awaddr = s_awaddr[i];
      awlen  = s_awlen[i];
      wdata  = s_wdata[i];
      wstrb  = s_wstrb[i];
    end
  end

  always_ff @(posedge clk) begin
    if (may == '0) begin
      may   <= next;
      taken <= 1'b0;
    end else if (bvalid && bready) may <= '0;
    else if (awvalid && awready) taken <= 1'b1;
    if (rst) may <= '0;
  end

  one_at_a_time : assert property (@(posedge clk) disable iff (rst) $onehot0(may));

endmodule
