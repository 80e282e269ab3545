// Files that programs pass to the model.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

constexpr size_t kLibraryMost = 256 << 20;

// A file descriptor that came with a request, or none.
struct File {
  explicit File(int file = -1) : fd(file) {}
  File(File&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~File() {
    if (fd >= 0) close(fd);
  }
  int fd;
};

// The sender keeps its descriptor, so the content is copied.
inline File sealed_copy(int from) {
  struct stat about {};
  if (fstat(from, &about) < 0 || !S_ISREG(about.st_mode) || about.st_size <= 0 || static_cast<size_t>(about.st_size) > kLibraryMost) return File();
  File copy(memfd_create("board-kernels", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  off_t at = 0;
  while (copy.fd >= 0 && at < about.st_size)
    if (sendfile(copy.fd, from, &at, static_cast<size_t>(about.st_size - at)) <= 0) return File();
  if (copy.fd >= 0 && fcntl(copy.fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) return File();
  return copy;
}
