    // The ports of a kernel that is compiled from OpenCL C; see docs/kernels.md.
`include "kernel_argument_ports.svh"
`include "kernel_word_ports.svh"
    ,
    input  logic        mem_fault,
`include "kernel_fetch_ports.svh"
`include "kernel_channel_ports.svh"
