    // Reads of host memory: the bus replies late, and in order.
    output logic                       read_valid,
    input  logic                       read_ready,
    output logic [63:0]                read_address,
    output logic [$clog2(BURST+1)-1:0] read_beats,
    input  logic                       data_valid,
    input  logic [63:0]                data,
    input  logic                       data_error,
