    // The ports of tcp_lookup, also of its bench.
    input  logic         clk,
    input  logic         rst,
    input  logic [ 63:0] secret,
    input  logic         query,
    input  logic [ 63:0] query_key,      // the peer's address and port, the own port
    output logic         found_valid,
    output logic         found,
    output logic [S-1:0] found_index,
    output logic         hit,
    output logic [S-1:0] index,
    // changes, one at a time: held until `changed`
    input  logic         change_valid,
    input  logic         change_remove,
    input  logic [ 63:0] change_key,
    input  logic [S-1:0] change_index,   // for an added key
    output logic         changed,        // with `refused` if the key exists, or there is no place
    output logic         refused
