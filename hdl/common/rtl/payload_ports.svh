    // The ports of a queue of any type T (README.md), as its last ports.
    input  logic clk,
    input  logic rst,
    input  logic s_valid,
    output logic s_ready,
    input  T     s_payload,
    output logic m_valid,
    input  logic m_ready,
    output T     m_payload
