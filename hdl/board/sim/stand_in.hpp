// The image of a kernel that a program brings (hdl/functions/README.md has the format). Its body is
// arbitrary: the model finds the kernel by its number.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "image_header.hpp"

namespace stand_in {

constexpr uint32_t kHeader = image_header::kBytes, kUnit = 256;

// `length`: bytes of the body, a multiple of four.
inline std::vector<uint64_t> image(uint32_t kernel, uint32_t length, uint32_t shell, uint32_t region = image_header::kAnyRegion) {
  std::vector<uint64_t> words((kHeader + static_cast<uint64_t>(length) + kUnit - 1) / kUnit * kUnit / 8);
  uint8_t* const at = reinterpret_cast<uint8_t*>(words.data());
  uint64_t noise = kernel;
  for (uint32_t i = 0; i < length; i++) {
    noise = noise * 6364136223846793005ull + 1442695040888963407ull;
    at[kHeader + i] = static_cast<uint8_t>(noise >> 56);
  }
  const uint32_t header[7] = {image_header::kMagic, image_header::kVersion, shell, region, length, image_header::crc32(at + kHeader, length), kernel};
  memcpy(at, header, sizeof header);
  const uint32_t crc = image_header::crc32(at, sizeof header);
  memcpy(at + sizeof header, &crc, sizeof crc);
  return words;
}

}  // namespace stand_in
