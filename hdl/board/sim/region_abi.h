// The interface between the model and a kernel's library: the inputs and outputs of a region, once
// per cycle. A library contains its own Verilated class and runtime and exports only
// `baltra_region`.
#pragma once
#include <stdint.h>

#define REGION_ABI 3

typedef struct {
  uint64_t data;
  uint32_t params[4];
  uint8_t rst, start, valid, keep, last;  // of the body
  uint8_t ready;                          // for the reply
  // From board memory, for kernels that have the port: AXI4, bursts of sixteen words.
  uint64_t rdata;
  uint8_t arready, rvalid, rlast, rresp, awready, wready, bvalid, bresp;
} region_in;

typedef struct {
  uint64_t data;
  uint8_t done, valid, keep, last;  // of the reply
  uint8_t ready;                    // for the body
  uint8_t code;                     // with done: 0 success, 1 failed, 2 the request is unsuitable
  // To board memory; zero without the port.
  uint64_t wdata;
  uint32_t araddr, awaddr;
  uint8_t arvalid, awvalid, wvalid;
} region_out;

typedef struct {
  uint32_t abi;
  const char* name;
  void* (*create)(void);
  void (*destroy)(void* kernel);
  // One rising edge: the inputs before it, and the outputs after it.
  void (*tick)(void* kernel, const region_in* in, region_out* out);
} region_api;

typedef const region_api* (*region_entry)(void);
