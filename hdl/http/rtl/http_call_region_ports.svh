    // Ports of http_call to its region (module region); also of its bench.
    output logic                                   k_valid,
    input  logic                                   k_ready,
    output logic [63:0]                            k_data,
    output logic [7:0]                             k_keep,
    output logic                                   k_last,
    input  logic                                   r_valid,
    output logic                                   r_ready,
    input  logic [63:0]                            r_data,
    input  logic [7:0]                             r_keep,
    input  logic                                   r_last
