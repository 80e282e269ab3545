// The header of an image (hdl/functions/README.md has the format).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

namespace image_header {

constexpr uint32_t kMagic = 0x47524C42, kVersion = 1, kAnyRegion = UINT32_MAX;
constexpr uint32_t kBytes = 32;

inline uint32_t crc32(const uint8_t* bytes, size_t count) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

struct Header {
  uint32_t shell, region, kernel;
  uint32_t checksum;  // of the other words; they include the body's, so that it identifies the image
};

// None: these bytes do not begin with an intact header.
inline std::optional<Header> read(const uint8_t* bytes) {
  uint32_t words[kBytes / 4];
  memcpy(words, bytes, kBytes);
  if (words[0] != kMagic || words[1] != kVersion || words[7] != crc32(bytes, kBytes - 4)) return {};
  return Header{words[2], words[3], words[6], words[7]};
}

// Why a board cannot load the image; empty: it can.
inline std::string obstacle(const Header& header, uint32_t shell, uint32_t regions) {
  char text[56] = "";
  if (header.shell != shell) snprintf(text, sizeof text, "the image is for shell %#x, the board has %#x", header.shell, shell);
  else if (header.region != kAnyRegion && header.region >= regions)
    snprintf(text, sizeof text, "the image is for region %u, the board has %u", header.region, regions);
  return text;
}

// The regions for which it is made, a bit each; 0: any.
inline uint16_t regions(uint32_t region) { return region < 16 ? static_cast<uint16_t>(1u << region) : 0; }

}  // namespace image_header
