// A link between the board and the network, with faults drawn from a seed.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <vector>

using Frame = std::vector<uint8_t>;

struct Faults {
  uint64_t seed = 1;
  double loss = 0, duplicate = 0, reorder = 0, corrupt = 0;  // probability per frame
  double delay_ms = 0;                                       // of every frame
  bool any() const { return loss > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || delay_ms > 0; }
};

// One direction of a link.
class Link {
 public:
  Link(const Faults& faults, uint64_t stream, std::function<void(Frame)> deliver)
      : faults_(faults), random_(faults.seed * 2 + stream), deliver_(std::move(deliver)) {}

  void send(Frame frame, double now_ms) {
    if (!faults_.any()) return deliver_(std::move(frame));
    if (chance(faults_.loss)) {
      lost++;
      return;
    }
    if (chance(faults_.corrupt)) {
      // After the Ethernet header, and only in IPv4: frames that are protected only by the line's
      // own check sequence, such as ARP, arrive intact or not at all on a real line.
      constexpr size_t kHeader = 14;
      if (frame.size() <= kHeader || frame[12] != 0x08 || frame[13] != 0x00) {
        lost++;
        return;
      }
      uint64_t bit = kHeader * 8 + random_() % ((frame.size() - kHeader) * 8);
      frame[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
      corrupted++;
    }
    if (chance(faults_.duplicate)) {
      waiting_.emplace(now_ms + faults_.delay_ms, frame);
      duplicated++;
    }
    // A frame that is held back for two milliseconds is overtaken by later frames.
    bool held = chance(faults_.reorder);
    reordered += held;
    waiting_.emplace(now_ms + faults_.delay_ms + (held ? 2 : 0), std::move(frame));
    run(now_ms);
  }

  // Delivers frames that are due.
  void run(double now_ms) {
    while (!waiting_.empty() && waiting_.begin()->first <= now_ms) {
      Frame frame = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      deliver_(std::move(frame));
    }
  }

  bool empty() const { return waiting_.empty(); }
  uint64_t lost = 0, corrupted = 0, duplicated = 0, reordered = 0;

 private:
  bool chance(double p) { return p > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < p; }

  Faults faults_;
  std::mt19937_64 random_;
  std::function<void(Frame)> deliver_;
  std::multimap<double, Frame> waiting_;  // by the time they are due; equal times keep their order
};
