// A live board of the message door: the Verilated fabric, its kernels, and a wire of Unix datagram sockets, which are
// frames with nothing lost: no device and no root. `baltra cluster run` starts it; the map file says what is on it.
//
// Each clock exchanges the streams between fabric and kernels as one netlist would: kernels show registers, the fabric's
// `ready` follows from them. A kernel that waits for a packet, and a board on which all do, cost nothing.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "Vmsg_board.h"
#include "envelope.h"
#include "kernel_abi.h"
#include "verilated.h"

namespace {

const char kUsage[] =
    "usage: messages-board FILE\n"
    "\n"
    "FILE has a line for each:\n"
    "  address MAC                        this board's\n"
    "  ranks N                            in the cluster\n"
    "  kernel RANK PORT LIBRARY [IMAGE]   a kernel here: its library, its program if it is a processor\n"
    "  peer RANK MAC SOCKET               a rank elsewhere\n"
    "  fault KIND N                       lose, repeat or swap the Nth numbered frame, or vanish at it\n"
    "\n"
    "HUM_WIRE is the descriptor of its socket, HUM_SEGMENT that of the counters that the launcher reads. What kernels print\n"
    "comes out with the rank and a colon before each line, \"RANK ended CODE\" when one is over. It ends when its input does.\n";

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("error: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  exit(2);
}

using Frame = std::vector<uint64_t>;
constexpr size_t kQueue = 64;          // frames that wait, either way
constexpr size_t kFrameBytes = 1600;   // no frame is longer
constexpr int kAfterglow = 64;         // cycles that are run after the last activity
constexpr int kBurst = 32;             // cycles between looks at the socket
constexpr int kFabricIdle = 32;        // cycles in which the fabric has done all that it does by itself
constexpr int kImageWords = 32768;

// The launcher's page (humboldt/src/internal.h): a block of 512 bytes a rank behind the first 4,096.
struct Block {
  uint32_t state, pid, asleep, bound;
  uint8_t pad[48];
  uint64_t sent, sent_bytes, received, received_bytes, waited_ns;
};
constexpr size_t kBlocks = 4096, kBlockBytes = 512;

struct Kernel {
  int rank = -1, port = 0;
  const kernel_api* api = nullptr;
  void* model = nullptr;
  kernel_in in{};
  kernel_out out{};
  std::string line;
  bool out_midway = false, in_midway = false, told = false;
  Block* block = nullptr;
};

struct Peer {
  uint64_t mac = 0;
  sockaddr_un address{};
};

uint64_t parse_mac(const std::string& text) {
  unsigned b[6];
  char rest;
  if (sscanf(text.c_str(), "%2x:%2x:%2x:%2x:%2x:%2x%c", b, b + 1, b + 2, b + 3, b + 4, b + 5, &rest) != 6) fail("%s is no hardware address", text.c_str());
  uint64_t mac = 0;
  for (unsigned byte : b) mac = mac << 8 | byte;
  return mac;
}

int descriptor(const char* name) {
  const char* text = getenv(name);
  if (text == nullptr || *text == 0) fail("%s is missing: baltra cluster run starts this program", name);
  const int fd = atoi(text);
  if (fcntl(fd, F_GETFD) < 0) fail("%s: %s", name, strerror(errno));
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

class Board {
 public:
  explicit Board(const std::string& path) { read(path); }

  void run();

 private:
  void read(const std::string& path);
  void load(Kernel& kernel, const std::string& image);
  void start();
  void cycle();
  bool receive();
  void deliver(Frame frame);
  bool flush();
  void print(Kernel& kernel, char c);
  void count(Kernel& kernel);
  bool quiet() const;

  VerilatedContext context_;
  Vmsg_board top_{&context_};
  std::vector<Kernel> kernels_;
  Kernel* at_[16] = {};
  std::map<int, Peer> peers_;
  std::map<std::string, uint64_t> faults_;
  uint64_t own_ = 0, came_ = 0, cycles_ = 0;
  int ranks_ = 0, wire_ = -1, idle_ = 0;
  std::deque<Frame> in_, out_;
  Frame sending_, kept_;
  size_t in_beat_ = 0;
  uint8_t* segment_ = nullptr;
};

void Board::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("%s cannot be read", path.c_str());
  wire_ = descriptor("HUM_WIRE");
  const int segment = descriptor("HUM_SEGMENT");
  const size_t bytes = kBlocks + kBlockBytes * 256;
  if (ftruncate(segment, static_cast<off_t>(bytes)) != 0) fail("HUM_SEGMENT: %s", strerror(errno));
  segment_ = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0));
  if (segment_ == MAP_FAILED) fail("HUM_SEGMENT: %s", strerror(errno));
  fcntl(wire_, F_SETFL, O_NONBLOCK);
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
      if (find == nullptr) fail("%s is no kernel: %s", text.c_str(), dlerror());
      kernel.api = find();
      if (kernel.api->abi != KERNEL_ABI) fail("%s was made for another board", text.c_str());
      kernel.model = kernel.api->create();
      kernel.block = reinterpret_cast<Block*>(segment_ + kBlocks + kBlockBytes * static_cast<size_t>(kernel.rank));
      kernels_.push_back(kernel);
      images.push_back(more);
    } else if (what == "peer") {
      int rank = -1;
      words >> rank >> text >> more;
      Peer peer;
      peer.mac = parse_mac(text);
      peer.address.sun_family = AF_UNIX;
      if (rank < 0 || rank > 255 || more.empty() || more.size() >= sizeof peer.address.sun_path) fail("%s: %s", path.c_str(), line.c_str());
      memcpy(peer.address.sun_path, more.c_str(), more.size());
      peers_[rank] = peer;
    } else if (what == "fault") {
      uint64_t n = 0;
      words >> text >> n;
      if (text != "lose" && text != "repeat" && text != "swap" && text != "vanish") fail("%s: %s", path.c_str(), line.c_str());
      faults_[text] = n;
    } else if (!what.empty()) fail("%s: %s", path.c_str(), line.c_str());
  }
  start();
  for (size_t i = 0; i < kernels_.size(); i++) {
    at_[kernels_[i].port] = &kernels_[i];
    load(kernels_[i], images[i]);
  }
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
    if (bytes.size() > 4 * kImageWords) fail("%s: %zu bytes, a kernel's memory has %d", image.c_str(), bytes.size(), 4 * kImageWords);
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

