// Recordings of the board's Ethernet port with times, in a file that tcpdump and Wireshark read
// (pcapng) and that `board --replay` replays.
//
// Each frame's packet block has the wall clock's time, the direction (epb_flags) and a comment
// "cycle N": the cycle in which a frame for the board began to wait for the line, or one from the
// board had left. Ticks of the millisecond are in the comment of an interface statistics block
// before the next frame: "ticks 97*12 1300", the cycles since the previous tick (or since the
// start), and the number of repetitions. The last comment is "end N".
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using Frame = std::vector<uint8_t>;

struct Event {
  enum Kind { Tick, In, Out, End } kind = End;
  uint64_t cycle = 0;
  uint64_t distance = 0, repeats = 1;  // Tick: that many, the first at `cycle`
  Frame frame;                         // In, Out
  uint64_t last() const { return cycle + distance * (repeats - 1); }
};

namespace pcapng {
constexpr uint32_t kSection = 0x0a0d0d0a, kInterface = 1, kPacket = 6, kStatistics = 5, kByteOrder = 0x1a2b3c4d;
constexpr uint16_t kComment = 1, kFlags = 2, kResolution = 9;
constexpr uint32_t kInbound = 1, kOutbound = 2;
constexpr size_t kMostBlock = 1 << 20;
}  // namespace pcapng

