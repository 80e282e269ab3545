// The image of a kernel that a program brings (hdl/functions/README.md has the format). Its body is
// arbitrary: the model finds the kernel by its number.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

namespace stand_in {

constexpr uint32_t kKernelAt = 24;  // the kernel's number in the header
constexpr uint32_t kHeader = 32, kUnit = 256;

inline uint32_t crc32(const uint8_t* bytes, size_t count) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

// `length`: bytes of the body, a multiple of four.
inline std::vector<uint64_t> image(uint32_t kernel, uint32_t length, uint32_t shell) {
  std::vector<uint64_t> words((kHeader + static_cast<uint64_t>(length) + kUnit - 1) / kUnit * kUnit / 8);
  uint8_t* const at = reinterpret_cast<uint8_t*>(words.data());
  uint64_t noise = kernel;
  for (uint32_t i = 0; i < length; i++) {
    noise = noise * 6364136223846793005ull + 1442695040888963407ull;
    at[kHeader + i] = static_cast<uint8_t>(noise >> 56);
  }
  const uint32_t header[7] = {0x47524C42, 1, shell, UINT32_MAX, length, crc32(at + kHeader, length), kernel};
  memcpy(at, header, sizeof header);
  const uint32_t crc = crc32(at, sizeof header);
  memcpy(at + sizeof header, &crc, sizeof crc);
  return words;
}

}  // namespace stand_in
