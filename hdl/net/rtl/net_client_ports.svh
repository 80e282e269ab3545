    // Ports of net_stack: connections that the board opens, and UDP.
    input  logic                      connect_valid,
    input  logic [31:0]               connect_ip,
    input  logic [15:0]               connect_port,
    output logic                      connect_done,
    output connect_result_t           connect_result,
    // UDP, as in net_udp_rx and net_udp_tx
    input  logic [15:0]               udp_port,     // 0: datagrams are not received
    output datagram_t                 udp_from,
    output logic                      udp_rx_valid,
    input  logic                      udp_rx_ready,
    output beat_t                     udp_rx,
    input  datagram_t                 udp_to,
    input  logic                      udp_tx_valid,
    output logic                      udp_tx_ready,
    input  beat_t                     udp_tx,
