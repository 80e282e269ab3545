// A bench's memory of rings: words arrive in the order of their reads, after a fixed number of
// cycles, or after up to `jitter` more.
#pragma once

#include <cstdint>
#include <deque>

#include "clocked.hpp"

namespace bench {

class RingWords {
 public:
  struct Word {
    bool valid;
    uint64_t data;
    uint8_t note;
  };

  explicit RingWords(unsigned latency) : latency_(latency) {}

  unsigned jitter = 0;  // cycles

  // A read in this cycle, and the content of memory.
  void read(uint64_t data, uint8_t note, Random &random) {
    const unsigned more = jitter != 0 ? random.below(jitter + 1) : 0;
    words_.push_back({now_ + latency_ - 1 + more, {true, data, note}});
  }

  // The word of the next cycle.
  Word next() {
    Word word{false, 0, 0};
    if (!words_.empty() && words_.front().due <= now_) {
      word = words_.front().word;
      words_.pop_front();
    }
    now_++;
    return word;
  }

 private:
  struct Read {
    uint64_t due;
    Word word;
  };
  unsigned latency_;
  uint64_t now_ = 0;
  std::deque<Read> words_;
};

}  // namespace bench
