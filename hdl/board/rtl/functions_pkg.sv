// Data of the board's functions, as stored in their table.
package functions_pkg;

  localparam int FUNCTIONS = 64;  // slots of the table
  localparam int NUMBER_BITS = $clog2(FUNCTIONS);

  typedef logic [127:0] name_t;  // up to 15 characters, the first in bits 7:0, padded with zeros

  // The entry of a function.
  typedef struct packed {
    logic [3:0][63:0] scalars;  // the query parameter of each of the kernel's scalars, as name_t;
                                // zero: none
    logic [15:0]      regions;  // in which its calls may run, a bit each; none: in any
    logic             bound;    // to a kernel from OpenCL C (docs/kernels.md): its last scalar is the address of the
                                // binding in board memory
    logic [14:0]      speed;    // log2 of the kernel's cycles for eight bytes of a body
    logic [31:0]      timeout;  // maximum cycles of a call; 0: unlimited
    logic [31:0]      image;    // address of its image in board memory
  } entry_t;

  // A change of the table, until it is accepted, and its result.
  typedef struct packed {
    logic   valid;
    logic   remove;
    name_t  name;
    entry_t entry;
  } table_change_t;

  typedef struct packed {
    logic                   valid;
    logic                   changed;   // the table has space, or the function was in it
    logic [NUMBER_BITS-1:0] number;
  } table_changed_t;

  // Result of fetching an image.
  typedef enum logic [1:0] {
    FetchOk,
    FetchMissing,  // the store does not have the image
    FetchBroken,   // too long, truncated, or a malformed reply
    FetchSilent    // the store cannot be reached, or takes too long
  } fetch_result_t;

  // Marks an image that has to be fetched from the store, instead of an address in memory.
  localparam logic [31:0] REMOTE = 32'h1;

  // A string literal has its first character on top, and zeros above that.
  function automatic name_t named(input logic [127:0] literal);
    named = '0;
    for (int i = 0; i < 16; i++)
    if (literal[8*i+:8] != 8'd0) named = (named << 8) | 128'(literal[8*i+:8]);
  endfunction

endpackage
