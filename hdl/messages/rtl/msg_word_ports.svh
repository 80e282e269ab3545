    // Packets, in beats of single signals: out, and in.
    output logic        m_valid,
    input  logic        m_ready,
    output logic        m_last,
    output logic [63:0] m_data,
    input  logic        s_valid,
    output logic        s_ready,
    input  logic        s_last,
    input  logic [63:0] s_data
