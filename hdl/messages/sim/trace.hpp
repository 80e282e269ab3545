// HUM_TRACE names a file that gets a line for each packet that enters or leaves the model, with the
// host's time and the model's cycle. bench/messages uses it to divide a message's time into the
// host's and the model's.
//
//   in|out NANOSECONDS CYCLE TYPE BYTES SOURCE DESTINATION
//
// Time is CLOCK_REALTIME: when the kernel had the packet in the board's socket, or when the model
// is about to write it. A TCP segment has a line for each packet that begins at the end of another;
// one that begins within a packet is omitted.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "envelope.h"

class Trace {
 public:
  Trace() {
    const char* path = getenv("HUM_TRACE");
    file_ = path != nullptr && *path != 0 ? fopen(path, "a") : nullptr;
  }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace() {
    if (file_ != nullptr) fclose(file_);
  }

  const uint64_t* cycles = nullptr;

  bool on() const { return file_ != nullptr; }

  // Like recv, with the time of arrival.
  ssize_t receive(int socket, void* data, size_t room, int flags) {
    if (file_ == nullptr) return recv(socket, data, room, flags);
    if (socket >= static_cast<int>(stamped_.size())) stamped_.resize(static_cast<size_t>(socket) + 1);
    int yes = 1;
    if (!stamped_[static_cast<size_t>(socket)]) setsockopt(socket, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes);
    stamped_[static_cast<size_t>(socket)] = true;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
    iovec part{data, room};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1, message.msg_control = control, message.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(socket, &message, flags);
    if (n < 0) return n;
    came_ = 0;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c))
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
        timespec at;
        memcpy(&at, CMSG_DATA(c), sizeof at);
        came_ = ns(at);
      }
    return n;
  }

  void in(const std::vector<uint8_t>& frame) {
    note("in", came_, frame);
    came_ = 0;
  }
  void out(const std::vector<uint8_t>& frame) { note("out", 0, frame); }

 private:
  static uint64_t ns(const timespec& at) { return static_cast<uint64_t>(at.tv_sec) * 1000000000 + static_cast<uint64_t>(at.tv_nsec); }

  void note(const char* way, uint64_t at, const std::vector<uint8_t>& frame) {
    if (file_ == nullptr || frame.size() < 40) return;
    if (at == 0) {
      timespec now;
      clock_gettime(CLOCK_REALTIME, &now);
      at = ns(now);
    }
    const bool ip = frame[12] == 8 && frame[13] == 0, tcp = ip && frame[23] == 6;
    const size_t end = ip ? 14u + (frame[16] << 8 | frame[17]) : frame.size();
    const size_t head = tcp ? 34u + frame[46] / 16 * 4 : ip ? 48u : 16u;
    uint64_t word;
    for (size_t place = head; place + sizeof word <= end && end <= frame.size();) {
      memcpy(&word, frame.data() + place, sizeof word);
      const auto type = HUM_FIELD(word, TYPE), size = HUM_FIELD(word, SIZE);
      fprintf(file_, "%s %llu %llu %d %d %d %d\n", way, static_cast<unsigned long long>(at), static_cast<unsigned long long>(cycles != nullptr ? *cycles : 0),
              static_cast<int>(type), static_cast<int>(size), static_cast<int>(HUM_FIELD(word, SRC)), static_cast<int>(HUM_FIELD(word, DEST)));
      if (!tcp) return;
      const bool carries = hum_carries(type) || type == HUM_PACKET_STATE;
      place += sizeof word + (carries ? (size + 7) / 8 * 8 : 0);
    }
  }

  FILE* file_;
  uint64_t came_ = 0;
  std::vector<bool> stamped_;  // sockets with time stamps of the kernel
};
