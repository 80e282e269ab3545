// A board's network with TCP: other boards are reached by frames, processes by connections to a
// port of this host, for which user_net.hpp runs TCP with the board.
#pragma once
#include <chrono>
#include <memory>
#include <sstream>

#include "../../board/sim/user_net.hpp"
#include "wire.hpp"

class Network : public Wire {
 public:
  static constexpr int kIdle = 256;

  bool line(const std::string& what, std::istringstream& words) {
    std::string text, mac, path;
    int number = -1;
    if (what == "tcp") {
      words >> text >> own_station_ >> port_;
      own_ip_ = parse_ip(text);
      return own_station_ < 256;
    }
    if (what == "station") {
      Station s;
      words >> number >> s.role >> text;
      if (number < 0 || number > 255 || (s.role != 1 && s.role != 2)) return false;
      s.ip = text == "-" ? 0 : parse_ip(text);
      if (words >> mac >> path) boards_[parse_mac(mac)] = socket_at(path);
      stations_[number] = s;
      return true;
    }
    if (what == "peer") {
      int station = -1;
      words >> number >> station;
      if (number < 0 || number > 255 || !stations_.count(station)) return false;
      ranks_[number] = station;
      return true;
    }
    return false;
  }

  // The own address, the job's key, the stations, and the ranks that are not on this board.
  template <class Board>
  void configure(Board& board) {
    const char* key = getenv("HUM_KEY");
    if (key == nullptr || strspn(key, "0123456789abcdefABCDEF") != 32 || key[32] != 0) fail("HUM_KEY must be 32 hexadecimal digits");
    uint32_t words[4] = {};
    for (int i = 0; i < 16; i++) words[i / 4] |= static_cast<uint32_t>(std::stoul(std::string(key + 2 * i, 2), nullptr, 16)) << 8 * (i % 4);
    board.address_messages(own_ip_, own_station_, port_);
    board.secure_messages(std::random_device()() | static_cast<uint64_t>(std::random_device()()) << 32, words);
    for (const auto& [number, station] : stations_) board.place_station(static_cast<unsigned>(number), static_cast<unsigned>(station.role), station.ip);
    for (const auto& [rank, station] : ranks_) board.place_rank_at(static_cast<unsigned>(rank), static_cast<unsigned>(station), 0, 0);
    const int listener = inherited("HUM_LISTEN");
    if (listener < 0) return;
    constexpr uint32_t kHostIp = 0x0a630001;  // address of this end of the line, different from the
                                              // boards'
    network_ = std::make_unique<UserNetwork>(Route{board.own_mac(), own_ip_, port_, kHostIp, 0}, listener, [this](Frame frame) {
      fill(frame);
      deliver(std::move(frame), true);
    });
    if (trace.on()) network_->read_host = [this](int from, void* data, size_t room) { return trace.receive(from, data, room, MSG_DONTWAIT); };
  }

  static bool is_message(const Frame&) { return true; }

  // Frames have a MAC's padding.
  void fill(Frame& frame) { frame.resize(std::max<size_t>(frame.size(), 60)); }

  bool receive() {
    bool got = network_ && in.size() < kQueue && network_->run(now_ms());
    for (Frame frame; next(frame); got = true) {
      fill(frame);
      const bool is_ip = frame[12] == 0x08 && frame[13] == 0x00;
      if (frame.size() <= kFrameBytes) deliver(std::move(frame), is_ip);
    }
    return got;
  }

  bool flush() {
    for (; !out.empty(); out.pop_front()) {
      const Frame& frame = out.front();
      uint64_t to = 0;
      for (int i = 0; i < 6; i++) to = to << 8 | frame[i];
      if (to == 0xffffffffffff) {
        // PROBE packets are repeated.
        for (const auto& [mac, address] : boards_) send(frame, address);
      } else if (const auto board = boards_.find(to); board != boards_.end()) {
        if (!send(frame, board->second)) return false;
      } else if (network_) {
        network_->take(frame, now_ms());
      }
    }
    return true;
  }

  // Timers run while data is unacknowledged, and a little longer, because received data is
  // acknowledged after a delay.
  template <class Board>
  bool pass(Board& board) {
    const uint64_t now = static_cast<uint64_t>(now_ms());
    if (board.owes() || !in.empty() || !out.empty()) until_ms_ = now + kLingerMs;
    // Ticks that a busy host has missed are not repeated.
    const bool ticks = now != ticked_ms_ && now < until_ms_;
    ticked_ms_ = now;
    if (ticks) board.tick();
    if (const auto station = board.failed_station()) fail("the TCP session with station %d was reset, or timed out", *station);
    return ticks;
  }

  // TCP retransmits losses.
  void departed(const Frame&) {}
  const uint64_t out_of[256] = {}, in_for[256] = {};

  std::vector<pollfd> waits() const {
    std::vector<pollfd> all = network_ ? network_->waits() : std::vector<pollfd>();
    all.push_back({fd, POLLIN, 0});
    return all;
  }
  // Limits the sleep.
  bool timed() const { return static_cast<uint64_t>(now_ms()) < until_ms_ || (network_ && network_->owed()); }

 private:
  static constexpr uint64_t kLingerMs = 30;

  struct Station {
    int role = 0;
    uint32_t ip = 0;
  };

  static double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  unsigned own_station_ = 256;
  uint16_t port_ = 0;
  uint32_t own_ip_ = 0;
  uint64_t ticked_ms_ = 0, until_ms_ = 0;
  std::map<int, Station> stations_;
  std::map<int, int> ranks_;
  std::map<uint64_t, sockaddr_un> boards_;
  std::unique_ptr<UserNetwork> network_;
};
