    // Ports of msg_memory, less those to the memory; also of its bench.
`include "memory_access_ports.svh"
    output logic [63:0] mem_word,
    output logic        mem_fault,
    // The kernel's memory: its place in board memory, and its size. Both are multiples of a burst,
    // and constant outside of reset.
    input  logic [31:0] memory_address,
    input  logic [28:0] memory_bytes
