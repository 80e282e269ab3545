// AXI4 between a manager and board memory, for 32 address bits and up to 64 data bits: INCR bursts of whole
// beats, in order, without ids. A manager of narrower data uses the lower bits. Fields have the names of the
// protocol's signals.
package axi_pkg;

  typedef enum logic [1:0] {
    BurstFixed,
    BurstIncr,
    BurstWrap
  } axi_burst_t;

  // Reads: from the manager, and from memory.
  typedef struct packed {
    logic        arvalid;
    logic [31:0] araddr;
    logic [7:0]  arlen;
    logic [2:0]  arsize;
    axi_burst_t  arburst;
    logic        rready;
  } axi_read_t;

  typedef struct packed {
    logic        arready;
    logic        rvalid;
    logic [63:0] rdata;
    logic [1:0]  rresp;
    logic        rlast;
  } axi_read_reply_t;

  // Writes: from the manager, and from memory.
  typedef struct packed {
    logic        awvalid;
    logic [31:0] awaddr;
    logic [7:0]  awlen;
    logic [2:0]  awsize;
    axi_burst_t  awburst;
    logic        wvalid;
    logic [63:0] wdata;
    logic [7:0]  wstrb;
    logic        wlast;
    logic        bready;
  } axi_write_t;

  typedef struct packed {
    logic       awready;
    logic       wready;
    logic       bvalid;
    logic [1:0] bresp;
  } axi_write_reply_t;

endpackage
