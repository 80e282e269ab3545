// Types shared by the function modules.
package fn_pkg;

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

endpackage
