// The operations of a synthesized kernel on its engines and on off-chip memory,
// one at a time (msg_calls).
package msg_calls_pkg;

  typedef enum logic [3:0] {
    CallNone,
    CallSend,  // begins a send, with a command and its bytes
    CallPut,   // a beat of payload
    CallSent,  // waits for the end of the send
    CallTake,  // begins a receive, with a command and its buffer size
    CallGet,   // a beat of payload, or the end of the receive
    CallText,  // a character
    CallEnd,   // the end, with a code
    CallLoad,  // reads a word of off-chip memory, by its address
    CallStore  // writes bytes of a word: address, byte mask, data
  } call_t;

endpackage
