// Cycle counts of the shell: latency of a small call, bulk throughput, calls per second. A client
// inside this program speaks TCP to the model over a lossless line at the shell's own width; time is
// cycles, a tick of the timers comes every 156,250 of them (a millisecond at 156.25 MHz). The same
// arguments give the same numbers.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <random>

#include "peer.hpp"

namespace {

constexpr uint64_t kMac = 0x020000000002;
constexpr uint32_t kIp = 0x0a630002, kPeerIp = 0x0a630101;
constexpr uint64_t kTick = 156250;
constexpr double kClock = 156.25e6;

struct Bench {
  Board board{kMac, kIp, 80, 0x0123456789abcdef};
  std::vector<std::unique_ptr<Peer>> peers;

  Bench() {
    board.on_frame = [this](const Frame& f) {
      for (auto& peer : peers)
        if (peer->take(f)) return;
    };
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

std::string request(const std::string& body, const char* name = "echo") {
  return std::string("POST /function/") + name + " HTTP/1.1\r\nHost: 10.99.0.2\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

constexpr size_t kAnswerHead = 45;

[[noreturn]] void wrong(const char* what) {
  fprintf(stderr, "error: %s\n", what);
  exit(1);
}

void latency(int calls) {
  Bench bench;
  Peer& peer = bench.connect();
  std::mt19937 draw(1);
  std::string body(64, 0);
  std::map<uint64_t, int> counts;
  for (int i = 0; i < calls; i++) {
    for (char& c : body) c = static_cast<char>(draw());
    peer.received.clear();
    peer.payload_frames = 0;
    peer.send(request(body));
    while (peer.received.size() < kAnswerHead + 64) bench.step();
    if (peer.received.substr(kAnswerHead) != body) wrong("an answer is not its request");
    counts[peer.first_cycle - bench.board.last_byte_in]++;
    peer.settle();
    bench.steps(100 + draw() % 300);
  }
  uint64_t total = 0;
  for (auto [cycles, n] : counts) total += cycles * static_cast<uint64_t>(n);
  printf("{\"measure\": \"latency\", \"body\": 64, \"calls\": %d, \"least\": %lu, \"mean\": %.2f, \"most\": %lu, \"histogram\": {", calls,
         counts.begin()->first, static_cast<double>(total) / calls, counts.rbegin()->first);
  const char* comma = "";
  for (auto [cycles, n] : counts) printf("%s\"%lu\": %d", comma, cycles, n), comma = ", ";
  printf("}}\n");
}

void bulk(size_t bytes) {
  Bench bench;
  Peer& peer = bench.connect();
  std::mt19937 draw(2);
  std::string body(bytes, 0);
  for (char& c : body) c = static_cast<char>(draw());
  uint64_t start = bench.board.cycles;
  peer.send(request(body));
  while (!peer.quiet()) bench.step();
  uint64_t sent = bench.board.last_byte_in;
  while (peer.received.size() < kAnswerHead + bytes) bench.step();
  if (peer.received.substr(kAnswerHead) != body) wrong("an answer is not its request");
  const double ceiling = 1460.0 / 1538.0;
  double in = static_cast<double>(bytes) / (8.0 * static_cast<double>(sent - start));
  double out = static_cast<double>(bytes) / (8.0 * static_cast<double>(peer.last_cycle - peer.first_cycle));
  printf("{\"measure\": \"bulk\", \"body\": %zu, \"in_cycles\": %lu, \"in_of_line\": %.4f, \"in_of_ceiling\": %.4f, "
         "\"kernel_cycles\": %lu, \"out_cycles\": %lu, \"out_of_line\": %.4f, \"out_of_ceiling\": %.4f}\n",
         bytes, sent - start, in, in / ceiling, peer.first_cycle - sent, peer.last_cycle - peer.first_cycle, out, out / ceiling);
}

// Each connection keeps `depth` requests under way; a segment carries `together` of them.
void calls(int connections, int depth, int together, int total) {
  Bench bench;
  std::string body(64, 'x');
  const std::string one = request(body);
  std::string group;
  for (int i = 0; i < together; i++) group += one;
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
        peer.send(group);
        open[i] += together;
        sent += together;
      }
    }
    bench.step();
  }
  double cycles = static_cast<double>(bench.board.cycles - start) / (done - warm);
  // On the wire, with check sequence, preamble and gap: 78 bytes around each segment's payload.
  double in_bytes = static_cast<double>(one.size()) + 78.0 / together;
  printf("{\"measure\": \"calls\", \"connections\": %d, \"depth\": %d, \"requests_per_segment\": %d, \"request_bytes\": %zu, "
         "\"answer_bytes\": %zu, \"calls\": %d, \"cycles_per_call\": %.2f, \"calls_per_second_at_156.25_MHz\": %.0f, "
         "\"wire_bound_in_cycles\": %.2f}\n",
         connections, depth, together, one.size(), kAnswerHead + 64, done - warm, cycles, kClock / cycles, in_bytes / 8.0);
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  std::string which = argc > 1 ? argv[1] : "all";
  if (which == "latency" || which == "all") latency(5000);
  if (which == "bulk" || which == "all") bulk(1000000);
  if (which == "calls" || which == "all") {
    calls(16, 1, 1, 5000);
    calls(16, 8, 1, 10000);
    calls(16, 16, 8, 20000);
    calls(1, 16, 8, 5000);
  }
  return 0;
}