// The fabric's tables, and time for its memories to be cleared.
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
    top_.put_address = 0;
    for (const Kernel& kernel : kernels_)
      if (kernel.rank == rank) top_.put_port = static_cast<uint8_t>(kernel.port);
    if (peers_.count(rank)) top_.put_port = 16, top_.put_address = peers_[rank].mac;
    clock();
  }
  top_.put = 0;
  for (int i = 0; i < 4200; i++) clock();
}

void Board::print(Kernel& kernel, char c) {
  if (c != '\n') kernel.line += c;
  if (c == '\n' || kernel.line.size() >= 4096) {
    printf("%d: %s\n", kernel.rank, kernel.line.c_str());
    fflush(stdout);
    kernel.line.clear();
  }
}

// Messages and their bytes, from the packets that pass a kernel's port.
void Board::count(Kernel& kernel) {
  if (kernel.out.m_valid && kernel.in.m_ready) {
    const uint64_t head = kernel.out.m_data;
    if (!kernel.out_midway) {
      const auto type = HUM_FIELD(head, TYPE);
      if (type == HUM_PACKET_ENVELOPE || (type == HUM_PACKET_EAGER && !(HUM_FIELD(head, FLAG) & HUM_FLAG_MORE))) kernel.block->sent++;
      if (type == HUM_PACKET_ENVELOPE || type == HUM_PACKET_EAGER) kernel.block->sent_bytes += HUM_FIELD(head, SIZE);
    }
    kernel.out_midway = !kernel.out.m_last;
  }
  if (kernel.in.s_valid && kernel.out.s_ready) {
    const uint64_t head = kernel.in.s_data;
    if (!kernel.in_midway) {
      const auto type = HUM_FIELD(head, TYPE);
      if (type == HUM_PACKET_DATA || type == HUM_PACKET_EAGER) {
        kernel.block->received += !(HUM_FIELD(head, FLAG) & HUM_FLAG_MORE);
        kernel.block->received_bytes += HUM_FIELD(head, SIZE);
      }
    }
    kernel.in_midway = !kernel.in.s_last;
  }
}

bool Board::quiet() const {
  for (const Kernel& kernel : kernels_)
    if (!kernel.out.still || kernel.out.m_valid) return false;
  return in_.empty() && out_.empty() && sending_.empty() && !top_.tx_valid && top_.m_valid == 0;
}

