// A live board of the message door: the Verilated fabric, its kernels, and a wire of Unix datagram
// sockets, which is lossless and needs no device or root. `baltra cluster run` starts it with the
// configuration of the map file. BOARD_TCP: its network is TCP (tcp.hpp), BOARD_UDP: UDP, otherwise
// raw Ethernet (both ethernet.hpp).
//
// Each cycle exchanges the streams between fabric and kernels like one netlist: kernels have
// registered outputs, and the fabric's `ready` follows from them. A waiting kernel, and a board on
// which all kernels wait, cost no time.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>

#include "Vmsg_board.h"
#ifdef BOARD_TCP
#include "tcp.hpp"
#else
#include "ethernet.hpp"
#endif
#include "memory.hpp"
#include "ranks.hpp"
#include "verilated.h"

namespace {

const char kUsage[] =
    "usage: messages-board FILE\n"
    "\n"
    "FILE has a line for each:\n"
    "  address MAC                        this board's address\n";
const char kUsageNetwork[] =
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
constexpr int kLookMs = 250;           // between two polls of an idle wire

constexpr unsigned kPorts = 16;

// A rank and its model.
struct Kernel {
  Rank* rank;
  void* model;
  region_in in{};
  region_out out{};
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
  void load(Kernel& kernel);
  void start();
  void cycle();
  bool quiet() const;

  VerilatedContext context_;
  Vmsg_board top_{&context_};
  Ranks ranks_;
  std::vector<Kernel> kernels_;
  Network network_;
  uint64_t own_ = 0, cycles_ = 0, memory_free_ = 0;
  int idle_ = 0, gap_ = 0;
  Frame sending_;
  size_t in_at_ = 0;
};

void Board::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("%s cannot be read", path.c_str());
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what, text;
    words >> what;
    if (what == "address" && words >> text) {
      own_ = parse_mac(text);
    } else if (what == "fault") {
      uint64_t n = 0;
      words >> text >> n;
      if (!network_.fault(text, n)) fail("%s: %s", path.c_str(), line.c_str());
    } else if (!what.empty() && !ranks_.line(what, words, kPorts)) {
      if (!network_.line(what, words)) fail("%s: %s", path.c_str(), line.c_str());
    }
  }
  start();
  for (Rank& rank : ranks_.all) {
    kernels_.push_back({&rank, rank.api->create()});
    if (rank.memory_bytes != 0) kernels_.back().memory.open(rank.memory_bytes);
    load(kernels_.back());
  }
}

// Starts a kernel's run (msg_region).
void Board::load(Kernel& kernel) {
  Rank& rank = *kernel.rank;
  auto tick = [&] { rank.api->tick(kernel.model, &kernel.in, &kernel.out); };
  kernel.in.probe = rank.probe;
  kernel.in.rst = 1;
  for (int i = 0; i < 4; i++) tick();
  kernel.in.rst = 0;
  kernel.in.ready = 1;
  kernel.in.params[0] = static_cast<uint32_t>(rank.rank) | ranks_.ranks << 8;
  kernel.in.params[2] = static_cast<uint32_t>(rank.memory_bytes);
  kernel.in.start = 1;
  tick();
  kernel.in.start = 0;
  kernel.in.valid = 1;
  kernel.in.keep = 0xff;
  for (size_t at = 0; at < rank.program.size();) {
    kernel.in.data = rank.program[at];
    kernel.in.last = at + 1 == rank.program.size();
    const bool taken = kernel.out.ready;
    tick();
    at += taken;
  }
  kernel.in.valid = 0;
  Ranks::started(rank);
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
    for (const Rank& kernel : ranks_.all)
      if (kernel.rank == rank) top_.put_port = static_cast<uint8_t>(kernel.port);
    clock();
  }
  top_.put = 0;
  for (int i = 0; i < 4200; i++) clock();
  network_.start(top_, clock);
}

bool Board::quiet() const {
  return ranks_.all_wait() && network_.in.empty() && network_.out.empty() && sending_.empty() && !top_.tx_valid && top_.m_valid == 0;
}

void Board::cycle() {
  // The fabric reads the kernels' registers.
  uint16_t k_valid = 0, k_last = 0, m_ready = 0xffff;
  for (const Kernel& kernel : kernels_) {
    const unsigned p = kernel.rank->port;
    k_valid |= static_cast<uint16_t>(kernel.out.packet_valid << p);
    k_last |= static_cast<uint16_t>(kernel.out.packet_last << p);
    top_.k_data[p] = kernel.out.packet;
    if (!kernel.out.packet_ready) m_ready &= static_cast<uint16_t>(~(1u << p));
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
    Rank& rank = *kernel.rank;
    const unsigned p = rank.port;
    kernel.in.packet_ready = k_ready >> p & 1;
    kernel.in.packet_valid = m_valid >> p & 1;
    if (rank.waits() && !kernel.in.packet_valid) continue;
    kernel.in.packet_last = m_last >> p & 1;
    kernel.in.packet = top_.m_data[p];
    kernel.in.now = static_cast<uint32_t>(cycles_);
    kernel.memory.clock(cycles_, memory_free_, kernel.out, kernel.in);
    const region_out before = kernel.out;
    rank.api->tick(kernel.model, &kernel.in, &kernel.out);
    if (rank.observe(cycles_, kernel.in, before, kernel.out)) top_.states = (top_.states & ~(3u << 2 * p)) | (rank.code == 0 ? 1u : 2u) << 2 * p;
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
      if (noted && !ranks_.all_wait()) ranks_.note(network_.out_of, network_.in_for), noted = false;
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
    if (idle) ranks_.note(network_.out_of, network_.in_for), noted = true;
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
    for (const char* part : {kUsage, Ranks::kUsage, kUsageNetwork}) fputs(part, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  Board(argv[1]).run();
  return 0;
}
