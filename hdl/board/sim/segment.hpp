// TCP segments to the board, as Ethernet frames.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

using Frame = std::vector<uint8_t>;

constexpr uint8_t kFin = 1, kSyn = 2, kRst = 4, kPsh = 8, kAck = 16;
#ifndef SEGMENT_MSS
#define SEGMENT_MSS 1460
#endif
constexpr uint16_t kMss = SEGMENT_MSS;

// The addresses of both ends.
struct Route {
  uint64_t board_mac;
  uint32_t board_ip;
  uint16_t board_port;
  uint32_t ip;
  uint16_t port;
};

inline uint16_t read16(const Frame& f, size_t at) { return static_cast<uint16_t>(f[at] << 8 | f[at + 1]); }
inline uint32_t read32(const Frame& f, size_t at) { return static_cast<uint32_t>(read16(f, at)) << 16 | read16(f, at + 2); }

// The Internet checksum of a part of a frame.
inline uint32_t internet_sum(const Frame& f, size_t from, size_t to, uint32_t start) {
  for (size_t i = from; i < to; i++) start += (i - from) % 2 ? f[i] : static_cast<uint32_t>(f[i]) << 8;
  while (start >> 16) start = (start & 0xffff) + (start >> 16);
  return ~start & 0xffff;
}

// A SYN has the maximum segment size. The sender's hardware address is made from its port.
inline Frame make_segment(const Route& route, uint8_t flags, uint32_t seq, uint32_t ack, uint16_t window, const char* payload,
                          size_t bytes) {
  const size_t option = flags & kSyn ? 4 : 0;
  Frame f(54 + option);
  for (int i = 0; i < 6; i++) {
    f[i] = static_cast<uint8_t>(route.board_mac >> (40 - 8 * i));
    f[6 + i] = i == 0 ? 2 : static_cast<uint8_t>(route.port >> (8 * (i % 2)));
  }
  auto put16 = [&](size_t at, uint32_t v) { f[at] = static_cast<uint8_t>(v >> 8), f[at + 1] = static_cast<uint8_t>(v); };
  auto put32 = [&](size_t at, uint32_t v) { put16(at, v >> 16), put16(at + 2, v & 0xffff); };
  f[12] = 8;
  f[14] = 0x45;
  put16(16, static_cast<uint32_t>(40 + option + bytes));
  f[20] = 0x40;
  f[22] = 64;
  f[23] = 6;
  put32(26, route.ip);
  put32(30, route.board_ip);
  put16(34, route.port);
  put16(36, route.board_port);
  put32(38, seq);
  put32(42, flags & kAck ? ack : 0);
  f[46] = static_cast<uint8_t>((5 + option / 4) << 4);
  f[47] = flags;
  put16(48, window);
  if (option) f[54] = 2, f[55] = 4, put16(56, kMss);
  f.insert(f.end(), payload, payload + bytes);
  put16(24, internet_sum(f, 14, 34, 0));
  put16(50, internet_sum(f, 26, f.size(), 6 + static_cast<uint32_t>(f.size()) - 34));
  return f;
}

// Parses a segment from the board; false if the frame is not a segment.
struct Segment {
  uint16_t port = 0;  // destination
  uint8_t flags = 0;
  uint32_t seq = 0, ack = 0;
  uint16_t window = 0;
  const char* payload = nullptr;
  size_t bytes = 0;
};

inline bool read_segment(const Frame& f, uint32_t ip, Segment& s) {
  if (f.size() < 54 || f[12] != 8 || f[13] != 0 || f[23] != 6 || read32(f, 30) != ip) return false;
  const size_t head = 34 + (f[46] >> 4) * 4u, end = read16(f, 16) + 14u;
  if (end > f.size() || head > end) return false;
  s = {read16(f, 36), f[47], read32(f, 38), read32(f, 42), read16(f, 48), reinterpret_cast<const char*>(f.data()) + head, end - head};
  return true;
}
