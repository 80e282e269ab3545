// Memory of the live model that is allocated when it is written, so that many megabytes cost neither
// time at the start nor memory before they are used: the rings (board_memory), and the kernels' part
// of board memory with its timing (dram_model).
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "dram.hpp"
#include "svdpi.h"

// The kernels' part of board memory. A board has one; the latest one is that of the board that was
// created last.
struct FarMemory {
  uint64_t* words;
  uint64_t bytes;
  Dram dram;
  uint64_t now = 0;  // the model's time, which has 32 bits
  static inline FarMemory* latest = nullptr;

  // Whole pages go back to the system and are zero when they return.
  void clear(uint64_t from, uint64_t count) {
    uint8_t* const at = reinterpret_cast<uint8_t*>(words) + from;
    const uint64_t page = 4096, first = (from + page - 1) / page * page, last = (from + count) / page * page;
    if (first >= last || madvise(reinterpret_cast<uint8_t*>(words) + first, last - first, MADV_DONTNEED) < 0) {
      memset(at, 0, count);
      return;
    }
    memset(at, 0, first - from);
    memset(reinterpret_cast<uint8_t*>(words) + last, 0, from + count - last);
  }
};

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

void* far_memory(unsigned long long words) {
  return FarMemory::latest = new FarMemory{static_cast<uint64_t*>(mapped_memory(words)), words * 8, {}, 0};
}

unsigned long long far_read(void* memory, unsigned address) { return static_cast<const FarMemory*>(memory)->words[address]; }

void far_write(void* memory, unsigned address, unsigned long long data, unsigned char keep) {
  mapped_write(static_cast<FarMemory*>(memory)->words, address, data, keep);
}

unsigned far_delay(void* memory, unsigned now, unsigned address, unsigned words) {
  FarMemory& far = *static_cast<FarMemory*>(memory);
  far.now += now - static_cast<unsigned>(far.now);
  return static_cast<unsigned>(far.dram.access(far.now, address, words) - far.now);
}

}  // extern "C"
