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
  // The rings' part, if they are there: those for receiving, then those for sending.
  localparam logic [31:0] RINGS_BASE = 32'h8000_0000;

  // Words that the HTTP server still writes after the transmit rings' `tx_write_ready` falls: its
  // longest own reply.
  localparam int TX_WRITES_LATE = 256;

  // A lookup in the table of functions (fn_table), by HTTP, and its reply.
  typedef struct packed {
    logic                   find_valid;
    functions_pkg::name_t   find_name;
    logic                   listing;     // the table does not change meanwhile
    logic [functions_pkg::NUMBER_BITS-1:0] entry_of;
    logic [functions_pkg::NUMBER_BITS-1:0] slot_of;
    logic                   slot_word;
  } lookup_t;

  typedef struct packed {
    logic                   find_ready;
    logic                   found_valid;
    logic                   found;
    logic [functions_pkg::NUMBER_BITS-1:0] found_function;
    functions_pkg::entry_t  entry;
    logic                   slot_used;
    logic [63:0]            slot_name;
  } lookup_reply_t;

  // A call of HTTP, to the function engine and back, with its session.
  typedef struct packed {
    logic          request_valid;
    logic [15:0]   request_tag;
    logic [functions_pkg::NUMBER_BITS-1:0] request_function;
    fn_pkg::call_t request_call;
    logic          finish_ready;
  } http_call_t;

  typedef struct packed {
    logic            request_ready;
    logic            grant;
    logic [15:0]     grant_tag;
    logic [7:0]      grant_region;
    logic            finish_valid;
    logic [15:0]     finish_tag;
    logic [7:0]      finish_region;
    fn_pkg::finish_t finish;
  } http_call_reply_t;

  // Events, for measurements.
  typedef struct packed {
    logic busy;                 // a request over HTTP, or a packet of messages, is being processed
    logic host_busy;            // a descriptor of the host
    logic pause;                // there is no space for another frame of messages
    logic owed;                 // messages over TCP: data is not acknowledged, or a station has not
                                // connected
    logic failed;               // and a session with this station has failed
    logic [7:0] failed_station;
    logic call_requested;
    logic call_granted;
    logic call_ended;
  } events_t;

endpackage
