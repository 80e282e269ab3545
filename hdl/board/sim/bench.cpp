// Counts cycles of the shell: latency of a small call, bulk throughput, calls per second, cold
// starts, and the steps of a call. A client inside this program runs TCP with the model over a
// lossless line at the shell's own width; time is in cycles, with a tick of the timers every
// 156,250 cycles (a millisecond at 156.25 MHz). Results are reproducible for the same arguments.
//
// With BOARD_PORT32 (bench-port32 [PORT_MHZ CORE_MHZ]) the line has 32 bits and its own clock:
// latency and bulk are in the port's cycles, and in microseconds at these clocks; a tick comes
// every 62,500 cycles of the shell.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <random>

#include "functions.hpp"
#include "peer.hpp"

constexpr unsigned W = 64;  // of board memory
#include "../../functions/tb/image.hpp"

namespace {

constexpr uint64_t kMac = 0x020000000002;
constexpr uint32_t kIp = 0x0a630002, kPeerIp = 0x0a630101;
#ifdef BOARD_PORT32
constexpr uint64_t kTick = 62500;
constexpr double kClock = 62.5e6;
#else
constexpr uint64_t kTick = 156250;
constexpr double kClock = 156.25e6;
#endif
constexpr size_t kWord = Board::kWordBytes;

std::string own_directory() {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  std::string whole(path, static_cast<size_t>(n > 0 ? n : 0));
  return whole.substr(0, whole.rfind('/'));
}

constexpr uint32_t kEchoKernel = 0;
constexpr uint32_t kSmallImage = 4096;  // bytes: for measurements with a loaded image

struct Bench {
  Board board{kMac, kIp, 80, 0x0123456789abcdef, own_directory() + "/kernels"};
  functions::Store store{board};
  std::vector<std::unique_ptr<Peer>> peers;

