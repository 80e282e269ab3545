    // Ports of msg_memory, less those to the memory; also of its bench.
`include "memory_access_ports.svh"
    output logic [63:0] mem_word,
    output logic        mem_fault
