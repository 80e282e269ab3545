    // Ports of a kernel that exchanges messages, beside those of every kernel: packets to and from
    // the board's router.
    output logic        packet_out_valid,
    input  logic        packet_out_ready,
    output logic        packet_out_last,
    output logic [63:0] packet_out,
    input  logic        packet_in_valid,
    output logic        packet_in_ready,
    input  logic        packet_in_last,
    input  logic [63:0] packet_in
