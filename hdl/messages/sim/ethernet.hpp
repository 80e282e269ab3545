// A board's network with raw Ethernet, or (BOARD_UDP) UDP: the addresses of all ranks.
#pragma once
#include <poll.h>

#include <sstream>
#include <vector>

#include "envelope.h"
#include "wire.hpp"

class Network : public Wire {
 public:
  static constexpr int kIdle = 32;  // cycles after which the board is idle without input

  bool line(const std::string& what, std::istringstream& words) {
    std::string mac, path, ip;
#ifdef BOARD_UDP
    if (what == "udp") return words >> ip && (own_ip_ = parse_ip(ip)) != 0;
#endif
    if (what != "peer") return false;
    int rank = -1;
    words >> rank >> mac >> path >> ip;
    if (rank < 0 || rank > 255) return false;
    peers_[rank] = {parse_mac(mac), !ip.empty() && ip != "-" ? parse_ip(ip) : 0, socket_at(path), bool(words >> ip) && ip == "board"};
    return true;
  }

  // The own address, and the ranks that are not on this board.
  template <class Board>
  void configure(Board& board) const {
    board.address_messages(own_ip_, 0, 0);
    for (const auto& [rank, peer] : peers_) board.place_rank_at(static_cast<unsigned>(rank), 0, peer.mac, peer.ip);
  }

  // Whether a frame that leaves the board is one of messages; others are HTTP's.
  static bool is_message(const Frame& frame) {
    if (frame.size() < kHead + 8) return false;
    const unsigned type = static_cast<unsigned>(frame[12]) << 8 | frame[13];
#ifdef BOARD_UDP
    constexpr uint8_t kUdp = 17;
    return type == 0x0800 && frame[23] == kUdp;
#else
    return type == HUM_LIMIT_ETHERTYPE;
#endif
  }

  bool receive() {
    bool got = false;
    for (Frame frame; next(frame);) {
      got = true;
      // The checks of a MAC: lengths. The lengths of packets are checked in the fabric.
      if (frame.size() < kHead + 8 || frame.size() % 8 != 0) continue;
      const uint64_t head = envelope(frame);
      const auto type = HUM_FIELD(head, TYPE);
      if (hum_carries(type) && kHead + 8 + HUM_FIELD(head, SIZE) > frame.size()) continue;
      // PROBE packets are not affected by faults.
      deliver(std::move(frame), type != HUM_PACKET_PROBE);
    }
    return got;
  }

  bool flush() {
    for (; !out.empty(); out.pop_front()) {
      const auto peer = peers_.find(static_cast<int>(HUM_FIELD(envelope(out.front()), DEST)));
      if (peer != peers_.end() && !send(out.front(), peer->second.address)) return false;
    }
    return true;
  }

  // Packets between boards: one that was sent but not received was lost.
  void departed(const Frame& frame) {
    const uint64_t head = envelope(frame);
    if (is_board(HUM_FIELD(head, DEST))) out_of[HUM_FIELD(head, SRC)]++;
  }
  void arrived(const Frame& frame) override {
    const uint64_t head = envelope(frame);
    if (is_board(HUM_FIELD(head, SRC))) in_for[HUM_FIELD(head, DEST)]++;
  }
  uint64_t out_of[256] = {}, in_for[256] = {};

  // Called once per burst of cycles. True: time has passed for the board.
  template <class Board>
  bool pass(Board&) {
    return false;
  }
  bool timed() const { return false; }
  std::vector<pollfd> waits() const { return {{fd, POLLIN, 0}}; }

 private:
#ifdef BOARD_UDP
  static constexpr size_t kHead = 48;  // bytes before the envelope
#else
  static constexpr size_t kHead = 16;
#endif

  struct Peer {
    uint64_t mac;
    uint32_t ip;
    sockaddr_un address;
    bool board;
  };

  bool is_board(uint64_t rank) const {
    const auto peer = peers_.find(static_cast<int>(rank));
    return peer != peers_.end() && peer->second.board;
  }

  static uint64_t envelope(const Frame& frame) {
    uint64_t head;
    memcpy(&head, frame.data() + kHead, sizeof head);
    return head;
  }

  uint32_t own_ip_ = 0;
  std::map<int, Peer> peers_;
};
