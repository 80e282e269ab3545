// What the board knows of its functions, as their table holds it.
package functions_pkg;

  localparam int FUNCTIONS = 64;  // slots of the table
  localparam int NUMBER_BITS = $clog2(FUNCTIONS);

  typedef logic [127:0] name_t;  // up to 15 characters, the first in bits 7:0, zeros behind

  // Of one function.
  typedef struct packed {
    logic [3:0][63:0] scalars;  // the query parameter of each of the kernel's scalars, as name_t; zero: none
    logic [31:0]      speed;    // cycles that its kernel takes for eight bytes of a body, log2
    logic [31:0]      timeout;  // cycles that a call may take; 0: any number
    logic [31:0]      image;    // where its image is in board memory
  } entry_t;

  // How the fetching of an image ended.
  typedef enum logic [1:0] {
    FetchOk,
    FetchMissing,  // the store says so
    FetchBroken,   // too long, cut off, or no answer that is understood
    FetchSilent    // the store cannot be reached, or takes too long
  } fetch_result_t;

  // An image that is to be fetched from the store, instead of an address in memory.
  localparam logic [31:0] REMOTE = 32'h1;

  // A string literal has its first character on top, and zeros above that.
  function automatic name_t named(input logic [127:0] literal);
    named = '0;
    for (int i = 0; i < 16; i++)
    if (literal[8*i+:8] != 8'd0) named = (named << 8) | 128'(literal[8*i+:8]);
  endfunction

endpackage
