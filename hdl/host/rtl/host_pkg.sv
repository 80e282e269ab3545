// Types of the host port: the content of a descriptor, and its result.
package host_pkg;
  import fn_pkg::*;

  localparam int DescriptorBeats = 8;   // that are read; two more after them are written

  typedef enum logic [7:0] {
    KindCopy = 8'd1,   // from host memory into board memory
    KindCall = 8'd2,   // of a function
    KindRead = 8'd3    // from board memory into host memory
  } kind_t;

  // The first field is in the last beat.
  typedef struct packed {
    logic [63:0]  unused;
    logic [127:0] params;         // four scalars
    logic [31:0]  cost;           // expected cycles of the call
    logic [31:0]  room;           // maximum bytes of the reply
    logic [63:0]  answer;         // address of the reply, or of the bytes that are read, in host
                                  // memory, a multiple of 8
    logic [31:0]  timeout;        // maximum cycles of the call; 0: unlimited
    logic [31:0]  board;          // board memory: address of the function's image, destination of
                                  // a copy, or source of a read
    logic [63:0]  source;         // address of the body, or of the bytes, in host memory, a
                                  // multiple of 8
    logic [31:0]  bytes;
    logic [15:0]  regions;        // in which the call may run, a bit each; none: in any
    logic [7:0]   fn;             // number of the function; from 128 on: the host's own programs
    logic [7:0]   kind;
  } descriptor_t;

  typedef enum logic [7:0] {
    EndOk        = 8'd0,
    EndKilled    = 8'd1,    // the kernel exceeded its time
    EndRoom      = 8'd2,    // the reply exceeded its maximum
    EndHost      = 8'd3,    // host memory returned an error
    EndBoard     = 8'd4,    // board memory returned an error
    EndMalformed = 8'd5,    // an invalid kind, or an unaligned address or length
    EndImage     = 8'd16    // plus load_result_t: the image was refused
  } end_t;

  // Written after the descriptor.
  typedef struct packed {
    logic [31:0] cycles;          // from the descriptor's fetch to the report, at least 1; saturates
    logic [31:0] kernel_cycles;
    logic [31:0] bytes;           // of the reply
    logic [7:0]  reserved;
    logic [7:0]  region;
    logic [7:0]  loaded;          // 1: the region was loaded for it
    logic [7:0]  status;
  } report_t;

  // The message door's tables and own addresses, as the host writes them (host_registers).
  typedef struct packed {
    logic         put;          // a rank: where it is
    logic [7:0]   rank;
    logic [4:0]   port;         // its region; 16: on another station
    logic [7:0]   at;           // that station, with TCP
    logic [47:0]  address;      // its hardware address, without TCP
    logic [31:0]  ip;           // its IPv4 address, with UDP; that of `station`, with TCP
    logic         station_put;  // a station, with TCP (msg_tcp)
    logic [7:0]   station;
    logic [1:0]   role;
    logic [31:0]  own_ip;       // the board's address for messages over UDP and TCP
    logic [7:0]   own_station;
    logic [15:0]  tcp_port;
    logic [63:0]  secret;       // of the SYN cookies
    logic [127:0] job_key;
  } message_tables_t;

  // The host port: register accesses and the bus's side of DMA, and the board's side.
  typedef struct packed {
    logic        write;           // of a register; reads are continuous
    logic [5:0]  address;         // in words
    logic [31:0] data;
    logic        dma_read_ready;
    logic        dma_data_valid;  // beats of reads, in order
    logic [63:0] dma_data;
    logic        dma_data_error;
    logic        dma_write_ready;
  } host_in_t;

  typedef struct packed {
    logic [31:0] read_data;
    logic        ended;           // a descriptor
    logic        dma_read_valid;
    logic [63:0] dma_read_address;
    logic [5:0]  dma_read_beats;
    logic        dma_write_valid;
    logic [63:0] dma_write_address;
    logic [63:0] dma_write_data;
    logic [7:0]  dma_write_keep;
  } host_out_t;

  // A call of the host, to the function engine and back, with the engine that carries it out.
  typedef struct packed {
    logic        request_valid;
    logic [7:0]  request_engine;
    logic [7:0]  request_function;
    call_t       request_call;
    logic        finish_ready;
  } host_call_t;

  typedef struct packed {
    logic        request_ready;
    logic        grant;
    logic [7:0]  grant_engine;
    logic [7:0]  grant_region;
    logic        finish_valid;
    logic [7:0]  finish_engine;
    logic [7:0]  finish_region;
    finish_t     finish;
  } host_call_reply_t;

endpackage
