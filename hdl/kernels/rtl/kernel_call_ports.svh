    // Start, end and text of a kernel that is compiled from OpenCL C.
    input  logic        start,
    output logic        done,        // one cycle, with `status`; 0: ok
    output logic [7:0]  status,
    output logic        print_valid, // a byte of text
    input  logic        print_ready,
    output logic [7:0]  print_data,
