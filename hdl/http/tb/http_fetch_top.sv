// http_fetch for its bench; its structs signal by signal.
module http_fetch_top
  import net_pkg::*;
  import functions_pkg::*;
#(
    localparam int RX_RING_BITS = 21,
    localparam int TX_RING_BITS = 21,
    localparam int S = 4
) (
    input  logic          clk,
    input  logic          rst,
    input  logic          tick,
    input  logic [31:0]   server_ip,
    input  logic [15:0]   server_port,
    input  logic [511:0]  path,
    input  logic          start,
    output logic          ready,
    input  name_t         file,
    input  logic [31:0]   most,
    output logic          done,
    output fetch_result_t result,
    output logic          m_valid,
    input  logic          m_ready,
    output logic [63:0]   m_data,
    output logic          m_last,
`include "client_ports.svh"
);

`include "client_signals.svh"

  http_fetch u_fetch (.*);

endmodule
