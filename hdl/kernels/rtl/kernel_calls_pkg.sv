// The operations of a kernel that is compiled from OpenCL C, one at a time (kernel_calls).
package kernel_calls_pkg;

  typedef enum logic [2:0] {
    CallNone,
    CallStart,  // waits for the start
    CallEnd,    // the end, with a status
    CallText,   // a character
    CallLoad,   // reads a word of memory, by its address
    CallStore,  // writes bytes of a word: address, byte mask, data
    CallFence   // makes writes visible to other kernels, and forgets words that have been read
  } call_t;

endpackage
