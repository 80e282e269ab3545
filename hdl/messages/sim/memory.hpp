// A live board's memory: each kernel's own part, behind the AXI4 port of msg_memory,
// and one channel for all.
//
// The channel moves a 64-bit word per cycle. Read data arrives kLatency cycles after its request,
// or when the channel is free. Memory is initially zero;
// accesses outside of a part are refused (SLVERR).
#pragma once

#include <sys/mman.h>

#include "region_abi.h"
#include "wire.hpp"

class Memory {
 public:
  static constexpr uint64_t kLatency = 40;

  // Rounds up to a burst.
  void open(uint64_t bytes) {
    constexpr uint64_t kBurst = 8 * REGION_BEATS;
    bytes = (bytes + kBurst - 1) / kBurst * kBurst;
    bytes_ = bytes;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) fail("a kernel's memory of %llu bytes: %s", static_cast<unsigned long long>(bytes), strerror(errno));
    words_ = static_cast<uint64_t*>(at);
  }

  // The kernel's inputs for its next cycle, from its outputs after the last one. `free`: when the
  // channel of all kernels is free.
  void clock(uint64_t now, uint64_t& free, const region_out& out, region_in& in) {
    if (words_ == nullptr) return;
    // Transfers of the last cycle.
    if (in.rvalid && ++beat_ == REGION_BEATS) reading_ = false;
    if (in.bvalid) written_ = false;
    in.arready = !reading_;
    if (out.arvalid && in.arready) {
      reading_ = true;
      beat_ = 0;
      from_ = out.araddr;
      due_ = std::max(now + kLatency, free);
      free = due_ + REGION_BEATS;
    }
    in.rvalid = reading_ && now >= due_;
    in.rlast = beat_ == REGION_BEATS - 1;
    in.rresp = fits(from_) ? 0 : kRefused;
    in.rdata = in.rvalid && fits(from_) ? words_[from_ / 8 + beat_] : 0;
    in.awready = !writing_ && !written_;
    in.wready = writing_;
    if (out.wvalid && in.wready) {
      if (fits(to_)) words_[to_ / 8 + at_] = out.wdata;
      if (++at_ == REGION_BEATS) {
        writing_ = false;
        written_ = true;
        done_ = free = std::max(now, free) + REGION_BEATS;
      }
    }
    if (out.awvalid && in.awready) {
      writing_ = true;
      to_ = out.awaddr;
      at_ = 0;
    }
    in.bvalid = written_ && now >= done_;
    in.bresp = fits(to_) ? 0 : kRefused;
  }

 private:
  static constexpr uint8_t kRefused = 2;
  bool fits(uint64_t address) const { return address + 8 * REGION_BEATS <= bytes_; }

  uint64_t* words_ = nullptr;
  uint64_t bytes_ = 0, from_ = 0, to_ = 0, due_ = 0, done_ = 0;
  unsigned beat_ = 0, at_ = 0;
  bool reading_ = false, writing_ = false, written_ = false;
};
