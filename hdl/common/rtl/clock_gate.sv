// A module's own clock, which stands still while nothing that it drives would change. On a chip it is the clock, whose tools
// save power their own way; with CLOCK_GATES defined, as for the live model, what has nothing to do costs no time.
//
// `wake` must be high in every cycle in which something begins or goes on, as a module sees it by its inputs and its
// states; one more edge follows for what is a cycle late. What a module does may not depend on being gated: the unit
// benches run with gates, and a board with them does the same in the same cycles as one without (board/tests/gates_test.py).
module clock_gate (
    input  logic clk,
    input  logic wake,
    output logic gated
);

`ifdef CLOCK_GATES
  logic open, late;
  // Held while the clock is high: what an edge changes does not cut its pulse short.
  always_latch if (!clk) open = wake || late;
  assign gated = clk & open;
  always_ff @(posedge gated) late <= wake;
`else
  logic unused_wake;
  assign unused_wake = wake;
  assign gated = clk;
`endif

endmodule