  Bench() {
    for (const char* name : {"echo", "echo1", "echo2", "echo3"}) define(name, image(kSmallImage));
    board.on_frame = [this](const Frame& f) {
      for (auto& peer : peers)
        if (peer->take(f)) return;
    };
  }
  // An image of echo in board memory.
  uint32_t image(size_t bytes, uint32_t kernel = kEchoKernel) {
    bench::Image image;
    image.shell = Board::kShell;
    image.kernel = kernel;
    std::mt19937 draw(3);
    image.body.resize(bytes / 4);
    for (uint32_t& w : image.body) w = static_cast<uint32_t>(draw());
    const auto words = image.words();
    const char* first = reinterpret_cast<const char*>(words.data());
    return store.add("bench", std::vector<char>(first, first + 4 * words.size()));
  }
  // Every function loaded under this name is loaded again at its next call.
  void define(const std::string& name, uint32_t image) {
    FunctionEntry entry;
    entry.image = image;
    if (!board.define(name, entry)) throw std::runtime_error("the function table is full");
  }
  void step() {
    if (board.cycles % kTick == 0) board.tick();
    else board.step();
  }
  void steps(uint64_t n) {
    for (uint64_t i = 0; i < n; i++) step();
  }
  Peer& connect() {
    peers.push_back(std::make_unique<Peer>(board, kMac, kIp, kPeerIp, static_cast<uint16_t>(20000 + peers.size())));
    Peer& peer = *peers.back();
    peer.connect();
    while (!peer.connected()) step();
    steps(200);
    return peer;
  }
};

std::string request(const std::string& body, const std::string& name = "echo") {
  return "POST /function/" + name + " HTTP/1.1\r\nHost: 10.99.0.2\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

constexpr size_t kAnswerHead = 45;

[[noreturn]] void wrong(const char* what) {
  fprintf(stderr, "error: %s\n", what);
  exit(1);
}

// One call; cycles from its last byte in to the first byte of its reply out.
uint64_t call(Bench& bench, Peer& peer, const std::string& body, const std::string& name = "echo") {
  peer.received.clear();
  peer.payload_frames = 0;
  peer.send(request(body, name));
  while (peer.received.size() < kAnswerHead + body.size()) bench.step();
  if (peer.received.substr(kAnswerHead) != body) wrong("a reply differs from its request");
  return peer.first_cycle - bench.board.last_byte_in;
}

// The two clocks, if there are two, and this number of cycles of the line in microseconds.
void print_clocks([[maybe_unused]] double line_cycles = 0) {
#ifdef BOARD_PORT32
  printf("\"port_mhz\": %.4g, \"core_mhz\": %.4g, ", 1000 / Board::port_ns, 1000 / Board::core_ns);
  if (line_cycles > 0) printf("\"us\": %.3f, ", line_cycles * Board::port_ns / 1000);
#endif
}

void latency(int calls) {
  Bench bench;
  Peer& peer = bench.connect();
  std::mt19937 draw(1);
  std::string body(64, 0);
  std::map<uint64_t, int> counts;
  for (int i = -1; i < calls; i++) {
    for (char& c : body) c = static_cast<char>(draw());
    const uint64_t took = call(bench, peer, body);
    if (i >= 0) counts[took]++;  // the first call is cold
    peer.settle();
    bench.steps(100 + draw() % 300);
  }
  uint64_t total = 0;
  for (auto [cycles, n] : counts) total += cycles * static_cast<uint64_t>(n);
  printf("{\"measure\": \"latency\", ");
  print_clocks(static_cast<double>(total) / calls);
  printf("\"body\": 64, \"calls\": %d, \"least\": %lu, \"mean\": %.2f, \"most\": %lu, \"histogram\": {", calls,
         counts.begin()->first, static_cast<double>(total) / calls, counts.rbegin()->first);
  const char* comma = "";
  for (auto [cycles, n] : counts) printf("%s\"%lu\": %d", comma, cycles, n), comma = ", ";
  printf("}}\n");
}

// The host memory that the board reads and writes.
struct Bytes : HostMemory {
  explicit Bytes(size_t count = 256) : words(count) {}
  std::vector<uint64_t> words;
  bool read(uint64_t address, uint64_t& data) override {
    data = words.at(address / 8);
    return true;
  }
  void write(uint64_t address, uint64_t data, uint8_t keep) override {
    for (size_t i = 0; i < 8; i++)
      if (keep >> i & 1) reinterpret_cast<uint8_t*>(words.data())[address + i] = static_cast<uint8_t>(data >> (8 * i));
  }
};

// The same calls over the host port: from the write of the doorbell to the report's last beat in
// host memory.
void host(int calls) {
  Bench bench;
  Bytes memory;
  bench.board.host_memory = &memory;
  FunctionEntry entry;
  entry.image = bench.image(kSmallImage);
  const auto number = bench.board.define("echo", entry);
  std::mt19937 draw(1);
  std::map<uint64_t, int> counts;
  constexpr uint64_t kBody = 0x100, kAnswer = 0x200, kCall = 2;
  for (int i = -1; i < calls; i++) {
    for (size_t k = 0; k < 8; k++) memory.words[kBody / 8 + k] = static_cast<uint64_t>(draw()) << 32 | draw(), memory.words[kAnswer / 8 + k] = 0;
    const uint64_t descriptor[8] = {kCall | *number << 8 | 64ull << 32, kBody, entry.image, kAnswer, 64 | 64ull << 32, 0, 0, 0};
    std::copy(descriptor, descriptor + 8, memory.words.begin());
    bench.board.write_register(Register::PostLow, 0);
    const uint64_t from = bench.board.cycles, ended = bench.board.host_ended;
    bench.board.write_register(Register::PostHigh, 0);
    while (bench.board.host_ended == ended) bench.step();
    if ((memory.words[8] & 0xff) != 0 || !std::equal(memory.words.begin() + kBody / 8, memory.words.begin() + kBody / 8 + 8, memory.words.begin() + kAnswer / 8))
      wrong("a reply differs from its request");
    if (i >= 0) counts[bench.board.cycles - from]++;  // the first call is cold
    bench.steps(100 + draw() % 300);
  }
  uint64_t total = 0;
  for (auto [cycles, n] : counts) total += cycles * static_cast<uint64_t>(n);
  printf("{\"measure\": \"host\", \"body\": 64, \"calls\": %d, \"bus_latency\": %u, \"least\": %lu, \"mean\": %.2f, \"most\": %lu}\n", calls,
         Board::kHostLatency, counts.begin()->first, static_cast<double>(total) / calls, counts.rbegin()->first);
}

// Calls of two programs over the host port, each with a region of its own: one call, one after the
// other, and both at once, from the first doorbell to the last report.
void together(uint32_t bytes) {
  constexpr uint64_t kPart = 0x10000, kBody = 0x1000, kAnswer = 0x100, kCall = 2, kSha256 = 4;
  constexpr unsigned kOwn = 128;  // the first number of a host's program
  Bench bench;
  Bytes memory(2 * kPart / 8);
  bench.board.host_memory = &memory;
  std::mt19937 draw(1);
  for (auto& word : memory.words) word = static_cast<uint64_t>(draw()) << 32 | draw();
  for (uint64_t i = 0; i < 2; i++) memory.words[i * kPart / 8 + 8] = 0;  // no report yet
  const uint32_t images[2] = {bench.image(kSmallImage, kSha256), bench.image(kSmallImage, kSha256)};
  const auto post = [&](uint64_t i) {
    const uint64_t at = i * kPart;
    const uint64_t descriptor[10] = {kCall | (kOwn + i) << 8 | static_cast<uint64_t>(bytes) << 32, at + kBody, images[i], at + kAnswer, 32 | static_cast<uint64_t>(bytes) << 32};
    std::copy(descriptor, descriptor + 10, memory.words.begin() + static_cast<long>(at / 8));
    bench.board.write_register(Register::PostLow, static_cast<uint32_t>(at));
    bench.board.write_register(Register::PostHigh, 0);
  };
  const auto wait = [&](uint64_t ended) {
    while (bench.board.host_ended != ended) bench.step();
    for (uint64_t i = 0; i < 2; i++)
      if ((memory.words[i * kPart / 8 + 8] & 0xff) != 0) wrong("a call fails");
  };
  uint64_t took[3];
  for (int warm = 0; warm < 2; warm++) {
    for (int way = 0; way < 3; way++) {
      bench.steps(1000);
      const uint64_t from = bench.board.cycles, ended = bench.board.host_ended;
      post(0);
      if (way != 2) wait(ended + 1);
      if (way != 0) post(1), wait(ended + 2);
      took[way] = bench.board.cycles - from;
    }
  }
  printf("{\"measure\": \"together\", \"kernel\": \"sha256\", \"body\": %u, \"one\": %lu, \"two_in_turn\": %lu, \"two_at_once\": %lu}\n", bytes, took[0], took[1], took[2]);
}

void bulk(size_t bytes) {
  Bench bench;
  Peer& peer = bench.connect();
  std::mt19937 draw(2);
  std::string body(bytes, 0);
  for (char& c : body) c = static_cast<char>(draw());
  call(bench, peer, "warm");
  peer.received.clear();
  peer.payload_frames = 0;
  uint64_t start = bench.board.line_cycles();
  peer.send(request(body));
  while (!peer.quiet()) bench.step();
  uint64_t sent = bench.board.last_byte_in;
  while (peer.received.size() < kAnswerHead + bytes) bench.step();
  if (peer.received.substr(kAnswerHead) != body) wrong("a reply differs from its request");
  if (bench.board.dropped()) wrong("the port dropped a frame");
  // Headers, preamble, check sequence and gap take 78 bytes more for each segment.
  const double ceiling = static_cast<double>(kMss) / (kMss + 78);
  double in = static_cast<double>(bytes) / (kWord * static_cast<double>(sent - start));
  double out = static_cast<double>(bytes) / (kWord * static_cast<double>(peer.last_cycle - peer.first_cycle));
  printf("{\"measure\": \"bulk\", ");
  print_clocks();
  printf("\"body\": %zu, \"segment\": %zu, \"in_cycles\": %lu, \"in_of_line\": %.4f, \"in_of_ceiling\": %.4f, "
         "\"kernel_cycles\": %lu, \"out_cycles\": %lu, \"out_of_line\": %.4f, \"out_of_ceiling\": %.4f}\n",
         bytes, size_t{kMss}, sent - start, in, in / ceiling, peer.first_cycle - sent, peer.last_cycle - peer.first_cycle, out, out / ceiling);
}

// Each connection keeps `depth` requests in flight; a segment carries `together` of them. The
// connections call `functions` functions, each in a region of its own.
void calls(int connections, int depth, int together, int total, int functions = 1) {
  Bench bench;
  std::string body(64, 'x');
  std::vector<std::string> groups(static_cast<size_t>(functions));
  for (size_t f = 0; f < groups.size(); f++)
    for (int i = 0; i < together; i++) groups[f] += request(body, "echo" + (f ? std::to_string(f) : ""));
  for (int i = 0; i < connections; i++) bench.connect();
  std::vector<int> open(static_cast<size_t>(connections), 0);
  int sent = 0, done = 0, warm = total / 10;
  uint64_t start = 0;
  while (done < total) {
    for (size_t i = 0; i < bench.peers.size(); i++) {
      Peer& peer = *bench.peers[i];
      size_t n = peer.received.size() / (kAnswerHead + 64);
      if (n) {
        peer.received.erase(0, n * (kAnswerHead + 64));
        open[i] -= static_cast<int>(n);
        done += static_cast<int>(n);
        if (!start && done >= warm) start = bench.board.cycles, warm = done;
      }
      while (open[i] + together <= depth && sent < total + connections * depth && bench.board.waiting() < 64) {
        peer.send(groups[i % groups.size()]);
        open[i] += together;
        sent += together;
      }
    }
    bench.step();
  }
  double cycles = static_cast<double>(bench.board.cycles - start) / (done - warm);
  // On the wire, with check sequence, preamble and gap: 78 bytes around each segment's payload.
  const size_t request_bytes = groups[0].size() / static_cast<size_t>(together);
  double in_bytes = static_cast<double>(request_bytes) + 78.0 / together;
  printf("{\"measure\": \"calls\", \"connections\": %d, \"depth\": %d, \"requests_per_segment\": %d, \"functions\": %d, "
         "\"request_bytes\": %zu, \"answer_bytes\": %zu, \"calls\": %d, \"cycles_per_call\": %.2f, "
         "\"calls_per_second_at_156.25_MHz\": %.0f, \"wire_bound_in_cycles\": %.2f}\n",
         connections, depth, together, functions, request_bytes, kAnswerHead + 64, done - warm, cycles, kClock / cycles, in_bytes / 8.0);
}

// The steps of a call, in cycles since its last byte arrived.
void steps(const char* which, size_t image_bytes) {
  Bench bench;
  Peer& peer = bench.connect();
  bench.define("echo", bench.image(image_bytes));
  const std::string body(64, 'x');
  bool cold = std::string(which) == "cold";
  if (!cold) {
    call(bench, peer, body);
    peer.settle();
    bench.steps(500);
  }
  const uint64_t loads = bench.board.loads, took = call(bench, peer, body), from = bench.board.last_byte_in;
  if ((bench.board.loads != loads) != cold) wrong("a call was unexpectedly cold or warm");
  const Board::Steps& s = bench.board.steps;
  printf("{\"measure\": \"steps\", \"call\": \"%s\", \"image_bytes\": %zu, \"asked\": %lu, ", which, image_bytes, s.requested - from);
  if (cold)
    printf("\"configuration_begins\": %lu, \"configuration_ends\": %lu, \"swapped\": %lu, ", s.configured_from - from,
           s.configured_to - from, s.swapped - from);
  printf("\"granted\": %lu, \"answered\": %lu, \"first_byte_out\": %lu}\n", s.granted - from, s.ended - from, took);
}

// Cold starts of an image of this size, on an idle board or while `others` connections keep the
// other regions busy.
void cold(size_t bytes, int others, int repeat) {
  Bench bench;
  Peer& peer = bench.connect();
  const uint32_t image = bench.image(bytes);
  const std::string body(64, 'x');
  for (int i = 0; i < others; i++) bench.connect();
  uint64_t other_calls = 0;
  auto step = [&] {
    for (size_t i = 1; i < bench.peers.size(); i++) {
      Peer& other = *bench.peers[i];
      const size_t n = other.received.size() / (kAnswerHead + 64);
      if (n || other.payload_frames == 0) {
        if (n == 0) other.payload_frames = 1;
        other.received.erase(0, n * (kAnswerHead + 64));
        other_calls += n;
        other.send(request(body, "echo" + std::to_string(1 + i % (Board::kRegions - 1))));
      }
    }
    bench.step();
  };
  for (int i = 0; i < (others ? 40000 : 100); i++) step();
  bench.board.watched = peer.port();
  uint64_t least = ~0ull, most = 0, port = 0, loads = bench.board.loads, before = other_calls, started = bench.board.cycles;
  for (int i = 0; i < repeat; i++) {
    bench.define("cold", image);
    peer.received.clear();
    peer.payload_frames = 0;
    peer.send(request(body, "cold"));
    while (peer.received.size() < kAnswerHead + 64) step();
    if (peer.received.substr(kAnswerHead) != body) wrong("a reply differs from its request");
    const uint64_t took = peer.first_cycle - bench.board.last_byte_in;
    least = std::min(least, took);
    most = std::max(most, took);
    port = bench.board.steps.configured_to - bench.board.steps.configured_from + 1;
    peer.settle();
    for (int k = 0; k < 500; k++) step();
  }
  if (bench.board.loads - loads != static_cast<uint64_t>(repeat)) wrong("the number of loads is unexpected");
  const double rest = static_cast<double>(most) - static_cast<double>(bytes) / 4;
  printf("{\"measure\": \"cold\", \"image_bytes\": %zu, \"other_connections\": %d, \"calls\": %d, \"least\": %lu, \"most\": %lu, "
         "\"port_cycles\": %lu, \"beyond_the_port\": %.0f, \"microseconds_at_156.25_MHz\": %.2f, "
         "\"beyond_the_port_in_microseconds\": %.2f, \"other_calls_per_1000_cycles\": %.2f}\n",
         bytes, others, repeat, least, most, port, rest, static_cast<double>(most) / kClock * 1e6, rest / kClock * 1e6,
         1000.0 * static_cast<double>(other_calls - before) / static_cast<double>(bench.board.cycles - started));
}

#ifdef BOARD_PORT32
// With these clocks, in MHz.
void port(double port_mhz, double core_mhz) {
  Board::port_ns = 1000 / port_mhz;
  Board::core_ns = 1000 / core_mhz;
  latency(2000);
  bulk(1000000);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
#ifdef BOARD_PORT32
  if (argc == 3) return port(atof(argv[1]), atof(argv[2])), 0;
  // Half the port's clock; the clock of the placed shell; the port's clock.
  for (double core : {62.5, 90.0, 125.0}) port(125, core);
  return 0;
#endif
  // The given clocks, or all.
  auto wanted = [&](const char* which) {
    return argc == 1 || std::any_of(argv + 1, argv + argc, [&](const char* a) { return std::string(a) == which; });
  };
  if (wanted("latency")) latency(5000);
  if (wanted("host")) host(5000);
  if (wanted("together"))
    for (uint32_t bytes : {64, 1024, 32768}) together(bytes);
  if (wanted("bulk")) bulk(1000000);
  // Similar to a client such as wrk with 16 connections; the first of the calls.
  if (wanted("calls") || wanted("small")) calls(16, 1, 1, 5000);
  if (wanted("calls")) {
    calls(16, 8, 1, 10000);
    calls(16, 16, 8, 20000);
    calls(16, 16, 8, 20000, Board::kRegions);
    calls(1, 16, 8, 5000);
  }
  if (wanted("steps")) {
    steps("cold", 1 << 20);
    steps("warm", 1 << 20);
  }
  if (wanted("cold"))
    for (int others : {0, 12})
      for (size_t bytes : {1 << 16, 1 << 18, 1 << 20, 1 << 22}) cold(bytes, others, 5);
  return 0;
}
