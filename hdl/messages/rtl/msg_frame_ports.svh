    // Frames: the stream side of a MAC, without check sequence and padding.
    input  logic             rx_valid,
    input  net_pkg::beat_t   rx,
    output logic             tx_valid,
    input  logic             tx_ready,
    output net_pkg::beat_t   tx,
    output logic             owed,          // data is not acknowledged, or a station has not
                                            // connected yet
    output logic             failed,        // this station's session ended without a FIN
    output logic [7:0]       failed_station,
    output logic [31:0]      repeated,      // segments
    output logic [15:0]      strange,       // dropped packets
