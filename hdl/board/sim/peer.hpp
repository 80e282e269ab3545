// A TCP client for measurements: one connection over a lossless line,
// in the cycles of the line's clock.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "board.hpp"
#include "segment.hpp"

class Peer {
 public:
  Peer(Board& board, uint64_t board_mac, uint32_t board_ip, uint32_t ip, uint16_t port, uint16_t board_port = 80)
      : board_(board), board_mac_(board_mac), board_ip_(board_ip), ip_(ip), port_(port), board_port_(board_port), seq_(ip * 2654435761u + port) {}

  void connect() {
    frame(kSyn, {});
    seq_++;
  }
  bool connected() const { return connected_; }
  uint16_t port() const { return port_; }

  void send(const std::string& bytes) {
    unsent_ += bytes;
    push();
  }
  // All sent data has been acknowledged.
  bool quiet() const { return unsent_.empty() && seq_ == acked_; }
  std::string received;             // received and not consumed yet
  uint64_t payload_frames = 0;
  uint64_t first_cycle = 0;         // when the first frame with payload began to leave the board
  uint64_t last_cycle = 0;          // when the last one ended

  // A frame from the board; true if it was for this connection.
  bool take(const Frame& f) {
    Segment s;
    if (!read_segment(f, ip_, s) || s.port != port_) return false;
    const uint8_t flags = s.flags;
    const uint32_t seq = s.seq, ack = s.ack;
    if (flags & kRst) abort();
    if (flags & kSyn) {
      next_ = seq + 1;
      acked_ = ack;
      window_ = s.window;
      connected_ = true;
      frame(kAck, {});
      push();
      return true;
    }
    if (static_cast<int32_t>(ack - acked_) > 0) acked_ = ack;
    window_ = s.window;
    if (s.bytes) {
      if (seq != next_) abort();  // the line is lossless
      if (!payload_frames++) first_cycle = board_.first_byte_out;
      last_cycle = board_.line_cycles();
      next_ += static_cast<uint32_t>(s.bytes);
      received.append(s.payload, s.bytes);
      if (++owed_ >= 2 || !eager_) acknowledge_ = true;
    }
    push();
    return true;
  }

  // Data carries the acknowledgment; without data it is sent alone.
  void settle() {
    if (owed_ && unsent_.empty()) frame(kAck, {});
  }

 private:
  void push() {
    while (connected_ && !unsent_.empty()) {
      size_t n = std::min(unsent_.size(), size_t{kMss});
      if (seq_ + n - acked_ > window_) break;
      frame(kAck | (n == unsent_.size() ? kPsh : 0), unsent_.substr(0, n));
      unsent_.erase(0, n);
      seq_ += static_cast<uint32_t>(n);
    }
    if (acknowledge_ && owed_ >= 2) frame(kAck, {});
  }

  void frame(uint8_t flags, const std::string& payload) {
    owed_ = 0;
    acknowledge_ = false;
    const Route route{board_mac_, board_ip_, board_port_, ip_, port_};
    board_.send(make_segment(route, flags, seq_, next_, 65535, payload.data(), payload.size()));
  }

  Board& board_;
  uint64_t board_mac_;
  uint32_t board_ip_, ip_;
  uint16_t port_, board_port_;
  uint32_t seq_, acked_ = 0, next_ = 0, window_ = 0;
  bool connected_ = false, acknowledge_ = false;
  const bool eager_ = true;
  int owed_ = 0;
  std::string unsent_;
};
