// tcp_lookup for its bench: W sessions.
module tcp_lookup_top #(
    parameter  int W = 16,
    localparam int S = $clog2(W)
) (
`include "tcp_lookup_ports.svh"
);
  tcp_lookup #(.SESSIONS(W)) u_lookup (.*);
endmodule
