// What a synthesised kernel can ask of its engines, one at a time (msg_calls).
package msg_calls_pkg;

  typedef enum logic [2:0] {
    CallNone,
    CallSend,  // a command and its bytes: a send begins
    CallPut,   // a beat of payload
    CallSent,  // the send is over
    CallTake,  // a command and its room: a receive begins
    CallGet,   // a beat of payload, or the receive is over
    CallText,  // a character
    CallEnd    // the end, with a code
  } call_t;

endpackage
