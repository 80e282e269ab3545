// The protocol between programs and the live board's host port, over a Unix socket of packets
// (SOCK_SEQPACKET): each packet is one of these structures, in native byte order. crates/board has
// the same definitions for Rust.
//
// A program sends Hello first. The reply carries a sealed memfd, its window: all bodies, replies
// and images pass through the window, and no other memory of the program is accessed. Offsets and
// lengths are checked against the window, and read from a packet once.
// Requests that a program sends before it has the reply to an earlier one are carried out in any
// order, or at once; memory and kernels that are given back meanwhile stay until these have ended.
//
// Kernels that are compiled from OpenCL C come as a library (emulate_abi.h), as a file descriptor with
// the request, and have buffers in board memory. A program reaches only those that it took itself.
#pragma once
#include <stdint.h>

#define HOST_PROTOCOL 4u

enum host_op {
  HOST_HELLO = 1,   // bytes: requested size of the window
  HOST_DEFINE = 2,  // name, image (offset, bytes), timeout, speed, scalars: a function that is also
                    // callable over HTTP
  HOST_REMOVE = 3,  // name
  HOST_LOAD = 4,    // image (offset, bytes): a private program of this connection, until its end
  HOST_UNLOAD = 5,  // number
  HOST_CALL = 6,    // number, body (offset, bytes), reply (answer, room), timeout, cost, params
  HOST_BRING = 7,   // a kernel's library as descriptor, number of the kernel in it, bytes of its
                    // configuration: like HOST_LOAD
  HOST_TAKE = 8,    // bytes: zeroed memory for buffers; its address is the reply's `place`
  HOST_GIVE = 9,    // answer: the address of such memory
  HOST_PUT = 10,    // bytes (a multiple of 256) from offset in the window to the address `answer`
  HOST_GET = 11,    // the reverse
  HOST_LAUNCH = 12, // number, a host_launch (offset, bytes), room for text (answer, room), timeout
  HOST_CANCEL = 13, // number: the id of a request of this connection. Has no reply. A call or launch
                    // that has not ended is stopped, or not begun: its reply has the status 1
  HOST_REGION = 14, // number: a region. The reply: whether it holds an image (loaded), the checksum of
                    // that image's header (place), and the function that has this image (text)
  HOST_BIND = 15,   // like HOST_BRING, and name, timeout, speed, scalars (three), a host_binding (offset,
                    // room): a function that is callable over HTTP alone
};

enum host_status {
  HOST_OK = 0,
  // 1 to 31 are the board's own (hdl/host/rtl/host_pkg.sv).
  HOST_WRONG = 64,    // the request is invalid; the text has the reason
  HOST_FULL = 65,     // no space: in board memory, in the table, or for another program
  HOST_UNKNOWN = 66,  // the function or program does not exist
  HOST_FAULT = 67,    // the kernel's access was refused by its memory guard
  HOST_FAILED = 68,   // the kernel ended with a status other than 0
};

// In the window: this head, the words, the buffers.
typedef struct {
  uint32_t words, buffers;
} host_launch;

typedef struct {
  uint64_t bytes;
  uint32_t address, writable;
} host_buffer;

// In the window: this head; the words of the argument block and the answer's bytes, operands of
// hdl/kernels/rtl/region_call.sv; for each of the kernel's buffers 0 (the body) or 1 (the answer).
typedef struct {
  uint32_t words, buffers;
  uint64_t answer;
} host_binding;

typedef struct {
  uint32_t op, id;          // the reply has the same id
  uint64_t offset, answer;  // in the window, multiples of 8
  uint64_t bytes, room;
  uint32_t number, timeout, cost, speed;
  uint32_t params[4];
  char name[16];            // padded with zeros
  char scalars[4][8];
} host_request;

typedef struct {
  uint32_t op, id, status;
  uint32_t number;                 // of the function or program
  uint64_t bytes;                  // of the reply, even if it exceeds the buffer; of the window; of text
  uint32_t cycles, kernel_cycles;  // of the call
  uint32_t region, loaded;         // region of the call, and whether it was loaded for the call
  uint32_t version, shell, regions, clock_khz;  // for a Hello; the clock in which cycles are
                                                // counted, not the model's speed
  uint64_t memory_free;            // bytes of board memory
  char text[56];
  uint32_t kernel_status;          // of a launch
  uint32_t buffer, write, pad;     // fault: the buffer from 1 on (0: none), 1 for a write
  uint64_t place;                  // its offset in the buffer; the address of memory
} host_reply;

#ifdef __cplusplus
static_assert(sizeof(host_request) == 120 && sizeof(host_reply) == 144, "must match crates/board");
#endif
