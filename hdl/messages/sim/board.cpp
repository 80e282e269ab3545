// A live board of the message door: the Verilated fabric, its kernels, and a wire of Unix datagram
// sockets, which is lossless and needs no device or root. `baltra cluster run` starts it with the
// configuration of the map file. BOARD_TCP: its network is TCP (tcp.hpp), BOARD_UDP: UDP, otherwise
// raw Ethernet (both ethernet.hpp).
//
// Each cycle exchanges the streams between fabric and kernels like one netlist: kernels have
// registered outputs, and the fabric's `ready` follows from them. A waiting kernel, and a board on
// which all kernels wait, cost no time.
#include <dlfcn.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>

#ifdef BOARD_TCP
#include "tcp.hpp"
#else
#include "ethernet.hpp"
#endif
#include "envelope.h"
#include "kernel_abi.h"
#include "memory.hpp"
#include "notes.hpp"
#include "verilated.h"

namespace {

const char kUsage[] =
    "usage: messages-board FILE\n"
    "\n"
    "FILE has a line for each:\n"
    "  address MAC                        this board's address\n"
    "  ranks N                            in the cluster\n"
    "  kernel RANK PORT LIBRARY [IMAGE]   a kernel of this board: its library, and its program if it is a processor\n"
    "  memory RANK BYTES                  a kernel's off-chip memory, a multiple of 64 bytes\n"
    "  probe RANK out|in|both FILE        captures these streams of a kernel to a file\n"
#ifdef BOARD_TCP
    "  tcp IP STATION PORT                this board as a station; the port is common to all\n"
    "  station N ROLE IP [MAC SOCKET]     1: this board connects to it, 2: it connects; destination of a board's frames\n"
    "  peer RANK STATION                  a rank of another station\n"
#elif defined BOARD_UDP
    "  udp IP                             this board's address\n"
    "  peer RANK MAC SOCKET IP [board]    a rank of another station, on a board\n"
#else
    "  peer RANK MAC SOCKET - [board]     a rank of another station, on a board\n"
#endif
    "  fault KIND N                       lose, repeat or swap the Nth numbered frame, or vanish at it; loss: N percent of them\n"
    "\n"
#ifdef BOARD_TCP
    "HUM_KEY is the job's key, HUM_LISTEN the descriptor of the socket to which processes connect. "
#endif
    "HUM_WIRE is the descriptor of its socket, HUM_SEGMENT that of the counters that the launcher reads. The output of kernels\n"
    "has the rank and a colon before each line, \"RANK ended CODE\" when a kernel has ended. The program ends at the end of its input.\n";

constexpr int kAfterglow = 2 * Network::kIdle;  // cycles that are run after the last activity
constexpr int kBurst = 32;             // cycles between polls of the socket
constexpr int kImageWords = 32768;
constexpr uint64_t kMemoryMax = 1u << 30;  // of a kernel
constexpr int kLookMs = 250;           // between two polls of an idle wire

// The launcher's page (humboldt/src/internal.h, crates/cluster/src/job.rs): a block of 512 bytes
// per rank after the first 4,096.
struct Block {
  uint32_t state, pid, asleep, bound;
  uint64_t looks, waits, out, in;  // only for kernels: see note()
  uint8_t pad[16];
  uint64_t sent, sent_bytes, received, received_bytes, waited_ns;
};
static_assert(sizeof(Block) == 104 && offsetof(Block, sent) == 64);
constexpr size_t kBlocks = 4096, kBlockBytes = 512;

struct Kernel {
  int rank = -1, port = 0;
  const kernel_api* api = nullptr;
  void* model = nullptr;
  kernel_in in{};
  kernel_out out{};
  std::string line;
  bool out_midway = false, in_midway = false, reported = false;
  Block* block = nullptr;
  Notes* notes = nullptr;
  Memory memory;
};

class Board {
 public:
  explicit Board(const std::string& path) {
    network_.trace.cycles = &cycles_;
    read(path);
  }

  void run();

 private:
  void read(const std::string& path);
  Kernel& kernel_of(int rank, const std::string& line);
  void load(Kernel& kernel, const std::string& image);
  void start();
  void cycle();
  void print(Kernel& kernel, char c);
  void count(Kernel& kernel);
  bool asleep() const;
  bool quiet() const;
  void note();

