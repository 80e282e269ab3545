    // The inputs of a proof about a queue; the solver picks a position in the stream.
    input logic       clk,
    input logic       rst,
    input logic       s_valid,
    input logic [3:0] s_payload,
    input logic       m_ready,
    input logic [3:0] pick
