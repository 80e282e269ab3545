// Board memory for programs' buffers, as pieces. No two pieces share a line of a kernel's cache.
#pragma once
#include <cstdint>
#include <map>
#include <optional>

class ProgramMemory {
 public:
  ProgramMemory(uint32_t base, uint64_t bytes) : base_(base), bytes_(bytes) {}

  // The address of this many bytes; none if there is no gap for them.
  // Pieces begin in different lines of a kernel's cache.
  std::optional<uint32_t> take(uint64_t bytes) {
    if (bytes == 0 || bytes > bytes_) return {};
    const uint64_t rounded = (bytes + kUnit - 1) / kUnit * kUnit + kColor;
    uint64_t at = 0;
    for (const auto& [start, size] : held_) {
      if (start - at >= rounded) break;
      at = start + size;
    }
    if (rounded > bytes_ || at > bytes_ - rounded) return {};
    held_[at] = rounded;
    return static_cast<uint32_t>(base_ + at);
  }
  // The length of a piece, a multiple of 256.
  uint64_t bytes(uint32_t address) const { return held_.at(address - base_) - kColor; }
  void release(uint32_t address) { held_.erase(address - base_); }

 private:
  static constexpr uint64_t kUnit = 256, kColor = 3 * kUnit;
  uint32_t base_;
  uint64_t bytes_;
  std::map<uint64_t, uint64_t> held_;
};
