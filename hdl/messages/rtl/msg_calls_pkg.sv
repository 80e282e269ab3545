// What a synthesised kernel can ask of its engines and of memory off the chip, one at a time (msg_calls).
package msg_calls_pkg;

  typedef enum logic [3:0] {
    CallNone,
    CallSend,  // a command and its bytes: a send begins
    CallPut,   // a beat of payload
    CallSent,  // the send is over
    CallTake,  // a command and its room: a receive begins
    CallGet,   // a beat of payload, or the receive is over
    CallText,  // a character
    CallEnd,   // the end, with a code
    CallLoad,  // a word of memory off the chip, by its address
    CallStore  // bytes of one: its address, which of them, and data
  } call_t;

endpackage
