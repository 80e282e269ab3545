// The records of a kernel's capture core, in a file that `baltra cluster probe` reads during the
// run and afterwards (crates/cluster/src/probe.rs). All numbers are little-endian:
//
//   0   "BALTRAPB"
//   8   4 bytes: the format's version, 1; 4 bytes: the rank
//   16  8 bytes: capacity in records; the oldest is overwritten by the newest
//   24  8 bytes: total number of written records
//   64  records of 32 bytes: the board's cycle, the beat to the router, the one from it, flags
//       (region_abi.h; bit 8: records before this one were lost)
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "wire.hpp"

class Notes {
 public:
  static constexpr uint64_t kRoom = 65536;

  Notes(const std::string& path, int rank) {
    // A new file, so that readers of the previous run's file can continue.
    unlink(path.c_str());
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    const size_t bytes = sizeof(Head) + kRoom * sizeof(Note);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) fail("%s: %s", path.c_str(), strerror(errno));
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) fail("%s: %s", path.c_str(), strerror(errno));
    close(fd);
    head_ = static_cast<Head*>(at);
    notes_ = reinterpret_cast<Note*>(head_ + 1);
    head_->version = 1;
    head_->rank = static_cast<uint32_t>(rank);
    head_->room = kRoom;
    memcpy(head_->magic, "BALTRAPB", 8);
  }

  void put(uint64_t cycle, uint64_t out, uint64_t in, uint64_t flags) {
    notes_[head_->written % kRoom] = {cycle, out, in, flags};
    __atomic_store_n(&head_->written, head_->written + 1, __ATOMIC_RELEASE);
  }

 private:
  struct Head {
    char magic[8];
    uint32_t version, rank;
    uint64_t room, written;
    uint8_t pad[32];
  };
  struct Note {
    uint64_t cycle, out, in, flags;
  };
  static_assert(sizeof(Head) == 64 && sizeof(Note) == 32);

  Head* head_;
  Note* notes_;
};
