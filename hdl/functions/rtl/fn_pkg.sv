// Types shared by the function modules.
package fn_pkg;
  import axi_pkg::*;

  typedef enum logic [3:0] {
    LoadOk        = 4'd0,
    LoadMagic     = 4'd1,   // not an image
    LoadVersion   = 4'd2,   // an unsupported version of the format
    LoadHeader    = 4'd3,   // the header's checksum is wrong
    LoadShell     = 4'd4,   // made for another shell
    LoadRegion    = 4'd5,   // made for another region
    LoadLength    = 4'd6,   // empty, not a multiple of four bytes, or too long
    LoadMemory    = 4'd7,   // board memory returned an error
    LoadBody      = 4'd8,   // the body's checksum is wrong: the region is empty now
    LoadAlignment = 4'd9    // the address is not a multiple of a burst
  } load_result_t;

  typedef enum logic [1:0] {
    Fifo     = 2'd0,  // in the order of arrival
    Affinity = 2'd1,  // loaded functions first: fewest reconfigurations
    Shortest = 2'd2   // shortest expected time first
  } policy_t;

  // Settings of the scheduler; they may change at any time.
  typedef struct packed {
    policy_t     policy;
    logic [7:0]  patience;
    logic [31:0] load_cost;
  } scheduling_t;

  // The operands of a call.
  typedef struct packed {
    logic         bound;    // to a kernel from OpenCL C, by its last scalar (docs/kernels.md)
    logic [15:0]  regions;  // in which it may run, a bit each; none that the board has: in any
    logic [31:0]  cost;     // expected cycles of its run
    logic [31:0]  timeout;  // maximum cycles of its run; 0: unlimited
    logic [31:0]  image;    // address of its function's image
    logic [127:0] params;
  } call_t;

  // The end of a call.
  typedef struct packed {
    logic         killed;
    logic [1:0]   code;     // the kernel's, 0: success (docs/kernels.md)
    load_result_t load;     // LoadOk also without a load
    logic         loaded;   // the region was loaded for it
    logic [31:0]  cycles;
  } finish_t;

  // The configuration port, without its `ready`, and a notification: from the next cycle on, a region has another
  // kernel.
  typedef struct packed {
    logic        valid;
    logic [31:0] data;
    logic [7:0]  region;
    logic        swap;
    logic [31:0] swap_kernel;
  } configuration_t;

  // The streams of a region of 64 bits: the body of a request with its reply's `ready`, and the reverse.
  typedef struct packed {
    logic        s_valid;
    logic [63:0] s_data;
    logic [7:0]  s_keep;
    logic        s_last;
    logic        m_ready;
  } streams_in_t;

  typedef struct packed {
    logic        s_ready;
    logic        m_valid;
    logic [63:0] m_data;
    logic [7:0]  m_keep;
    logic        m_last;
  } streams_out_t;

  // A kernel's port to board memory, from the kernel and to it.
  typedef struct packed {
    axi_read_t  read;
    axi_write_t write;
  } memory_t;

  typedef struct packed {
    axi_read_reply_t  read;
    axi_write_reply_t write;
  } memory_reply_t;

  // A kernel's port for messages, in each direction: a beat of a packet (hdl/messages), and `ready` for
  // the other direction.
  typedef struct packed {
    logic        valid;
    logic        last;
    logic [63:0] data;
    logic        ready;
  } packets_t;

  // The ports of a kernel of 64 bits, without its clock (docs/kernels.md).
  typedef struct packed {
    logic         rst;
    logic         start;
    logic [127:0] params;
    streams_in_t  streams;
    memory_reply_t memory;
    packets_t     packets;
  } kernel_in_t;

  typedef struct packed {
    logic         done;
    logic [1:0]   code;
    streams_out_t streams;
    memory_t      memory;
    packets_t     packets;
  } kernel_out_t;

endpackage
