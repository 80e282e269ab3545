    // First ports of a fabric with TCP: the board as a station, ranks, and other stations.
    input  logic             clk,
    input  logic             rst,
    input  logic             tick,
    input  logic [47:0]      own,           // this board's addresses and number
    input  logic [31:0]      own_ip,
    input  logic [7:0]       own_station,
    input  logic [15:0]      tcp_port,      // of all stations
    input  logic [63:0]      secret,        // of the SYN cookies
    input  logic [1:0][63:0] job_key,
    input  logic             put,           // a rank: its port (16: on another station), and its
                                            // station
    input  logic [7:0]       put_rank,
    input  logic [4:0]       put_port,
    input  logic [7:0]       put_station,
    input  logic             station_put,
    input  logic [7:0]       station,
    input  logic [1:0]       station_role,
    input  logic [31:0]      station_ip,
    input  logic [31:0]      states,        // of the kernels: see msg_tcp_rx