void Board::cycle() {
  // The fabric sees what the kernels' registers show.
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
  top_.rx_valid = !in_.empty();
  if (top_.rx_valid) {
    top_.rx_data = in_.front()[in_beat_];
    top_.rx_last = in_beat_ + 1 == in_.front().size();
  }
  top_.tx_ready = out_.size() < kQueue;
  // A fabric without packets stands still.
  const bool busy = k_valid != 0 || top_.rx_valid || top_.m_valid != 0 || top_.tx_valid;
  idle_ = busy ? 0 : std::min(idle_ + 1, kFabricIdle);
  if (idle_ < kFabricIdle) top_.eval();
  const uint16_t k_ready = top_.k_ready, m_valid = top_.m_valid, m_last = top_.m_last;
  if (top_.rx_valid && top_.rx_ready) {
    if (top_.rx_last) in_.pop_front(), in_beat_ = 0;
    else in_beat_++;
  }
  if (top_.tx_valid && top_.tx_ready) {
    sending_.push_back(top_.tx_data);
    if (top_.tx_last) out_.push_back(std::move(sending_)), sending_.clear();
  }
  for (Kernel& kernel : kernels_) {
    const int p = kernel.port;
    kernel.in.m_ready = k_ready >> p & 1;
    kernel.in.s_valid = m_valid >> p & 1;
    if (kernel.out.still && !kernel.in.s_valid && !kernel.out.m_valid) continue;
    kernel.in.s_last = m_last >> p & 1;
    kernel.in.s_data = top_.m_data[p];
    count(kernel);
    kernel.api->tick(kernel.model, &kernel.in, &kernel.out);
    if (kernel.out.text_valid) print(kernel, static_cast<char>(kernel.out.text));
    if (kernel.out.ended && !kernel.told) {
      kernel.told = true;
      if (!kernel.line.empty()) print(kernel, '\n');
      kernel.block->state = kernel.out.code == 0 ? 2 : 3;
      top_.states = (top_.states & ~(3u << 2 * p)) | (kernel.out.code == 0 ? 1u : 2u) << 2 * p;
      printf("%d ended %d\n", kernel.rank, kernel.out.code);
      fflush(stdout);
    }
  }
  if (idle_ < kFabricIdle) {
    top_.clk = 1;
    top_.eval();
    top_.clk = 0;
    top_.eval();
  }
  cycles_++;
}

void Board::deliver(Frame frame) {
  // Questions come when they like.
  const bool numbered = HUM_FIELD(frame[2], TYPE) != HUM_PACKET_PROBE;
  came_ += numbered;
  auto is = [&](const char* kind) { return numbered && faults_.count(kind) && faults_[kind] == came_; };
  if (is("vanish")) raise(SIGKILL);
  if (is("lose")) return;
  if (is("swap")) {
    kept_ = std::move(frame);
    return;
  }
  if (is("repeat")) in_.push_back(frame);
  in_.push_back(std::move(frame));
  if (!kept_.empty()) in_.push_back(std::move(kept_)), kept_.clear();
}

bool Board::receive() {
  bool got = false;
  while (in_.size() < kQueue) {
    uint64_t buffer[kFrameBytes / 8];
    const ssize_t n = recv(wire_, buffer, sizeof buffer, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0) break;
    got = true;
    // A MAC's part: lengths. What a packet says of its own is beneath that of its frame.
    if (n < 24 || n % 8 != 0 || static_cast<size_t>(n) > sizeof buffer) continue;
    const uint64_t head = buffer[2];
    const auto type = HUM_FIELD(head, TYPE);
    const bool carries = type == HUM_PACKET_DATA || type == HUM_PACKET_EAGER || type == HUM_PACKET_STREAM;
    if (carries && 24 + HUM_FIELD(head, SIZE) > static_cast<uint64_t>(n)) continue;
    deliver(Frame(buffer, buffer + n / 8));
  }
  return got;
}

// Sends what waits. A receiver whose queue is full makes it wait; one that is gone gets nothing, as on a wire.
bool Board::flush() {
  while (!out_.empty()) {
    const Frame& frame = out_.front();
    const auto peer = peers_.find(static_cast<int>(HUM_FIELD(frame[2], DEST)));
    if (peer != peers_.end()) {
      const ssize_t n = sendto(wire_, frame.data(), frame.size() * 8, MSG_DONTWAIT | MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&peer->second.address), sizeof peer->second.address);
      if (n < 0 && (errno == EAGAIN || errno == ENOBUFS)) return false;
    }
    out_.pop_front();
  }
  return true;
}

void Board::run() {
  int still = 0;
  for (;;) {
    if (receive() || !quiet()) still = 0;
    const bool sent = flush();
    if (still < kAfterglow) {
      for (int i = 0; i < kBurst; i++) cycle();
      still += kBurst;
      if ((cycles_ & 0xfff) < kBurst) {
        pollfd input{0, POLLIN, 0};
        char drop[64];
        if (poll(&input, 1, 0) > 0 && ::read(0, drop, sizeof drop) <= 0) return;
      }
      // Nothing but a slow receiver to wait for.
      if (!sent && out_.size() >= kQueue) usleep(100);
      continue;
    }
    pollfd waits[2] = {{wire_, POLLIN, 0}, {0, POLLIN, 0}};
    poll(waits, 2, sent ? -1 : 1);
    char drop[64];
    if (waits[1].revents != 0 && ::read(0, drop, sizeof drop) <= 0) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    const bool asked = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fputs(kUsage, asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  Board(argv[1]).run();
  return 0;
}
