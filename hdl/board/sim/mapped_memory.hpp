// The rings' memory of the live model (board_memory): host memory that is allocated when it is
// written, so that rings of many megabytes per session cost neither time at the start nor memory
// before they are used.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "svdpi.h"

extern "C" {

void* mapped_memory(unsigned long long words) {
  void* memory = mmap(nullptr, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    perror("error: memory for the board's rings");
    exit(2);
  }
  return memory;
}

unsigned long long mapped_read(void* memory, unsigned address) { return static_cast<const uint64_t*>(memory)[address]; }

void mapped_write(void* memory, unsigned address, unsigned long long data, unsigned char keep) {
  uint64_t& word = static_cast<uint64_t*>(memory)[address];
  uint64_t lanes = ~0ull;
  if (keep != 0xff) {
    // Expands each bit to eight.
    lanes = (keep * 0x0101010101010101ull & 0x8040201008040201ull);
    lanes = ((lanes + 0x7f7f7f7f7f7f7f7full) | lanes) >> 7 & 0x0101010101010101ull;
    lanes *= 0xff;
  }
  word = (word & ~lanes) | (data & lanes);
}

}  // extern "C"
