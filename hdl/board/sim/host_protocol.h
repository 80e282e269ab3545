// What a program and the live board's host port say to each other over a Unix socket of packets (SOCK_SEQPACKET): each
// packet is one of these, in the machine's own byte order. crates/board has the same for Rust.
//
// A program says Hello first. The answer carries a sealed memfd, its window: all bodies, answers and images pass through
// it, and nothing else of the program's is reached. Offsets and lengths are checked against it, and taken from a packet
// once.
#pragma once
#include <stdint.h>

#define HOST_PROTOCOL 1u

enum host_op {
  HOST_HELLO = 1,   // bytes: of the window that is wanted
  HOST_DEFINE = 2,  // name, image (offset, bytes), timeout, speed, scalars: a function that HTTP calls too
  HOST_REMOVE = 3,  // name
  HOST_LOAD = 4,    // image (offset, bytes): a program of this connection's own, for as long as it lives
  HOST_UNLOAD = 5,  // number
  HOST_CALL = 6,    // number, body (offset, bytes), answer (answer, room), timeout, cost, params
};

enum host_status {
  HOST_OK = 0,
  // 1 to 31 are the board's own (hdl/host/rtl/host_pkg.sv).
  HOST_WRONG = 64,    // the request says something that cannot be; the text says what
  HOST_FULL = 65,     // no room: in board memory, in the table, for one more program
  HOST_UNKNOWN = 66,  // no such function or program
};

typedef struct {
  uint32_t op, id;          // the id comes back
  uint64_t offset, answer;  // in the window, multiples of 8
  uint64_t bytes, room;
  uint32_t number, timeout, cost, speed;
  uint32_t params[4];
  char name[16];            // zeros behind
  char scalars[4][8];
} host_request;

typedef struct {
  uint32_t op, id, status;
  uint32_t number;                 // of the function or program
  uint64_t bytes;                  // of the answer, whatever there was room for; of the window
  uint32_t cycles, kernel_cycles;  // of the call
  uint32_t region, loaded;         // where it ran, and whether that was loaded for it
  uint32_t version, shell, regions, clock_khz;  // to a Hello; the clock is what cycles are counted in, not the model's speed
  uint64_t memory_free;            // bytes of board memory
  char text[56];
} host_reply;

#ifdef __cplusplus
static_assert(sizeof(host_request) == 120 && sizeof(host_reply) == 120, "as the other side has them");
#endif
