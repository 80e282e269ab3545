    // Ports of a kernel that exchanges messages that a simulation observes (region_abi.h).
    output logic        text_valid,
    output logic [7:0]  text,
    output logic        still,      // no state changes until a packet arrives
    output logic [47:0] waits,      // the packets for which it waits
    input  logic [31:0] now,        // the board's clock
    input  logic [1:0]  probe,      // captured streams: to the router, from the router
    output logic        note_valid,
    output logic        note_gap,
    output logic [31:0] note_at,
    output logic [7:0]  note_flags,
    output logic [63:0] note_out,
    output logic [63:0] note_in
