// Writes frames to a file that tcpdump and Wireshark read (pcap with nanoseconds).
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

class Pcap {
 public:
  // An empty path keeps nothing.
  explicit Pcap(const std::string& path) {
    if (path.empty()) return;
    file_ = fopen(path.c_str(), "wb");
    if (!file_) {
      perror(path.c_str());
      exit(2);
    }
    const uint32_t header[6] = {0xa1b23c4d, 0x00040002, 0, 0, 65535, 1 /* Ethernet */};
    fwrite(header, sizeof header, 1, file_);
  }
  ~Pcap() {
    if (file_) fclose(file_);
  }
  void put(const std::vector<uint8_t>& frame) {
    if (!file_) return;
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const uint32_t n = static_cast<uint32_t>(frame.size());
    const uint32_t header[4] = {static_cast<uint32_t>(t.tv_sec), static_cast<uint32_t>(t.tv_nsec), n, n};
    fwrite(header, sizeof header, 1, file_);
    fwrite(frame.data(), n, 1, file_);
    fflush(file_);
  }

 private:
  FILE* file_ = nullptr;
};
