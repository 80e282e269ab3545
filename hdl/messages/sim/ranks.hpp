// The ranks of a live board: kernels from libraries, their output, counters and captures.
#pragma once
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "envelope.h"
#include "notes.hpp"
#include "region_abi.h"
#include "wire.hpp"

// The launcher's page (humboldt/src/internal.h, crates/cluster/src/job.rs): a block of 512 bytes
// per rank after the first 4,096.
struct Block {
  uint32_t state, pid, asleep, bound;
  uint64_t looks, waits, out, in;  // only for kernels: see Ranks::note
  uint8_t pad[16];
  uint64_t sent, sent_bytes, received, received_bytes, waited_ns;
};
static_assert(sizeof(Block) == 104 && offsetof(Block, sent) == 64);

// A kernel that is a rank.
struct Rank {
  int rank = -1;
  unsigned port = 0;
  const region_api* api = nullptr;
  std::vector<uint64_t> program;  // of a processor; a zero otherwise
  uint64_t memory_bytes = 0;
  uint8_t probe = 0;              // captured streams (region_abi.h)
  region_rank seen{};             // after its last cycle
  bool sends = false;             // a packet is at its port
  std::string line;
  bool out_midway = false, in_midway = false;
  uint8_t code = 0;
  Block* block = nullptr;
  Notes* notes = nullptr;

  bool waits() const { return seen.still && !sends; }

  // A cycle: inputs and outputs before its edge, and outputs after it. True: its run has ended.
  bool observe(uint64_t cycle, const region_in& in, const region_out& before, const region_out& after) {
    count(in, before);
    seen = after.rank;
    sends = after.packet_valid;
    if (seen.note_valid && notes != nullptr) {
      const uint64_t at = cycle - static_cast<uint32_t>(in.now - seen.note_at);
      notes->put(at, seen.note_out, seen.note_in, seen.note_flags | uint64_t(seen.note_gap) << 8);
    }
    if (seen.text_valid) print(static_cast<char>(seen.text));
    if (after.valid) code = static_cast<uint8_t>(after.data);
    if (!after.done) return false;
    if (!line.empty()) print('\n');
    block->state = code == 0 ? 2 : 3;
    printf("%d ended %d\n", rank, code);
    fflush(stdout);
    return true;
  }

 private:
  void print(char c) {
    if (c != '\n') line += c;
    if (c == '\n' || line.size() >= 4096) {
      printf("%d: %s\n", rank, line.c_str());
      fflush(stdout);
      line.clear();
    }
  }

  // Counts messages and their bytes, from the packets at a kernel's port.
  void count(const region_in& in, const region_out& out) {
    if (out.packet_valid && in.packet_ready) {
      const uint64_t head = out.packet;
      if (!out_midway) {
        const auto type = HUM_FIELD(head, TYPE);
        const bool at_once = hum_carries(type) && type != HUM_PACKET_DATA;
        if (type == HUM_PACKET_ENVELOPE || (at_once && !(HUM_FIELD(head, FLAG) & HUM_FLAG_MORE))) block->sent++;
        if (type == HUM_PACKET_ENVELOPE || at_once) block->sent_bytes += HUM_FIELD(head, SIZE);
      }
      out_midway = !out.packet_last;
    }
    if (in.packet_valid && out.packet_ready) {
      const uint64_t head = in.packet;
      if (!in_midway && hum_carries(HUM_FIELD(head, TYPE))) {
        block->received += !(HUM_FIELD(head, FLAG) & HUM_FLAG_MORE);
        block->received_bytes += HUM_FIELD(head, SIZE);
      }
      in_midway = !in.packet_last;
    }
  }
};

