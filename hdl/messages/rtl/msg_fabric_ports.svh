    // Packets of PORTS kernels: out of them, and to them.
    input  logic [PORTS-1:0] k_valid,
    output logic [PORTS-1:0] k_ready,
    input  beat_t            k_beat[PORTS],
    output logic [PORTS-1:0] m_valid,
    input  logic [PORTS-1:0] m_ready,
    output beat_t            m_beat[PORTS],
