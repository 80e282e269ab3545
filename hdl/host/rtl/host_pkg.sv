// Types of the host port: what stands in a descriptor, and how one ends.
package host_pkg;

  localparam int DescriptorBeats = 8;   // that are read; two more behind them are written

  typedef enum logic [7:0] {
    KindCopy = 8'd1,   // from host memory into board memory
    KindCall = 8'd2    // of a function
  } kind_t;

  // The first field stands in the last beat.
  typedef struct packed {
    logic [63:0]  unused;
    logic [127:0] params;         // four scalars
    logic [31:0]  cost;           // cycles that the call is expected to take
    logic [31:0]  room;           // bytes that the answer may have
    logic [63:0]  answer;         // where it goes in host memory, a multiple of 8
    logic [31:0]  timeout;        // cycles that the call may take; 0: any number
    logic [31:0]  board;          // board memory: where the function's image is, or where bytes are copied to
    logic [63:0]  source;         // the body's, or the bytes', place in host memory, a multiple of 8
    logic [31:0]  bytes;
    logic [15:0]  reserved;
    logic [7:0]   fn;             // number of the function; from 128 on: the host's own programs
    logic [7:0]   kind;
  } descriptor_t;

  typedef enum logic [7:0] {
    EndOk        = 8'd0,
    EndKilled    = 8'd1,    // the kernel took too long
    EndRoom      = 8'd2,    // the answer had more bytes than there was room for
    EndHost      = 8'd3,    // host memory answered with an error
    EndBoard     = 8'd4,    // board memory did
    EndMalformed = 8'd5,    // no such kind, or a place or length that is not aligned
    EndImage     = 8'd16    // and more, load_result_t: the image was refused
  } end_t;

  // What is written behind the descriptor.
  typedef struct packed {
    logic [31:0] cycles;          // from the descriptor's fetch to here
    logic [31:0] kernel_cycles;
    logic [31:0] bytes;           // of the answer
    logic [7:0]  reserved;
    logic [7:0]  region;
    logic [7:0]  loaded;          // 1: the region was loaded for it
    logic [7:0]  status;
  } report_t;

endpackage
