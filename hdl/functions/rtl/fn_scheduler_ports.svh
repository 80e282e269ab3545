    // First ports of fn_scheduler, also of the bench of fn_engine: the settings, and requests.
    input  logic                         clk,
    input  logic                         rst,
    input  policy_t                      policy,
    input  logic [7:0]                   patience,
    input  logic [31:0]                  load_cost,     // cycles of a load, for Shortest
    input  logic                         request_valid,
    output logic                         request_ready,