class Recorder {
 public:
  // An empty path records nothing.
  explicit Recorder(const std::string& path) {
    if (path.empty()) return;
    file_ = fopen(path.c_str(), "wb");
    if (!file_) {
      perror(path.c_str());
      exit(2);
    }
    Block section(pcapng::kSection);
    section.put32(pcapng::kByteOrder);
    section.put32(1);  // version 1.0
    section.put32(~0u), section.put32(~0u);
    section.write(file_);
    Block interface(pcapng::kInterface);
    interface.put32(1);  // Ethernet
    interface.put32(65535);
    interface.option(pcapng::kResolution, "\x09", 1);  // nanoseconds
    interface.write(file_);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() {
    if (file_) fclose(file_);
  }

  void frame(const Frame& frame, bool inbound, uint64_t cycle) {
    if (!file_) return;
    ticks();
    Block block(pcapng::kPacket);
    block.put32(0);
    block.put_time();
    block.put32(static_cast<uint32_t>(frame.size()));
    block.put32(static_cast<uint32_t>(frame.size()));
    block.put(frame.data(), frame.size());
    const uint32_t flags = inbound ? pcapng::kInbound : pcapng::kOutbound;
    block.option(pcapng::kFlags, &flags, sizeof flags);
    block.comment("cycle " + std::to_string(cycle));
    block.write(file_);
    fflush(file_);
  }

  // The board's timers tick in this cycle.
  void tick(uint64_t cycle) {
    if (!file_) return;
    const uint64_t distance = cycle - ticked_;
    ticked_ = cycle;
    if (repeats_ && distance == distance_) {
      repeats_++;
      return;
    }
    run();
    distance_ = distance;
    repeats_ = 1;
    if (ticks_.size() > 10000) ticks();
  }

  void end(uint64_t cycle) {
    if (!file_) return;
    ticks();
    note("end " + std::to_string(cycle));
    fflush(file_);
  }

 private:
  struct Block {
    explicit Block(uint32_t kind) { put32(kind), put32(0); }
    void put(const void* bytes, size_t n) {
      const uint8_t* from = static_cast<const uint8_t*>(bytes);
      all.insert(all.end(), from, from + n);
      all.resize((all.size() + 3) / 4 * 4);
    }
    void put32(uint32_t v) { put(&v, sizeof v); }
    void put_time() {
      timespec t;
      clock_gettime(CLOCK_REALTIME, &t);
      const uint64_t ns = static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
      put32(static_cast<uint32_t>(ns >> 32)), put32(static_cast<uint32_t>(ns));
    }
    void option(uint16_t kind, const void* bytes, size_t n) {
      put32(kind | static_cast<uint32_t>(n) << 16);
      put(bytes, n);
      options = true;
    }
    void comment(const std::string& text) { option(pcapng::kComment, text.data(), text.size()); }
    void write(FILE* file) {
      if (options) put32(0);
      const uint32_t length = static_cast<uint32_t>(all.size() + 4);
      put32(length);
      memcpy(all.data() + 4, &length, sizeof length);
      fwrite(all.data(), all.size(), 1, file);
    }
    std::vector<uint8_t> all;
    bool options = false;
  };

  void run() {
    if (repeats_) ticks_ += " " + std::to_string(distance_) + (repeats_ > 1 ? "*" + std::to_string(repeats_) : "");
    repeats_ = 0;
  }
  void ticks() {
    run();
    if (!ticks_.empty()) note("ticks" + ticks_);
    ticks_.clear();
  }
  void note(const std::string& text) {
    Block block(pcapng::kStatistics);
    block.put32(0);
    block.put_time();
    block.comment(text);
    block.write(file_);
  }

  FILE* file_ = nullptr;
  uint64_t ticked_ = 0, distance_ = 0, repeats_ = 0;
  std::string ticks_;
};

// A recording's events in order. Throws std::runtime_error if the file is not a recording.
inline std::vector<Event> recording(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto wrong = [&](size_t at, const char* what) -> std::runtime_error {
    return std::runtime_error(path + ": " + what + " at byte " + std::to_string(at) + ": not a recording of this model (--pcap)");
  };
  const auto get = [&](size_t at, size_t n) {
    uint32_t v = 0;
    memcpy(&v, bytes.data() + at, n);
    return v;
  };
  constexpr uint64_t kMost = 1u << 30;
  std::vector<Event> events;
  uint64_t ticked = 0;
  for (size_t at = 0; at < bytes.size();) {
    if (bytes.size() - at < 12) throw wrong(at, "half a block");
    const uint32_t kind = get(at, 4), length = get(at + 4, 4);
    if (length < 12 || length % 4 || length > bytes.size() - at || length > pcapng::kMostBlock) throw wrong(at, "a block's length");
    if (at == 0 && (kind != pcapng::kSection || length < 28 || get(8, 4) != pcapng::kByteOrder)) throw wrong(at, "no header");
    size_t option = at + 8, end = at + length - 4;
    Event event;
    if (kind == pcapng::kPacket) {
      if (length < 32) throw wrong(at, "a packet's length");
      const uint32_t kept = get(at + 20, 4);
      if (kept > length - 32 || kept == 0) throw wrong(at, "a packet's length");
      event.frame.assign(bytes.begin() + static_cast<ptrdiff_t>(at) + 28, bytes.begin() + static_cast<ptrdiff_t>(at + 28 + kept));
      option = at + 28 + (kept + 3) / 4 * 4;
    } else if (kind == pcapng::kStatistics) {
      option = at + 20;
    } else {
      at += length;
      continue;
    }
    std::string comment;
    uint32_t flags = 0;
    while (option + 4 <= end) {
      const uint32_t code = get(option, 2), n = get(option + 2, 2);
      if (code == 0) break;
      if (n > end - option - 4) throw wrong(option, "an option's length");
      if (code == pcapng::kComment) comment.assign(bytes.data() + option + 4, n);
      if (code == pcapng::kFlags && n == 4) flags = get(option + 4, 4);
      option += 4 + (n + 3) / 4 * 4;
    }
    char* rest = nullptr;
    if (comment.rfind(kind == pcapng::kPacket ? "cycle " : "end ", 0) == 0) {
      event.cycle = strtoull(comment.c_str() + comment.find(' '), &rest, 10);
      if (kind == pcapng::kPacket) event.kind = flags == pcapng::kInbound ? Event::In : Event::Out;
      if (*rest) throw wrong(at, "a comment");
      events.push_back(std::move(event));
    } else if (kind == pcapng::kStatistics && comment.rfind("ticks ", 0) == 0) {
      const char* text = comment.c_str() + 5;
      while (*text) {
        const uint64_t distance = strtoull(text, &rest, 10);
        uint64_t repeats = 1;
        if (*rest == '*') repeats = strtoull(rest + 1, &rest, 10);
        if (rest == text || (*rest && *rest != ' ') || distance == 0 || repeats > kMost) throw wrong(at, "a comment");
        if (repeats == 0 || distance > kMost) throw wrong(at, "a comment");
        events.push_back({Event::Tick, ticked + distance, distance, repeats, {}});
        ticked = events.back().last();
        text = rest;
      }
    } else {
      throw wrong(at, "no comment");
    }
    at += length;
  }
  for (size_t i = 1; i < events.size(); i++)
    if (events[i].cycle < events[i - 1].last()) throw std::runtime_error(path + ": events are not in order of time");
  if (events.empty()) throw std::runtime_error(path + ": the recording is empty");
  return events;
}
