// tcp_tx for its bench: with W, the words of a segment arrive at any time.
module tcp_tx_top
  import net_pkg::*;
#(
    parameter  int W = 0,
    localparam int S = 4,
    localparam int RING_BITS = 21
) (
`include "tcp_tx_ports.svh"
);

  tcp_tx #(
      .STEADY(W == 0)
  ) u_tx (
      .*
  );

endmodule