// The kernels of a configuration file.
class Ranks {
 public:
  Ranks() {
    const int segment = descriptor("HUM_SEGMENT");
    const size_t bytes = kBlocks + kBlockBytes * 256;
    if (ftruncate(segment, static_cast<off_t>(bytes)) != 0) fail("HUM_SEGMENT: %s", strerror(errno));
    segment_ = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0));
    if (segment_ == MAP_FAILED) fail("HUM_SEGMENT: %s", strerror(errno));
  }

  std::vector<Rank> all;
  unsigned ranks = 0;  // in the cluster

  // A line of the file; false: it is invalid, or of another kind. `ports`: of the board.
  bool line(const std::string& what, std::istringstream& words, unsigned ports) {
    int rank = -1;
    std::string text, more;
    if (what == "ranks") return bool(words >> ranks) && ranks <= 256;
    if (what == "kernel") {
      Rank kernel;
      words >> kernel.rank >> kernel.port >> text;
      words >> more;
      if (kernel.rank < 0 || kernel.rank > 255 || kernel.port >= ports || text.empty()) return false;
      void* library = dlopen(text.c_str(), RTLD_NOW | RTLD_LOCAL);
      auto find = library ? reinterpret_cast<region_entry>(dlsym(library, "baltra_region")) : nullptr;
      if (find == nullptr) fail("%s is not a kernel: %s", text.c_str(), dlerror());
      kernel.api = find();
      if (kernel.api->abi != REGION_ABI) fail("%s was built for another board (rebuild it)", text.c_str());
      kernel.block = reinterpret_cast<Block*>(segment_ + kBlocks + kBlockBytes * static_cast<size_t>(kernel.rank));
      load(kernel, more);
      all.push_back(std::move(kernel));
      return true;
    }
    if (what == "memory") {
      uint64_t bytes = 0;
      words >> rank >> bytes;
      Rank* kernel = find(rank);
      if (kernel == nullptr || bytes == 0 || bytes % 64 != 0 || bytes > kMemoryMost) return false;
      kernel->memory_bytes = bytes;
      return true;
    }
    if (what == "probe") {
      words >> rank >> text >> more;
      Rank* kernel = find(rank);
      if (kernel == nullptr || more.empty()) return false;
      kernel->probe = text == "out" ? 1 : text == "in" ? 2 : 3;
      kernel->notes = new Notes(more, rank);
      return true;
    }
    return false;
  }

  // A kernel's run has begun.
  static void started(Rank& kernel) {
    kernel.block->pid = static_cast<uint32_t>(getpid());
    kernel.block->state = 1;
  }

  bool all_wait() const {
    return std::all_of(all.begin(), all.end(), [](const Rank& kernel) { return kernel.waits(); });
  }

  // For the detection of stalls: whether all kernels here wait, for which ranks, how often the wire
  // has been polled meanwhile, and the packets received from and sent to other boards. PROBE packets
  // of processes wake no kernel.
  void note(const uint64_t (&out_of)[256], const uint64_t (&in_for)[256]) {
    const bool asleep = all_wait();
    for (Rank& kernel : all) {
      Block& block = *kernel.block;
      block.waits = kernel.seen.waits;
      block.out = out_of[kernel.rank];
      block.in = in_for[kernel.rank];
      block.looks += asleep;
      __atomic_store_n(&block.asleep, asleep, __ATOMIC_RELEASE);
    }
  }

 private:
  static constexpr size_t kBlocks = 4096, kBlockBytes = 512;
  static constexpr size_t kProgramMost = 4 * 32768;
  static constexpr uint64_t kMemoryMost = 1u << 28;  // memory_guard

  Rank* find(int rank) {
    const auto whose = std::find_if(all.begin(), all.end(), [&](const Rank& kernel) { return kernel.rank == rank; });
    return whose == all.end() ? nullptr : &*whose;
  }

  static void load(Rank& kernel, const std::string& image) {
    kernel.program.assign(1, 0);
    if (image.empty()) return;
    std::ifstream file(image, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file || bytes.empty()) fail("%s cannot be read", image.c_str());
    if (bytes.size() > kProgramMost) fail("%s has %zu bytes, but a kernel's memory has %zu", image.c_str(), bytes.size(), kProgramMost);
    kernel.program.assign((bytes.size() + 7) / 8, 0);
    memcpy(kernel.program.data(), bytes.data(), bytes.size());
  }

  uint8_t* segment_ = nullptr;
};
