// Timing of the board's memory: one channel of DDR3-800, 16 bits wide, behind a controller with open
// rows, at a kernel clock of 100 MHz. A 64-bit word takes half a cycle of the channel, so the port of
// a word per cycle is the limit of bursts.
#pragma once

#include <algorithm>
#include <cstdint>

class Dram {
 public:
  // Cycles at 100 MHz.
  static constexpr uint64_t kController = 10;  // queues, clock crossing, both directions
  static constexpr uint64_t kColumn = 2;       // CL: 13.75 ns
  static constexpr uint64_t kActivate = 2;     // tRCD
  static constexpr uint64_t kPrecharge = 2;    // tRP
  static constexpr uint64_t kRefreshEvery = 780;  // tREFI: 7.8 us
  static constexpr uint64_t kRefresh = 16;        // tRFC: 160 ns
  static constexpr uint32_t kBanks = 8, kRowBytes = 2048;

  // The cycle of the first word of a burst that is requested now.
  uint64_t access(uint64_t now, uint32_t address, unsigned words) {
    uint64_t at = std::max(now, free_);
    while (at >= next_refresh_) {
      // A refresh closes all rows.
      at = std::max(at, next_refresh_ + kRefresh);
      next_refresh_ += kRefreshEvery;
      std::fill(std::begin(open_), std::end(open_), kClosed);
    }
    uint32_t bank = address / kRowBytes % kBanks, row = address / kRowBytes / kBanks;
    if (open_[bank] == row) {
      hits++;
    } else {
      misses++;
      if (open_[bank] != kClosed) at += kPrecharge;
      at += kActivate;
      open_[bank] = row;
    }
    free_ = at + kColumn + words / 2;
    return at + kColumn + kController;
  }

  uint64_t hits = 0, misses = 0;

 private:
  static constexpr uint32_t kClosed = UINT32_MAX;
  uint32_t open_[kBanks] = {kClosed, kClosed, kClosed, kClosed, kClosed, kClosed, kClosed, kClosed};
  uint64_t free_ = 0, next_refresh_ = kRefreshEvery;
};
