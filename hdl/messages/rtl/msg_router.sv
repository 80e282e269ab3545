// Router: PORTS kernels and the network, by a table of the ranks' ports. A packet's first beat has its destination.
//
// What is on this board stays on it, each output has its own choice of packets, in turn. A packet for a rank without a
// port, back to where it came from, or from the network to the network is dropped and counted.
//
// Ports: 0 to PORTS - 1 are kernels, PORTS is the network; `net_from` is the kernel whose packet the network has.
// Latency: 2 cycles. Throughput: a beat a cycle at each output, and one cycle between packets.
module msg_router
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int PORTS = 16
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       put,        // a line of the table
    input  logic [7:0]                 put_rank,
    input  logic [4:0]                 put_port,   // PORTS: the network; more: there is no such rank
    input  logic [PORTS:0]             s_valid,
    output logic [PORTS:0]             s_ready,
    input  beat_t                      s_beat[PORTS+1],
    output logic [PORTS:0]             m_valid,
    input  logic [PORTS:0]             m_ready,
    output beat_t                      m_beat[PORTS+1],
    output logic [$clog2(PORTS)-1:0]   net_from,
    output logic [15:0]                dropped
);

  localparam int N = PORTS + 1;
  localparam int C = $clog2(PORTS);

  if (PORTS != 1 << C || PORTS > 16) $error("PORTS must be a power of two up to 16");

  logic [4:0]   ports[256];
  logic [N-1:0] midway;     // within a packet
  logic [N-1:0] lost;       // of one that is dropped
  logic [N-1:0] dropping;
  logic [N-1:0] asks[N];    // by input: outputs
  logic [N-1:0] takes[N];   // by output: inputs
  logic [N-1:0] first_drop;

  always_ff @(posedge clk) if (put) ports[put_rank] <= put_port;

  for (genvar i = 0; i < N; i++) begin : g_in
    logic [4:0]   port;
    logic [N-1:0] way;
    assign port = ports[s_beat[i].data[7:0]];
    always_comb begin
      way = '0;
      for (int o = 0; o < N; o++) way[o] = port == 5'(o) && o != i;
    end
    assign asks[i] = s_valid[i] && !midway[i] ? way : '0;
    assign first_drop[i] = s_valid[i] && !midway[i] && way == '0;
    assign dropping[i] = first_drop[i] || lost[i];
    always_ff @(posedge clk) begin
      if (s_valid[i] && s_ready[i]) begin
        midway[i] <= !s_beat[i].last;
        lost[i]   <= dropping[i] && !s_beat[i].last;
      end
      if (rst) begin
        midway[i] <= 1'b0;
        lost[i]   <= 1'b0;
      end
    end
  end

  for (genvar o = 0; o < N; o++) begin : g_out
    // All inputs but its own.
    beat_t        choice[PORTS];
    logic [PORTS-1:0] asked, grant, offered;
    logic [C-1:0] from, next;
    logic         busy, move, over;
    for (genvar k = 0; k < PORTS; k++) begin : g_choice
      localparam int I = k < o ? k : k + 1;
      assign choice[k]   = s_beat[I];
      assign asked[k]    = asks[I][o];
      assign offered[k]  = s_valid[I];
      assign takes[o][I] = move && from == C'(k);
    end
    assign takes[o][o] = 1'b0;
    assign move = busy && offered[from] && (!m_valid[o] || m_ready[o]);
    assign over = move && choice[from].last;

    arbiter #(
        .N(PORTS)
    ) u_arbiter (
        .clk,
        .rst,
        .enable (!busy),
        .request(asked),
        .grant
    );

    always_comb begin
      next = '0;
      for (int k = 0; k < PORTS; k++) if (grant[k]) next |= C'(k);
    end

    always_ff @(posedge clk) begin
      if (!busy) from <= next;
      if (!busy) busy <= grant != '0;
      else if (over) busy <= 1'b0;
      if (move) m_valid[o] <= 1'b1;
      else if (m_ready[o]) m_valid[o] <= 1'b0;
      if (move) m_beat[o] <= choice[from];
      if (rst) begin
        busy       <= 1'b0;
        m_valid[o] <= 1'b0;
      end
    end

    if (o == PORTS) begin : g_net
      always_ff @(posedge clk) if (move) net_from <= from;
    end
  end

  always_comb begin
    s_ready = dropping;
    for (int o = 0; o < N; o++) s_ready |= takes[o];
  end

  always_ff @(posedge clk) begin
    if (first_drop != '0) dropped <= dropped + 1'b1;
    if (rst) dropped <= '0;
  end

endmodule
