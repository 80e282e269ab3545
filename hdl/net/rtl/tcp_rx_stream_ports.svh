    // Ports of tcp_rx about the positions of streams, also of its bench.
    input  logic               open,
    input  logic               open_ended,
    input  logic        [ S-1:0] at,
    input  logic        [31:0] open_next,
    // the sent position, and the position that the application has read
    input  logic               sent_write,
    input  logic        [ S-1:0] sent_at,
    input  logic        [31:0] sent_to,
    input  logic               read_write,
    input  logic        [ S-1:0] read_at,
    input  logic        [31:0] read_to,
    // the position that a stream has reached, and whether it has ended
    output logic               rcv_notify,
    output logic        [ S-1:0] rcv_notify_at,
    output logic        [31:0] rcv_notify_next,
    output logic               rcv_notify_ended,
