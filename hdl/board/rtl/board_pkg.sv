// Types of the board's ports.
package board_pkg;

  // Addresses and settings of the board; they are constant while it runs.
  typedef struct packed {
    logic [47:0]  own_mac;
    logic [31:0]  own_ip;
    logic [31:0]  netmask;
    logic [31:0]  gateway;      // 0: none
    logic [15:0]  listen_port;  // of the HTTP server
    logic [63:0]  secret;       // of SYN cookies and ports
    logic [8*http_pkg::KEY_BYTES-1:0] api_key;  // required in requests, its first character
                                                // in bits 7:0; zeros: none
    logic [15:0]  udp_echo;     // a UDP port that echoes datagrams; 0: none
    // The store of images, 0: none.
    logic [31:0]  store_ip;
    logic [15:0]  store_port;
    logic [511:0] store_path;   // its first character in bits 7:0, padded with zeros
    logic [31:0]  store_base;   // in board memory: slots of images, a multiple of a slot
  } settings_t;

  // The kernels' part of board memory, a gigabyte.
  localparam logic [31:0] KERNEL_BASE = 32'h4000_0000;

  // Events, for measurements.
  typedef struct packed {
    logic busy;                 // a request over HTTP, or a packet of messages, is being processed
    logic host_busy;            // a descriptor of the host
    logic pause;                // there is no space for another frame of messages
    logic call_requested;
    logic call_granted;
    logic call_ended;
  } events_t;

endpackage
