    // Ports of tcp_tx; also of its bench.
    input  logic                   clk,
    input  logic                   rst,
    input  logic [           47:0] own_mac,
    input  logic [           31:0] own_ip,
    input  logic                   s_valid,
    output logic                   s_ready,
    input  segment_t               s_segment,
    input  logic [          S-1:0] s_session,
    input  logic                   read_ready,  // permits a read in the next cycle
    output logic                   read,
    output logic [S+RING_BITS-4:0] read_address,
    input  logic                   word_valid,  // words of the reads, in their order
    input  logic [           63:0] word_data,
    output logic                   m_valid,
    input  logic                   m_ready,
    output beat_t                  m