  VerilatedContext context_;
  Vmsg_board top_{&context_};
  std::vector<Kernel> kernels_;
  Kernel* at_[16] = {};
  Network network_;
  uint64_t own_ = 0, cycles_ = 0, memory_free_ = 0;
  int ranks_ = 0, idle_ = 0, gap_ = 0;
  Frame sending_;
  size_t in_at_ = 0;
  uint8_t* segment_ = nullptr;
};

void Board::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("%s cannot be read", path.c_str());
  const int segment = descriptor("HUM_SEGMENT");
  const size_t bytes = kBlocks + kBlockBytes * 256;
  if (ftruncate(segment, static_cast<off_t>(bytes)) != 0) fail("HUM_SEGMENT: %s", strerror(errno));
  segment_ = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0));
  if (segment_ == MAP_FAILED) fail("HUM_SEGMENT: %s", strerror(errno));
  std::vector<std::string> images;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what, text, more;
    words >> what;
    if (what == "address" && words >> text) own_ = parse_mac(text);
    else if (what == "ranks" && words >> ranks_) continue;
    else if (what == "kernel") {
      Kernel kernel;
      words >> kernel.rank >> kernel.port >> text;
      words >> more;
      if (kernel.rank < 0 || kernel.rank > 255 || kernel.port < 0 || kernel.port > 15 || text.empty()) fail("%s: %s", path.c_str(), line.c_str());
      void* library = dlopen(text.c_str(), RTLD_NOW | RTLD_LOCAL);
      auto find = library ? reinterpret_cast<const kernel_api* (*)()>(dlsym(library, "baltra_kernel")) : nullptr;
      if (find == nullptr) fail("%s is not a kernel: %s", text.c_str(), dlerror());
      kernel.api = find();
      if (kernel.api->abi != KERNEL_ABI) fail("%s was built for another board (rebuild it)", text.c_str());
      kernel.model = kernel.api->create();
      kernel.block = reinterpret_cast<Block*>(segment_ + kBlocks + kBlockBytes * static_cast<size_t>(kernel.rank));
      kernels_.push_back(kernel);
      images.push_back(more);
    } else if (what == "memory") {
      int rank = -1;
      uint64_t bytes = 0;
      words >> rank >> bytes;
      if (bytes == 0 || bytes % (8 * MEMORY_BEATS) != 0 || bytes > kMemoryMax) fail("%s: %s", path.c_str(), line.c_str());
      kernel_of(rank, line).memory.open(bytes);
    } else if (what == "probe") {
      int rank = -1;
      words >> rank >> text >> more;
      if (more.empty()) fail("%s: %s", path.c_str(), line.c_str());
      Kernel& kernel = kernel_of(rank, line);
      kernel.in.probe = text == "out" ? 1 : text == "in" ? 2 : 3;
      kernel.notes = new Notes(more, rank);
    } else if (what == "fault") {
      uint64_t n = 0;
      words >> text >> n;
      if (!network_.fault(text, n)) fail("%s: %s", path.c_str(), line.c_str());
    } else if (!what.empty() && !network_.line(what, words)) fail("%s: %s", path.c_str(), line.c_str());
  }
  start();
  for (size_t i = 0; i < kernels_.size(); i++) {
    at_[kernels_[i].port] = &kernels_[i];
    load(kernels_[i], images[i]);
  }
}

Kernel& Board::kernel_of(int rank, const std::string& line) {
  const auto whose = std::find_if(kernels_.begin(), kernels_.end(), [&](const Kernel& kernel) { return kernel.rank == rank; });
  if (whose == kernels_.end()) fail("unknown kernel: %s", line.c_str());
  return *whose;
}

void Board::load(Kernel& kernel, const std::string& image) {
  kernel.in.rst = 1;
  kernel.in.own = static_cast<uint8_t>(kernel.rank);
  kernel.in.ranks = static_cast<uint16_t>(ranks_);
  for (int i = 0; i < 4; i++) kernel.api->tick(kernel.model, &kernel.in, &kernel.out);
  if (!image.empty()) {
    std::ifstream file(image, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file || bytes.empty()) fail("%s cannot be read", image.c_str());
    if (bytes.size() > 4 * kImageWords) fail("%s has %zu bytes, but a kernel's memory has %d", image.c_str(), bytes.size(), 4 * kImageWords);
    bytes.resize((bytes.size() + 3) & ~size_t(3));
    kernel.in.load_valid = 1;
    for (size_t i = 0; i < bytes.size(); i += 4) {
      kernel.in.load_address = static_cast<uint16_t>(i / 4);
      memcpy(&kernel.in.load_data, &bytes[i], 4);
      kernel.api->tick(kernel.model, &kernel.in, &kernel.out);
    }
    kernel.in.load_valid = 0;
  }
  kernel.in.rst = 0;
  kernel.block->pid = static_cast<uint32_t>(getpid());
  kernel.block->state = 1;
}

