// Functions of the table that are bound to kernels from OpenCL C: their bindings in board memory
// (hdl/kernels/rtl/region_call.sv has the format), and the buffers for body and answer.
//
// The buffers belong to a region, which runs one call at a time. Neither they nor the places of
// bindings are given to programs: calls that wait may still refer to them.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "board.hpp"
#include "host_protocol.h"
#include "program_memory.hpp"
#include "region_frame.hpp"

class Bindings {
 public:
  Bindings(Board& board, ProgramMemory& memory) : board_(board), memory_(memory) {}

  // Why the binding, `bytes` long, is invalid; empty: it is valid.
  static std::string wrong(const uint8_t* from, uint64_t bytes) {
    host_binding head;
    if (bytes < sizeof head) return "the binding is truncated";
    memcpy(&head, from, sizeof head);
    if (head.words == 0 || head.words > kWords || head.buffers > region_frame::kBuffers)
      return "a binding has 1 to 64 words and up to 15 buffers";
    if (bytes != sizeof head + 8ull * (head.words + head.buffers)) return "the binding has another length";
    return "";
  }

  // A place for a function's binding, and the region in which it runs; none: board memory is full.
  struct Binding {
    uint32_t address;
    unsigned region;
  };
  std::optional<Binding> place(const std::string& name) {
    auto slot = slots_.find(name);
    if (slot == slots_.end()) {
      unsigned number = 0;
      std::vector<bool> used(kSlots);
      for (const auto& other : slots_) used[other.second] = true;
      while (number < kSlots && used[number]) number++;
      if (number == kSlots) return {};
      slot = slots_.emplace(name, number).first;
    }
    const unsigned region = slot->second % Board::kRegions;
    if (!base_) base_ = memory_.take(kSlots * kBytes);
    if (base_ && !areas_[region]) areas_[region] = memory_.take(2 * kAreaBytes);
    if (!base_ || !areas_[region]) return {};
    return Binding{*base_ + slot->second * kBytes, region};
  }

  // Writes a valid binding.
  void write(const Binding& place, const uint8_t* from) {
    host_binding head;
    memcpy(&head, from, sizeof head);
    std::array<uint64_t, kBytes / 8> beats{};
    const uint64_t body = *areas_[place.region], limit = static_cast<uint64_t>(kAreaBytes) << 32;
    beats[0] = head.words | head.buffers << 16;
    beats[1] = body | limit;
    beats[2] = (body + kAreaBytes) | limit;
    beats[3] = head.answer;
    memcpy(&beats[4], from + sizeof head, 8ull * (head.words + head.buffers));
    board_.write_kernel_memory(place.address, beats.data(), kBytes);
  }

  void remove(const std::string& name) { slots_.erase(name); }

 private:
  static constexpr unsigned kSlots = 64;        // of the function table
  static constexpr uint32_t kBytes = 6 * 128;   // of a binding: whole bursts
  static constexpr unsigned kWords = 64;        // of a binding
  static constexpr uint32_t kAreaBytes = 16u << 20;  // the longest body and the longest answer

  Board& board_;
  ProgramMemory& memory_;
  std::optional<uint32_t> base_;
  std::array<std::optional<uint32_t>, Board::kRegions> areas_;
  std::map<std::string, unsigned> slots_;  // by function
};
