// User-mode networking: the board's HTTP port behind a port of this host, without a TAP device and
// therefore without root. The host's kernel runs TCP with the client, this file runs TCP with the
// board, and bytes are forwarded between them: TCP properties measured by the client are therefore
// the kernel's, not the board's.
//
// The line to the board is lossless; data that the board itself drops (of a new connection while
// all its sessions are in use) is retransmitted after a while, from the first unacknowledged byte
// on.
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "segment.hpp"

class UserNetwork {
 public:
  // `send` queues frames for the board.
  UserNetwork(Route board, const std::string& address, uint16_t port, std::function<void(Frame)> send)
      : board_(board), send_(std::move(send)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int yes = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    if (inet_pton(AF_INET, address.c_str(), &at.sin_addr) != 1) throw std::runtime_error(address + ": not an IPv4 address");
    if (bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) < 0 || listen(listener_, 64) < 0)
      throw std::runtime_error(address + ":" + std::to_string(port) + ": " + strerror(errno));
    socklen_t n = sizeof at;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &n);
    listening_ = ntohs(at.sin_port);
  }
  // The same with a listening socket.
  UserNetwork(Route board, int listener, std::function<void(Frame)> send) : board_(board), send_(std::move(send)), listener_(listener) {
    fcntl(listener_, F_SETFL, O_NONBLOCK);
  }
  UserNetwork(const UserNetwork&) = delete;
  UserNetwork& operator=(const UserNetwork&) = delete;
  ~UserNetwork() {
    for (Connection& c : connections_) close(c.fd);
    close(listener_);
  }

  uint16_t listening() const { return listening_; }

  // Makes all possible progress; true if there was any.
  bool run(double now_ms) {
    bool moved = false;
    while (connections_.size() < kConnections) {
      int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) break;
      open(fd, now_ms);
      moved = true;
    }
    for (auto c = connections_.begin(); c != connections_.end();) {
      moved |= from_host(*c, now_ms);
      moved |= to_host(*c);
      // Closed, in both directions or at once.
      const bool done = c->broken || (c->board_ended && c->received.empty() && c->host_ended && c->unacked.empty() && c->fin_acked);
      if (!done) {
        ++c;
        continue;
      }
      close(c->fd);
      c = connections_.erase(c);
    }
    return moved;
  }

  // Data is unacknowledged: run() has to be called in time.
  bool owed() const {
    return std::any_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.next != c.una; });
  }

  // A frame from the board.
  void take(const Frame& frame, double now_ms) {
    Segment s;
    if (!read_segment(frame, board_.ip, s)) return;
    for (Connection& c : connections_)
      if (c.port == s.port) {
        segment(c, s, now_ms);
        to_host(c);
        return;
      }
  }

  // Like read(2), for callers that need more information about the bytes.
  std::function<ssize_t(int, void*, size_t)> read_host = [](int fd, void* data, size_t room) { return ::read(fd, data, room); };

  // Descriptors to wait for.
  std::vector<pollfd> waits() const {
    std::vector<pollfd> all{{listener_, POLLIN, 0}};
    for (const Connection& c : connections_) {
      const bool reads = !c.host_ended && c.unacked.size() < kBuffer;
      all.push_back({c.fd, static_cast<short>((reads ? POLLIN : 0) | (c.received.empty() ? 0 : POLLOUT)), 0});
    }
    return all;
  }

 private:
  static constexpr size_t kConnections = 256, kBuffer = 65535;
  static constexpr double kRepeatMs = 300;

  struct Connection {
    int fd = -1;
    uint16_t port = 0;
    bool open = false, host_ended = false, fin_sent = false, fin_acked = false, board_ended = false, broken = false;
    uint32_t una = 0, next = 0, got = 0;  // own stream: first unacknowledged byte, next to send;
                                          // the board's stream: next expected
    uint16_t window = 0;
    std::string unacked;    // from `una` on: sent and unacknowledged
    std::string received;   // for the host
    double sent_ms = 0;     // time of the last transmission or acknowledgment
  };

  void open(int fd, double now_ms) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    Connection c;
    c.fd = fd;
    do {
      if (++port_ < 1024) port_ = 1024;
    } while (std::any_of(connections_.begin(), connections_.end(), [&](const Connection& o) { return o.port == port_; }));
    c.port = port_;
    c.una = c.next = 2654435761u * ++serial_;
    c.sent_ms = now_ms;
    connections_.push_back(std::move(c));
    emit(connections_.back(), kSyn, connections_.back().una, nullptr, 0);
    connections_.back().next++;
  }

  void emit(Connection& c, uint8_t flags, uint32_t seq, const char* payload, size_t bytes) {
    Route route = board_;
    route.port = c.port;
    const size_t room = kBuffer - std::min(kBuffer, c.received.size());
    send_(make_segment(route, flags, seq, c.got, static_cast<uint16_t>(room), payload, bytes));
  }

  // As far as the board's window allows.
  void push(Connection& c, double now_ms) {
    if (!c.open) return;
    for (;;) {
      const size_t at = c.next - c.una;  // position in `unacked`; the FIN is one beyond
      if (at >= c.unacked.size()) break;
      const size_t room = c.window > at ? c.window - at : 0, n = std::min({c.unacked.size() - at, room, size_t{kMss}});
      if (n == 0) break;
      emit(c, kAck | (at + n == c.unacked.size() ? kPsh : 0), c.next, c.unacked.data() + at, n);
      c.next += static_cast<uint32_t>(n);
      c.sent_ms = now_ms;
    }
    if (c.host_ended && c.next - c.una == c.unacked.size() && !c.fin_acked) {
      emit(c, kAck | kFin, c.next, nullptr, 0);
      c.next++;
      c.fin_sent = true;
      c.sent_ms = now_ms;
    }
  }

  bool from_host(Connection& c, double now_ms) {
    bool moved = false;
    char buffer[16384];
    while (!c.broken && !c.host_ended && c.unacked.size() < kBuffer) {
      const ssize_t n = read_host(c.fd, buffer, std::min(sizeof buffer, kBuffer - c.unacked.size()));
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (n < 0) {
        reset(c);
        return true;
      }
      moved = true;
      if (n == 0) c.host_ended = true;
      else c.unacked.append(buffer, static_cast<size_t>(n));
    }
    if (moved) push(c, now_ms);
    // No acknowledgment for a while: retransmit from the first missing byte.
    if (c.next != c.una && now_ms - c.sent_ms > kRepeatMs) {
      c.sent_ms = now_ms;
      if (!c.open) emit(c, kSyn, c.una, nullptr, 0);
      else {
        c.next = c.una;
        c.window = std::max<uint16_t>(c.window, 1);
        push(c, now_ms);
      }
      moved = true;
    }
    return moved;
  }

  bool to_host(Connection& c) {
    if (c.broken || c.received.empty()) return false;
    const size_t before = c.received.size();
    const ssize_t n = ::send(c.fd, c.received.data(), before, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n < 0) {
      reset(c);
      return true;
    }
    c.received.erase(0, static_cast<size_t>(n));
    if (c.received.empty() && c.board_ended) shutdown(c.fd, SHUT_WR);
    // The window that was nearly closed is open again.
    if (before > kBuffer / 2 && c.received.size() <= kBuffer / 2) emit(c, kAck, c.next, nullptr, 0);
    return true;
  }

  void reset(Connection& c) {
    emit(c, kRst | kAck, c.next, nullptr, 0);
    c.broken = true;
  }

  void segment(Connection& c, const Segment& s, double now_ms) {
    if (s.flags & kRst) {
      // The client gets a reset, too.
      const linger at_once{1, 0};
      setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      c.broken = true;
      return;
    }
    if (!c.open) {
      if ((s.flags & (kSyn | kAck)) != (kSyn | kAck) || s.ack != c.next) return;
      c.open = true;
      c.una = c.next;
      c.got = s.seq + 1;
      c.window = s.window;
      emit(c, kAck, c.next, nullptr, 0);
      return push(c, now_ms);
    }
    const uint32_t acked = s.ack - c.una;
    if (s.flags & kAck && acked <= c.unacked.size() + c.fin_sent) {
      const size_t bytes = std::min<size_t>(acked, c.unacked.size());
      if (acked > c.unacked.size()) c.fin_acked = true;
      c.unacked.erase(0, bytes);
      c.una += static_cast<uint32_t>(acked);
      // The board may have received more than was counted as sent after a retransmission began.
      if (static_cast<int32_t>(c.next - c.una) < 0) c.next = c.una;
      c.window = s.window;
      if (acked) c.sent_ms = now_ms;
    }
    bool answer = s.bytes || s.flags & (kFin | kSyn);
    if (s.seq == c.got && !c.board_ended && s.bytes <= kBuffer - std::min(kBuffer, c.received.size())) {
      c.received.append(s.payload, s.bytes);
      c.got += static_cast<uint32_t>(s.bytes);
      if (s.flags & kFin) {
        c.got++;
        c.board_ended = true;
        if (c.received.empty()) shutdown(c.fd, SHUT_WR);
      }
    } else if (s.seq != c.got) {
      answer = true;  // also a probe
    }
    const uint32_t before = c.next;
    push(c, now_ms);
    if (answer && c.next == before) emit(c, kAck, c.next, nullptr, 0);
  }

  Route board_;
  std::function<void(Frame)> send_;
  int listener_ = -1;
  uint16_t listening_ = 0, port_ = 1023;
  uint32_t serial_ = 0;
  std::list<Connection> connections_;
};
