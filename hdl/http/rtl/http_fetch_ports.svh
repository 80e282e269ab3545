    // Ports of http_fetch, except its client of the stack; also of its bench.
`include "http_server_ports.svh"
    // FILE.img, with the maximum of its bytes
    input  logic                    start,
    output logic                    ready,
    input  name_t                   file,
    input  logic [31:0]             most,
    output logic                    done,
    output fetch_result_t           result,
    output logic                    m_valid,      // the body
    input  logic                    m_ready,
    output logic [63:0]             m_data,
    output logic                    m_last,
