// How the model and a kernel's library talk: once a clock, what goes into a region and what comes out of it.
// A library has its own Verilated class and runtime inside and shows only `baltra_region`.
#pragma once
#include <stdint.h>

#define REGION_ABI 1

typedef struct {
  uint64_t data;
  uint32_t params[4];
  uint8_t rst, start, valid, keep, last;  // of the body
  uint8_t ready;                          // for the answer
} region_in;

typedef struct {
  uint64_t data;
  uint8_t done, valid, keep, last;  // of the answer
  uint8_t ready;                    // for the body
} region_out;

typedef struct {
  uint32_t abi;
  const char* name;
  void* (*create)(void);
  void (*destroy)(void* kernel);
  // One rising edge: what stood at the inputs before it, and the outputs after it.
  void (*tick)(void* kernel, const region_in* in, region_out* out);
} region_api;

typedef const region_api* (*region_entry)(void);
