    // A stream of W bits into a module (README.md).
    input  logic           s_valid,
    output logic           s_ready,
    input  logic [W-1:0]   s_data,
    input  logic [W/8-1:0] s_keep,
    input  logic           s_last,
