// http_fetch for its bench; its structs signal by signal.
module http_fetch_top
  import net_pkg::*;
  import functions_pkg::*;
#(
    localparam int RX_RING_BITS = 21,
    localparam int TX_RING_BITS = 21,
    localparam int PATH_BYTES = 64,
    localparam int S = 4
) (
`include "http_fetch_ports.svh"
`include "client_ports.svh"
);

`include "client_signals.svh"

  http_fetch u_fetch (.*);

endmodule
