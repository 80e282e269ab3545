// The body and the answer of region_frame: a launch of a kernel that is compiled from OpenCL C
// (docs/kernels.md).
#pragma once
#include <cstdint>
#include <string>

namespace region_frame {

constexpr unsigned kWords = 1034, kBuffers = 15;
constexpr size_t kCharacters = 7;  // of a beat of text
constexpr size_t kEndBeats = 2;    // beats after the text

// The body's first beat; then the words of the argument block and the buffers follow.
inline uint64_t head(unsigned words, unsigned buffers, uint32_t text_beats) { return words | buffers << 16 | static_cast<uint64_t>(text_beats) << 32; }

inline uint64_t buffer(uint32_t address, uint64_t bytes, bool writable) { return address | bytes << 32 | static_cast<uint64_t>(writable) << 63; }

// Appends a beat's text; false if it is the end.
inline bool text(uint64_t beat, std::string& to) {
  const unsigned count = static_cast<unsigned>(beat >> 56);
  if (count > kCharacters) return false;
  for (unsigned i = 0; i < count; i++) to.push_back(static_cast<char>(beat >> (8 * i)));
  return true;
}

// The end's first beat; the second one has the cycles.
struct End {
  uint8_t status;
  bool fault, write;
  uint8_t buffer;  // from 1 on; 0: the address belongs to no buffer
  uint32_t offset;
};

inline End end(uint64_t beat) {
  return {static_cast<uint8_t>(beat), (beat >> 8 & 1) != 0, (beat >> 9 & 1) != 0, static_cast<uint8_t>(beat >> 12 & 15),
          static_cast<uint32_t>(beat >> 16 & 0xfffffff)};
}

}  // namespace region_frame
