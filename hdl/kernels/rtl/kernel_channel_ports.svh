`ifdef KERNEL_CHANNELS
    // Channels of a kernel that is compiled from OpenCL C: those that it reads, those that it writes.
    // An element is transferred in a cycle in which valid and ready are high; data holds until then.
    ,
    input  logic [`CHANNELS_IN-1:0]     channel_in_valid,
    input  logic [`CHANNEL_IN_BITS-1:0] channel_in_data,
    output logic [`CHANNELS_IN-1:0]     channel_in_ready,
    output logic [`CHANNELS_OUT-1:0]     channel_out_valid,
    output logic [`CHANNEL_OUT_BITS-1:0] channel_out_data,
    input  logic [`CHANNELS_OUT-1:0]     channel_out_ready,
    output logic [`CHANNELS_IN-1:0]  channel_in_waits,   // the kernel waits for an element,
    output logic [`CHANNELS_OUT-1:0] channel_out_waits   // or for space
`endif
