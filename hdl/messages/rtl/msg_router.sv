// Router: PORTS kernels and the network, by a table of the ranks' ports.
// A packet's first beat has its destination.
//
// Traffic within a board stays on it: beats of any input go to any output. The beginnings of
// packets pass one by one through the shared parts, the table and the arbitration; an output
// belongs to one input until the end of its packet. Inputs that were served have lower priority
// than waiting inputs that were not. A packet for a rank without a port, back to its source, or
// from the network to the network is dropped and counted.
//
// Ports: 0 to PORTS - 1 are kernels, PORTS is the network;
// `net_from` is the kernel that sent the network's packet.
// Latency: 2 cycles. Throughput: one beat per cycle at each output, one cycle between packets, one
// beginning of a packet per cycle.
module msg_router
  import hum_envelope_pkg::*;
  import msg_pkg::*;
#(
    parameter int PORTS = 16
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       put,        // writes a line of the table
    input  logic [7:0]                 put_rank,
    input  logic [4:0]                 put_port,   // PORTS: the network; larger: invalid rank
`include "msg_fabric_ports.svh"
    // Packets of the network: from it, and to it.
    input  logic                       n_valid,
    output logic                       n_ready,
    input  beat_t                      n_beat,
    output logic                       t_valid,
    input  logic                       t_ready,
    output beat_t                      t_beat,
    output logic [$clog2(PORTS)-1:0]   net_from,
    output logic [15:0]                dropped
);

  localparam int N = PORTS + 1;
  localparam int C = $clog2(PORTS);

  if (PORTS != 1 << C || PORTS > 16) $error("PORTS must be a power of two up to 16");

  // Inputs and outputs by number: the kernels' and, last, the network's.
  logic [N-1:0] s_valid, s_ready, out_valid, out_ready;
  beat_t        s_beat[N], out_beat[N];

  assign s_valid            = {n_valid, k_valid};
  assign {n_ready, k_ready} = s_ready;
  assign {t_valid, m_valid} = out_valid;
  assign out_ready          = {t_ready, m_ready};
  assign s_beat[PORTS]      = n_beat;
  assign t_beat             = out_beat[PORTS];
  for (genvar i = 0; i < PORTS; i++) begin : g_kernel
    assign s_beat[i] = k_beat[i];
    assign m_beat[i] = out_beat[i];
  end

  // An input's PORTS outputs are numbered in C bits, and so are an output's inputs: a kernel's own
  // number represents the network, because no packet goes back to its source.
  logic [4:0]   ports[256];
  logic [N-1:0] waits, goes, lost;   // inputs: waiting for their output, sending to it, dropping
  logic [N-1:0] served;              // lower priority than other waiting inputs
  logic [C-1:0] to[N];               // an input's output
  logic [C-1:0] from[N];             // an output's input
  logic [N-1:0] busy;                // outputs that belong to an input
  logic [N-1:0] room, over;          // outputs: space for a beat, the packet's last beat
  logic [N-1:0] open;                // inputs whose output becomes free

  // ---- beginnings of packets: one per cycle ----

  logic [N-1:0] fresh, requests, first, pick, target;
  logic [C:0]   who;
  logic [7:0]   rank;
  logic [4:0]   port;
  logic         known, grant;

  function automatic logic [N-1:0] lowest(input logic [N-1:0] set);
    return set & (~set + 1'b1);
  endfunction

  assign fresh = s_valid & ~(waits | goes | lost);
  assign requests  = fresh | (waits & open);
  assign first = requests & ~served;
  assign pick  = first != '0 ? lowest(first) : lowest(requests);

  always_comb begin
    who = '0;
    for (int i = 0; i < N; i++) if (pick[i]) who |= (C + 1)'(i);
  end

  logic [PORTS-1:0][7:0] ranks;
  for (genvar i = 0; i < PORTS; i++) begin : g_rank
    assign ranks[i] = s_beat[i].data[7:0];
  end

  assign rank  = who[C] ? s_beat[PORTS].data[7:0] : ranks[who[C-1:0]];
  assign port  = ports[rank];
  assign known = port <= 5'(PORTS) && port != 5'(who);

  always_comb begin
    target = '0;
    for (int o = 0; o < N; o++) target[o] = port == 5'(o);
  end
  assign grant = requests != '0 && known && (target & busy) == '0;

  always_ff @(posedge clk) begin
    if (put) ports[put_rank] <= put_port;
    if (requests != '0 && (grant || !known)) served <= first != '0 ? served | pick : (waits & ~served) != '0 ? served : pick;
    if (requests != '0 && !known) dropped <= dropped + 1'b1;
    if (rst) begin
      served  <= '0;
      dropped <= '0;
    end
  end

  for (genvar i = 0; i < N; i++) begin : g_in
    logic free, end_of;
    logic [PORTS-1:0] rooms, frees;
    for (genvar k = 0; k < PORTS; k++) begin : g_way
      localparam int O = k == i ? PORTS : k;
      assign rooms[k] = room[O];
      assign frees[k] = !busy[O] || over[O];
    end
    assign s_ready[i] = lost[i] || (goes[i] && rooms[to[i]]);
    assign end_of = s_valid[i] && s_ready[i] && s_beat[i].last;
    always_ff @(posedge clk) begin
      if (pick[i]) to[i] <= port[C] ? C'(i) : port[C-1:0];
      if (pick[i]) begin
        waits[i] <= known && !grant;
        goes[i]  <= grant;
        lost[i]  <= !known;
      end else if (end_of) begin
        goes[i] <= 1'b0;
        lost[i] <= 1'b0;
      end
      // An input that has just begun to wait retries: its output may have become free meanwhile.
      open[i] <= (pick[i] && !waits[i]) || frees[to[i]];
      if (rst) begin
        waits[i] <= 1'b0;
        goes[i]  <= 1'b0;
        lost[i]  <= 1'b0;
      end
    end
  end

  // ---- beats ----

  for (genvar o = 0; o < N; o++) begin : g_out
    beat_t [PORTS-1:0] choice;
    logic [PORTS-1:0] offered;
    beat_t beat;
    for (genvar k = 0; k < PORTS; k++) begin : g_choice
      localparam int I = k == o ? PORTS : k;
      assign choice[k]  = s_beat[I];
      assign offered[k] = s_valid[I];
    end
    assign beat    = choice[from[o]];
    assign room[o] = !out_valid[o] || out_ready[o];
    assign over[o] = busy[o] && room[o] && offered[from[o]] && beat.last;

    always_ff @(posedge clk) begin
      if (room[o]) begin
        out_beat[o]  <= beat;
        out_valid[o] <= busy[o] && offered[from[o]];
      end
      if (over[o]) busy[o] <= 1'b0;
      else if (grant && target[o]) busy[o] <= 1'b1;
      if (grant && target[o]) from[o] <= who[C] ? C'(o) : who[C-1:0];
      if (rst) begin
        busy[o]    <= 1'b0;
        out_valid[o] <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk) if (room[PORTS]) net_from <= from[PORTS];

`ifndef SYNTHESIS
  one_beginning : assert property (@(posedge clk) disable iff (rst) $onehot0(pick));
  one_phase : assert property (@(posedge clk) disable iff (rst)
      (waits & goes) == '0 && (waits & lost) == '0 && (goes & lost) == '0);
  grants_free_outputs : assert property (@(posedge clk) disable iff (rst)
      grant |-> (target & busy) == '0 && $onehot(target));
  for (genvar o = 0; o < N; o++) begin : g_stay
    beats_stay : assert property (@(posedge clk) disable iff (rst)
        out_valid[o] && !out_ready[o] |=> out_valid[o] && $stable(out_beat[o]));
  end
`endif

endmodule
