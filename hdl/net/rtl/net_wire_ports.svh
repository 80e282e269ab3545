    // Ports of net_stack: frames, and the own network.
    input  logic                      rx_valid,
    input  beat_t                     rx,
    output logic                      tx_valid,
    input  logic                      tx_ready,
    output beat_t                     tx,
    // the own network, for connections that the board opens; no gateway: every host is on it
    input  logic [31:0]               netmask,
    input  logic [31:0]               gateway,
    input  logic                      reserve,      // keep a session free for them
