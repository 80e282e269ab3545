// The interface between a live board and a kernel's library: the inputs and outputs of a region,
// once per cycle. A library contains its own Verilated class and runtime and exports only
// `baltra_region`.
#pragma once
#include <stdint.h>

#define REGION_ABI 4
#define REGION_BEATS 16  // words of a burst

typedef struct {
  uint64_t data;
  uint32_t params[4];
  uint8_t rst, start, valid, keep, last;  // of the body
  uint8_t ready;                          // for the reply
  // From board memory, for kernels that have the port: AXI4, bursts of sixteen words.
  uint64_t rdata;
  uint8_t arready, rvalid, rlast, rresp, awready, wready, bvalid, bresp;
  // From the board's router, for kernels that exchange messages.
  uint8_t packet_valid, packet_last, packet_ready;
  uint8_t probe;  // captured streams: bit 0 to the router, bit 1 from it
  uint32_t now;   // the cycle
  uint64_t packet;
} region_in;

// Ports of a kernel that exchanges messages that only a simulation observes.
typedef struct {
  uint8_t text_valid, text;  // a character of its output
  uint8_t still;             // no state changes until a packet arrives
  // Its capture core's record, if it has one: the cycle, and the sample from then on. Flags, from
  // bit 0 on: valid, ready and last of the stream to the router, those of the other one, and
  // whether it sends, receives.
  uint8_t note_valid, note_gap, note_flags;
  uint32_t note_at;
  uint64_t note_out, note_in;
  // Pending commands of its engines, from bit 0 on: sending, receiving; for a collective, each;
  // receives from any rank, any tag; two zero bits; destination and tag, source and tag: 8 and 12
  // bits each.
  uint64_t waits;
} region_rank;

typedef struct {
  uint64_t data;
  uint8_t done, valid, keep, last;  // of the reply
  uint8_t ready;                    // for the body
  uint8_t code;                     // with done: 0 success, 1 failed, 2 the request is unsuitable
  // To board memory; zero without the port.
  uint64_t wdata;
  uint32_t araddr, awaddr;
  uint8_t arvalid, awvalid, wvalid;
  // To the board's router; zero without messages.
  uint8_t packet_valid, packet_last, packet_ready;
  uint64_t packet;
  region_rank rank;
} region_out;

typedef struct {
  uint32_t abi;
  uint32_t messages;  // 1: it exchanges messages
  const char* name;
  void* (*create)(void);
  void (*destroy)(void* kernel);
  // One rising edge: the inputs before it, and the outputs after it.
  void (*tick)(void* kernel, const region_in* in, region_out* out);
} region_api;

typedef const region_api* (*region_entry)(void);
