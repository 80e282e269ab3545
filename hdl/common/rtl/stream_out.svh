    // A stream of W bits out of a module, as its last ports (README.md).
    output logic           m_valid,
    input  logic           m_ready,
    output logic [W-1:0]   m_data,
    output logic [W/8-1:0] m_keep,
    output logic           m_last
