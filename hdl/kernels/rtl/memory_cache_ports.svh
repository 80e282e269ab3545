    // Ports of memory_cache, less those to the memory.
`include "memory_access_ports.svh"
    input  logic        mem_go,
    output logic        mem_answer,
    output logic [63:0] mem_word,
    input  logic        flush,
    output logic        flushed,
    output logic        refused       // the memory has refused an access, since reset
