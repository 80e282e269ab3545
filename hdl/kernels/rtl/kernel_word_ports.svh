    // Access to memory, word by word, of a kernel that is compiled from OpenCL C.
    output logic        mem_valid,   // a read of a word, or a write of bytes of it (memory_cache)
    input  logic        mem_ready,
    output logic [31:0] mem_address, // the argument's number and an offset in bytes (memory_guard)
    output logic [7:0]  mem_strobe,  // the bytes to write; none: a read
    output logic [63:0] mem_data,
    output logic        mem_go,      // a request may be accepted, and an answer is taken
    input  logic        mem_answer,
    input  logic [63:0] mem_word,    // valid with `mem_answer`
    output logic        fence,       // until `fenced`: writes the cache back and empties it
    input  logic        fenced
