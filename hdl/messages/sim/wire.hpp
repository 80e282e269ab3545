// The wire between boards: Unix datagram sockets, which are lossless; and the faults of a map file.
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "trace.hpp"

using Frame = std::vector<uint8_t>;

[[noreturn]] inline void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] inline void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("error: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  exit(2);
}

inline uint64_t parse_mac(const std::string& text) {
  unsigned b[6];
  char rest;
  if (sscanf(text.c_str(), "%2x:%2x:%2x:%2x:%2x:%2x%c", b, b + 1, b + 2, b + 3, b + 4, b + 5, &rest) != 6) fail("invalid hardware address %s", text.c_str());
  uint64_t mac = 0;
  for (unsigned byte : b) mac = mac << 8 | byte;
  return mac;
}

inline uint32_t parse_ip(const std::string& text) {
  in_addr address;
  if (inet_pton(AF_INET, text.c_str(), &address) != 1) fail("invalid IPv4 address %s", text.c_str());
  return ntohl(address.s_addr);
}

// A descriptor inherited from the launcher; -1: none.
inline int inherited(const char* name) {
  const char* text = getenv(name);
  if (text == nullptr || *text == 0) return -1;
  const int fd = atoi(text);
  if (fcntl(fd, F_GETFD) < 0) fail("%s: %s", name, strerror(errno));
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

inline int descriptor(const char* name) {
  const int fd = inherited(name);
  if (fd < 0) fail("%s is missing (start this program with baltra cluster run)", name);
  return fd;
}

inline sockaddr_un socket_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) fail("invalid path of a socket: %s", path.c_str());
  memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

class Wire {
 public:
  static constexpr size_t kQueue = 64;         // waiting frames, in each direction
  static constexpr size_t kFrameBytes = 1600;  // no frame is longer

  Wire() : fd(descriptor("HUM_WIRE")) { fcntl(fd, F_SETFL, O_NONBLOCK); }

  // "fault KIND N": lose, repeat, swap or vanish at the Nth frame; loss: N percent of them,
  // at random.
  bool fault(const std::string& kind, uint64_t n) {
    if (kind != "lose" && kind != "repeat" && kind != "swap" && kind != "vanish" && kind != "loss") return false;
    faults_[kind] = n;
    return true;
  }

  // A frame for the board; `counted`: subject to faults.
  void deliver(Frame frame, bool counted) {
    trace.in(frame);
    came_ += counted;
    auto is = [&](const char* kind) { return counted && faults_.count(kind) && faults_[kind] == came_; };
    if (is("vanish")) raise(SIGKILL);
    if (is("lose")) return;
    if (counted && faults_.count("loss") && random_() % 100 < faults_["loss"]) return;
    if (is("swap")) {
      kept_ = std::move(frame);
      return;
    }
    if (counted) arrived(frame);
    if (is("repeat")) in.push_back(frame);
    in.push_back(std::move(frame));
    if (!kept_.empty()) in.push_back(std::move(kept_)), kept_.clear();
  }

  // The next frame from the socket, if there is one and space for it.
  bool next(Frame& frame) {
    if (in.size() >= kQueue) return false;
    frame.resize(kFrameBytes);
    const ssize_t n = trace.receive(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0) return false;
    frame.resize(static_cast<size_t>(n) > kFrameBytes ? 0 : static_cast<size_t>(n));
    return true;
  }

  // False: the receiver's queue is full. A frame to a receiver that has gone is dropped,
  // as on a wire.
  bool send(const Frame& frame, const sockaddr_un& to) {
    const ssize_t n = sendto(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    return n >= 0 || (errno != EAGAIN && errno != ENOBUFS);
  }

  // A frame that is subject to faults has arrived.
  virtual void arrived(const Frame&) {}

  const int fd;
  Trace trace;
  std::deque<Frame> in, out;

 private:
  std::map<std::string, uint64_t> faults_;
  std::mt19937 random_{1};
  uint64_t came_ = 0;
  Frame kept_;
};
