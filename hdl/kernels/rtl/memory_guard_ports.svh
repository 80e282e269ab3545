    // The table of a kernel's buffers, and the report of its fault (memory_guard).
    input  logic        set_valid,
    input  logic [3:0]  set_buffer,
    input  logic [31:0] set_address,
    input  logic [28:0] set_bytes,
    input  logic        set_writable,
    output logic        fault,
    output logic [3:0]  fault_buffer,
    output logic        fault_write,
    output logic [27:0] fault_offset
