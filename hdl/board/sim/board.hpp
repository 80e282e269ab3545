// The Verilated board and its Ethernet port: frames in, frames out, cycles between them.
#pragma once
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "Vboard_shell.h"
#include "verilated.h"

using Frame = std::vector<uint8_t>;

class Board {
 public:
  // Interframe gap, preamble and check sequence: 24 bytes of the line's time that no stream carries.
  static constexpr int kGapBeats = 3;
  static constexpr size_t kLeastFrame = 60;
  static constexpr size_t kMostFrame = 9014;

  std::function<void(const Frame&)> on_frame;  // a frame left the board
  uint64_t cycles = 0;
  uint64_t first_byte_out = 0;  // cycle of the latest frame's first beat
  uint64_t last_byte_in = 0;    // cycle of the latest frame's last beat

  Board(uint64_t mac, uint32_t ip, uint16_t port, uint64_t secret) : top_(new Vboard_shell(&context_)) {
    top_->clk = 0;
    top_->rst = 1;
    top_->tick = 0;
    top_->own_mac = mac;
    top_->own_ip = ip;
    top_->listen_port = port;
    top_->secret = secret;
    top_->rx_valid = 0;
    top_->tx_ready = 1;
    for (int i = 0; i < 16; i++) step();
    top_->rst = 0;
    for (int i = 0; i < 16; i++) step();
  }
  ~Board() { top_->final(); }

  // Queues a frame for the line. Short ones are padded, as a MAC would receive them.
  void send(Frame frame) {
    if (frame.empty() || frame.size() > kMostFrame) return;
    if (frame.size() < kLeastFrame) frame.resize(kLeastFrame);
    in_.push_back(std::move(frame));
  }

  bool idle() const { return in_.empty() && gap_ == 0 && out_.empty() && !top_->busy; }
  size_t waiting() const { return in_.size(); }

  // A millisecond of the network's time has passed.
  void tick() {
    top_->tick = 1;
    step();
    top_->tick = 0;
  }

  void step() {
    drive();
    // What is valid and ready before an edge passes at it.
    top_->tx_ready = line_busy_ == 0;
    if (line_busy_ > 0) line_busy_--;
    else if (top_->tx_valid && !top_->rst) take();
    top_->clk = 1;
    top_->eval();
    top_->clk = 0;
    top_->eval();
    cycles++;
  }

 private:
  void drive() {
    if (gap_ > 0) {
      gap_--;
      top_->rx_valid = 0;
      return;
    }
    if (in_.empty()) {
      top_->rx_valid = 0;
      return;
    }
    const Frame& frame = in_.front();
    size_t left = frame.size() - at_, n = left < 8 ? left : 8;
    uint64_t data = 0;
    memcpy(&data, frame.data() + at_, n);
    top_->rx_data = data;
    top_->rx_keep = static_cast<uint8_t>((1u << n) - 1);
    top_->rx_last = left <= 8;
    top_->rx_valid = 1;
    at_ += n;
    if (left <= 8) {
      last_byte_in = cycles;
      in_.pop_front();
      at_ = 0;
      gap_ = kGapBeats;
    }
  }

  void take() {
    if (out_.empty()) first_byte_out = cycles;
    uint64_t data = top_->tx_data;
    int n = __builtin_popcount(top_->tx_keep);
    size_t at = out_.size();
    out_.resize(at + n);
    memcpy(out_.data() + at, &data, n);
    if (top_->tx_last) {
      // The line is taken by padding, check sequence and gap.
      size_t beats = (out_.size() + 7) / 8;
      line_busy_ = kGapBeats + (beats < 8 ? 8 - beats : 0);
      if (on_frame) on_frame(out_);
      out_.clear();
    }
  }

  VerilatedContext context_;
  std::unique_ptr<Vboard_shell> top_;
  std::deque<Frame> in_;
  size_t at_ = 0;
  int gap_ = 0;
  int line_busy_ = 0;
  Frame out_;
};
