    // The ports of every kernel of a board, see README.md.
`include "msg_load_ports.svh"
    input  logic [63:0] in_data,
`include "msg_calls_ports.svh"
