// Clock gate of a module, which stops its clock while none of its registers would change. On a chip
// it passes the clock, because its tools save power in other ways; with CLOCK_GATES defined, as for
// the live model, idle modules cost no simulation time.
//
// `wake` must be high in every cycle in which an operation begins or continues, computed from the
// module's inputs and states; one more edge follows for registers that are a cycle late. A module's
// behavior must not depend on gating: the unit benches run with gates, and a board with gates
// behaves as one without in the same cycles (board/tests/gates_test.py).
module clock_gate (
    input  logic clk,
    input  logic wake,
    output logic gated
);

`ifdef CLOCK_GATES
  logic open, late;
  // Latched while the clock is high, so that a change at an edge does not cut the pulse short.
  always_latch if (!clk) open = wake || late;
  assign gated = clk & open;
  always_ff @(posedge gated) late <= wake;
`else
  logic unused_wake;
  assign unused_wake = wake;
  assign gated = clk;
`endif

endmodule
