    // Packets, in beats: out, and in.
    output logic        m_valid,
    input  logic        m_ready,
    output beat_t       m_beat,
    input  logic        s_valid,
    output logic        s_ready,
    input  beat_t       s_beat,
