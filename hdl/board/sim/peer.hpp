// A TCP client for measurements: one connection over a lossless line, in the model's own cycles.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "board.hpp"

class Peer {
 public:
  static constexpr size_t kMss = 1460;

  Peer(Board& board, uint64_t board_mac, uint32_t board_ip, uint32_t ip, uint16_t port)
      : board_(board), board_mac_(board_mac), board_ip_(board_ip), ip_(ip), port_(port), seq_(ip * 2654435761u + port) {}

  void connect() {
    frame(kSyn, 0, {}, true);
    seq_++;
  }
  bool connected() const { return connected_; }
  uint16_t port() const { return port_; }

  void send(const std::string& bytes) {
    unsent_ += bytes;
    push();
  }
  // All that was sent has been acknowledged.
  bool quiet() const { return unsent_.empty() && seq_ == acked_; }
  std::string received;             // what came and was not taken yet
  uint64_t payload_frames = 0;
  uint64_t first_cycle = 0;         // when the first frame with payload began to leave the board
  uint64_t last_cycle = 0;          // when the last one ended

  // A frame from the board; true if it was for this connection.
  bool take(const Frame& f) {
    if (f.size() < 54 || f[12] != 8 || f[13] != 0 || f[23] != 6) return false;
    if (read32(f, 30) != ip_ || read16(f, 36) != port_) return false;
    uint8_t flags = f[47];
    uint32_t seq = read32(f, 38), ack = read32(f, 42);
    size_t head = 34 + (f[46] >> 4) * 4u, length = read16(f, 16) + 14u - head;
    if (flags & kRst) abort();
    if (flags & kSyn) {
      next_ = seq + 1;
      acked_ = ack;
      window_ = read16(f, 48);
      connected_ = true;
      frame(kAck, seq_, {}, false);
      push();
      return true;
    }
    if (static_cast<int32_t>(ack - acked_) > 0) acked_ = ack;
    window_ = read16(f, 48);
    if (length) {
      if (seq != next_) abort();  // the line loses nothing
      if (!payload_frames++) first_cycle = board_.first_byte_out;
      last_cycle = board_.cycles;
      next_ += static_cast<uint32_t>(length);
      received.append(reinterpret_cast<const char*>(f.data()) + head, length);
      if (++owed_ >= 2 || !eager_) acknowledge_ = true;
    }
    push();
    return true;
  }

  // Data that is sent carries the acknowledgement; without data it goes out on its own.
  void settle() {
    if (owed_ && unsent_.empty()) frame(kAck, seq_, {}, false);
  }

 private:
  static constexpr uint8_t kSyn = 2, kRst = 4, kPsh = 8, kAck = 16;

  static uint16_t read16(const Frame& f, size_t at) { return static_cast<uint16_t>(f[at] << 8 | f[at + 1]); }
  static uint32_t read32(const Frame& f, size_t at) { return static_cast<uint32_t>(read16(f, at)) << 16 | read16(f, at + 2); }

  void push() {
    while (connected_ && !unsent_.empty()) {
      size_t n = std::min(unsent_.size(), kMss);
      if (seq_ + n - acked_ > window_) break;
      frame(kAck | (n == unsent_.size() ? kPsh : 0), seq_, unsent_.substr(0, n), false);
      unsent_.erase(0, n);
      seq_ += static_cast<uint32_t>(n);
    }
    if (acknowledge_ && owed_ >= 2) frame(kAck, seq_, {}, false);
  }

  void frame(uint8_t flags, uint32_t seq, const std::string& payload, bool syn) {
    if (syn) seq = seq_;
    owed_ = 0;
    acknowledge_ = false;
    const size_t option = syn ? 4 : 0;
    Frame f(54 + option);
    for (int i = 0; i < 6; i++) {
      f[i] = static_cast<uint8_t>(board_mac_ >> (40 - 8 * i));
      f[6 + i] = i == 0 ? 2 : static_cast<uint8_t>(port_ >> (8 * (i % 2)));
    }
    auto put16 = [&](size_t at, uint32_t v) { f[at] = static_cast<uint8_t>(v >> 8), f[at + 1] = static_cast<uint8_t>(v); };
    auto put32 = [&](size_t at, uint32_t v) { put16(at, v >> 16), put16(at + 2, v & 0xffff); };
    f[12] = 8;
    f[14] = 0x45;
    put16(16, static_cast<uint32_t>(40 + option + payload.size()));
    f[20] = 0x40;
    f[22] = 64;
    f[23] = 6;
    put32(26, ip_);
    put32(30, board_ip_);
    put16(34, port_);
    put16(36, 80);
    put32(38, seq);
    put32(42, syn ? 0 : next_);
    f[46] = static_cast<uint8_t>((5 + option / 4) << 4);
    f[47] = flags;
    put16(48, 65535);
    if (syn) f[54] = 2, f[55] = 4, put16(56, kMss);
    f.insert(f.end(), payload.begin(), payload.end());
    put16(24, sum(f, 14, 34, 0));
    put16(50, sum(f, 26, f.size(), 6 + static_cast<uint32_t>(f.size()) - 34));
    board_.send(std::move(f));
  }

  static uint32_t sum(const Frame& f, size_t from, size_t to, uint32_t start) {
    for (size_t i = from; i < to; i++) start += (i - from) % 2 ? f[i] : static_cast<uint32_t>(f[i]) << 8;
    while (start >> 16) start = (start & 0xffff) + (start >> 16);
    return ~start & 0xffff;
  }

  Board& board_;
  uint64_t board_mac_;
  uint32_t board_ip_, ip_;
  uint16_t port_;
  uint32_t seq_, acked_ = 0, next_ = 0, window_ = 0;
  bool connected_ = false, acknowledge_ = false;
  const bool eager_ = true;
  int owed_ = 0;
  std::string unsent_;
};