// Fills the fabric's tables, after the time for clearing its memories.
void Board::start() {
  auto clock = [&] {
    top_.clk = 1;
    top_.eval();
    top_.clk = 0;
    top_.eval();
  };
  top_.own = own_;
  top_.rst = 1;
  for (int i = 0; i < 4; i++) clock();
  top_.rst = 0;
  top_.put = 1;
  for (int rank = 0; rank < 256; rank++) {
    top_.put_rank = static_cast<uint8_t>(rank);
    top_.put_port = 31;
    network_.put(top_, rank);
    for (const Kernel& kernel : kernels_)
      if (kernel.rank == rank) top_.put_port = static_cast<uint8_t>(kernel.port);
    clock();
  }
  top_.put = 0;
  for (int i = 0; i < 4200; i++) clock();
  network_.start(top_, clock);
}

void Board::print(Kernel& kernel, char c) {
  if (c != '\n') kernel.line += c;
  if (c == '\n' || kernel.line.size() >= 4096) {
    printf("%d: %s\n", kernel.rank, kernel.line.c_str());
    fflush(stdout);
    kernel.line.clear();
  }
}

// Counts messages and their bytes, from the packets at a kernel's port.
void Board::count(Kernel& kernel) {
  if (kernel.out.m_valid && kernel.in.m_ready) {
    const uint64_t head = kernel.out.m_data;
    if (!kernel.out_midway) {
      const auto type = HUM_FIELD(head, TYPE);
      const bool at_once = hum_carries(type) && type != HUM_PACKET_DATA;
      if (type == HUM_PACKET_ENVELOPE || (at_once && !(HUM_FIELD(head, FLAG) & HUM_FLAG_MORE))) kernel.block->sent++;
      if (type == HUM_PACKET_ENVELOPE || at_once) kernel.block->sent_bytes += HUM_FIELD(head, SIZE);
    }
    kernel.out_midway = !kernel.out.m_last;
  }
  if (kernel.in.s_valid && kernel.out.s_ready) {
    const uint64_t head = kernel.in.s_data;
    if (!kernel.in_midway) {
      const auto type = HUM_FIELD(head, TYPE);
      if (hum_carries(type)) {
        kernel.block->received += !(HUM_FIELD(head, FLAG) & HUM_FLAG_MORE);
        kernel.block->received_bytes += HUM_FIELD(head, SIZE);
      }
    }
    kernel.in_midway = !kernel.in.s_last;
  }
}

bool Board::asleep() const {
  return std::all_of(kernels_.begin(), kernels_.end(), [](const Kernel& kernel) { return kernel.out.still && !kernel.out.m_valid; });
}

bool Board::quiet() const {
  return asleep() && network_.in.empty() && network_.out.empty() && sending_.empty() && !top_.tx_valid && top_.m_valid == 0;
}

// For the detection of stalls: whether all kernels here wait, for which ranks, how often the wire
// has been polled meanwhile, and the packets received from and sent to other boards. PROBE packets
// of processes wake no kernel.
void Board::note() {
  for (Kernel& kernel : kernels_) {
    Block& block = *kernel.block;
    block.waits = kernel.out.waits;
    block.out = network_.out_of[kernel.rank];
    block.in = network_.in_for[kernel.rank];
    block.looks += asleep();
    __atomic_store_n(&block.asleep, asleep(), __ATOMIC_RELEASE);
  }
}

