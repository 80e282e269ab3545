// The channels of a program: first in, first out, with elements of words of 32 bits.
//
// Kernels run one after the other in each cycle, in any order: an element that is written can be read
// from the next cycle on, and the space of one that is read can be used from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

class Channel {
 public:
  unsigned words;

  Channel(unsigned words, size_t capacity) : words(words), capacity_(capacity) {}

  bool valid(uint64_t now) const { return !elements_.empty() && elements_.front().written != now; }
  bool ready(uint64_t now) const { return elements_.size() + (popped_ && read_ == now) < capacity_; }
  const std::vector<uint32_t>& front() const { return elements_.front().words; }

  void push(uint64_t now, std::vector<uint32_t> words) { elements_.push_back({now, std::move(words)}); }

  void pop(uint64_t now) {
    elements_.pop_front();
    popped_ = true;
    read_ = now;
  }

  void clear() {
    elements_.clear();
    popped_ = false;
  }

 private:
  struct Element {
    uint64_t written;
    std::vector<uint32_t> words;
  };

  size_t capacity_;
  std::deque<Element> elements_;
  bool popped_ = false;
  uint64_t read_ = 0;  // the time of the last pop
};
