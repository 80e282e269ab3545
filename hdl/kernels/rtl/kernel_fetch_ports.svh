    // Lines that a kernel reads ahead of its accesses (kernel_readers, memory_guard).
    output logic        fetch_valid,  // a line to read
    input  logic        fetch_ready,
    output logic [3:0]  fetch_buffer, // the argument's number
    output logic [21:0] fetch_line,   // lines from the one with its first byte
    input  logic [7:0]  fetch_bytes,  // of the line, up to the argument's end; 0: the line is not read
    input  logic [63:0] fetch_skews,  // by argument, 4 bits: place of its first word in its line
    input  logic        fetched_valid, // words of requested lines, in order
    input  logic [63:0] fetched_word,
    input  logic        fetched_last,
    output logic        read_fault,   // a read outside of the argument, and its address
    output logic [31:0] read_address