void Board::cycle() {
  // The fabric reads the kernels' registers.
  uint16_t k_valid = 0, k_last = 0, m_ready = 0xffff;
  for (const Kernel& kernel : kernels_) {
    const int p = kernel.port;
    k_valid |= static_cast<uint16_t>(kernel.out.m_valid << p);
    k_last |= static_cast<uint16_t>(kernel.out.m_last << p);
    top_.k_data[p] = kernel.out.m_data;
    if (!kernel.out.s_ready) m_ready &= static_cast<uint16_t>(~(1u << p));
  }
  top_.k_valid = k_valid;
  top_.k_last = k_last;
  top_.m_ready = m_ready;
  if (gap_ > 0) gap_--;
  top_.rx_valid = gap_ == 0 && !network_.in.empty();
  if (top_.rx_valid) {
    const Frame& frame = network_.in.front();
    const size_t bytes = std::min<size_t>(8, frame.size() - in_at_);
    top_.rx_data = 0;
    memcpy(&top_.rx_data, frame.data() + in_at_, bytes);
    top_.rx_keep = static_cast<uint8_t>((1u << bytes) - 1);
    top_.rx_last = in_at_ + bytes == frame.size();
  }
  top_.tx_ready = network_.out.size() < Wire::kQueue;
  // A fabric without packets is not clocked.
  const bool busy = k_valid != 0 || !network_.in.empty() || top_.m_valid != 0 || top_.tx_valid || top_.tick;
  idle_ = busy ? 0 : std::min(idle_ + 1, Network::kIdle);
  if (idle_ < Network::kIdle) {
    // The falling edge, which nothing in the fabric depends on, with the cycle's inputs.
    top_.clk = 0;
    top_.eval();
  }
  const uint16_t k_ready = top_.k_ready, m_valid = top_.m_valid, m_last = top_.m_last;
  if (top_.rx_valid && top_.rx_ready) {
    if (top_.rx_last) network_.in.pop_front(), in_at_ = 0, gap_ = Network::kGap;
    else in_at_ += 8;
  }
  if (top_.tx_valid && top_.tx_ready) {
    const uint64_t data = top_.tx_data;
    const auto* bytes = reinterpret_cast<const uint8_t*>(&data);
    sending_.insert(sending_.end(), bytes, bytes + __builtin_popcount(top_.tx_keep));
    if (top_.tx_last) {
      network_.trace.out(sending_);
      network_.departed(sending_);
      network_.out.push_back(std::move(sending_));
      sending_.clear();
      network_.flush();  // at once, so that a waiting receiver needs no further cycles
    }
  }
  for (Kernel& kernel : kernels_) {
    const int p = kernel.port;
    kernel.in.m_ready = k_ready >> p & 1;
    kernel.in.s_valid = m_valid >> p & 1;
    if (kernel.out.still && !kernel.in.s_valid && !kernel.out.m_valid) continue;
    kernel.in.s_last = m_last >> p & 1;
    kernel.in.s_data = top_.m_data[p];
    kernel.in.now = static_cast<uint32_t>(cycles_);
    count(kernel);
    kernel.memory.clock(cycles_, memory_free_, kernel.out, kernel.in);
    kernel.api->tick(kernel.model, &kernel.in, &kernel.out);
    if (kernel.out.note_valid && kernel.notes != nullptr) {
      const uint64_t at = cycles_ - static_cast<uint32_t>(kernel.in.now - kernel.out.note_at);
      kernel.notes->put(at, kernel.out.note_out, kernel.out.note_in, kernel.out.note_flags | uint64_t(kernel.out.note_gap) << 8);
    }
    if (kernel.out.text_valid) print(kernel, static_cast<char>(kernel.out.text));
    if (kernel.out.ended && !kernel.reported) {
      kernel.reported = true;
      if (!kernel.line.empty()) print(kernel, '\n');
      kernel.block->state = kernel.out.code == 0 ? 2 : 3;
      top_.states = (top_.states & ~(3u << 2 * p)) | (kernel.out.code == 0 ? 1u : 2u) << 2 * p;
      printf("%d ended %d\n", kernel.rank, kernel.out.code);
      fflush(stdout);
    }
  }
  if (idle_ < Network::kIdle) {
    top_.clk = 1;
    top_.eval();
    network_.look(top_);
  }
  cycles_++;
}

void Board::run() {
  int still = 0;
  bool noted = false;
  const char* text = getenv("HUM_SPIN_US");
  const std::chrono::microseconds spin(text == nullptr ? 0 : atoi(text));
  auto since = std::chrono::steady_clock::now();
  auto over = [] {
    char drop[64];
    return ::read(0, drop, sizeof drop) <= 0;
  };
  for (;;) {
    if (network_.receive() || !quiet()) still = 0;
    const bool sent = network_.flush();
    if (network_.pass(top_)) still = 0;
    if (still < kAfterglow) {
      if (noted && !asleep()) note(), noted = false;
      for (int i = 0; i < kBurst; i++) cycle();
      still += kBurst;
      since = std::chrono::steady_clock::now();
      if ((cycles_ & 0xfff) < kBurst) {
        pollfd input{0, POLLIN, 0};
        if (poll(&input, 1, 0) > 0 && over()) return;
      }
      // Only a slow receiver can delay this.
      if (!sent && network_.out.size() >= Wire::kQueue) usleep(100);
      continue;
    }
    // A process that wakes a sleeper also waits for the kernel.
    if (std::chrono::steady_clock::now() - since < spin) continue;
    // A session with retransmissions in progress has not ended.
    const bool idle = sent && !network_.timed();
    if (idle) note(), noted = true;
    std::vector<pollfd> waits = network_.waits();
    waits.push_back({0, POLLIN, 0});
    poll(waits.data(), waits.size(), idle ? kLookMs : 1);
    if (waits.back().revents != 0 && over()) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    const bool help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fputs(kUsage, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  Board(argv[1]).run();
  return 0;
}
