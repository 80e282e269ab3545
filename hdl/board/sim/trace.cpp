// Writes a waveform of one request, for GTKWave (VCD), and prints the cycles of its stages: from
// the first byte of the request to the last byte of the reply. The request is either a call by a
// client inside this program to its own model, or part of a recording (`board --pcap`),
// which is replayed up to it.
//
// The waveform's time is 10 ns per cycle, counted from the model's start;
// the clock rises at its beginning.
#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "functions.hpp"
#include "peer.hpp"
#include "replay.hpp"

namespace {

const char kUsage[] =
    "usage: trace FUNCTION[?scalar=N] [--body TEXT | --body-file FILE] [--cold] [OPTION …]\n"
    "       trace --replay FILE --request N [OPTION …]\n"
    "\n"
    "  FUNCTION          calls this function with an internal client, on a new model\n"
    "  --body TEXT       its body (empty); --body-file: the content of a file\n"
    "  --cold            records the first call, for which the function is loaded, instead of the second\n"
    "  --replay FILE     replays a recording of board --pcap, with the options of the recording\n"
    "  --request N       the Nth segment with data for the HTTP port, from 1 on\n"
    "  --out FILE        the waveform (request.vcd)\n"
    "  --functions DIR   its functions: functions.conf and images (those built in)\n"
    "  --kernels DIR     libraries of the kernels that images name (those built in)\n"
    "  --seed N, --api-key KEY, --ip ADDRESS, --port PORT    as for board\n"
    "\n"
    "example: trace 'sobel?width=8' --body-file picture.raw --out sobel.vcd; gtkwave sobel.vcd\n";

[[noreturn]] void fail(const std::string& what) {
  fprintf(stderr, "error: %s\n", what.c_str());
  exit(2);
}

constexpr uint64_t kMac = 0x020000000002;
constexpr uint32_t kLoadCost = 32768;
constexpr uint64_t kTick = 156250;       // cycles of a millisecond
constexpr uint64_t kMostCycles = 1u << 24;

std::string own_directory() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0 || n == sizeof path) fail("/proc/self/exe cannot be read");
  const std::string whole(path, static_cast<size_t>(n));
  return whole.substr(0, whole.rfind('/'));
}

struct Options {
  std::string function, body, replay, out = "request.vcd", api_key;
  std::string kernels = own_directory() + "/kernels", functions = own_directory() + "/functions";
  bool cold = false;
  uint64_t request = 0, seed = 1;
  uint32_t ip = 0x0a630002;
  uint16_t port = 80;
};

uint64_t number(const std::string& option, const std::string& text, uint64_t most) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = strtoull(text.c_str(), &end, 10);
  if (text.empty() || text[0] < '0' || text[0] > '9' || *end || errno || value > most)
    fail(option + " " + text + ": expected a number up to " + std::to_string(most));
  return value;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i++) {
    const std::string option = argv[i];
    if (option == "-h" || option == "--help") {
      fputs(kUsage, stdout);
      exit(0);
    }
    if (option == "--cold") {
      o.cold = true;
      continue;
    }
    if (option.rfind("--", 0) != 0 && o.function.empty()) {
      o.function = option;
      continue;
    }
    if (i + 1 == argc) fail(option + ": unknown, or its value is missing (--help lists the options)");
    const std::string value = argv[++i];
    in_addr address;
    if (option == "--body") o.body = value;
    else if (option == "--body-file") {
      const auto bytes = functions::bytes_of(value);
      o.body.assign(bytes.begin(), bytes.end());
    } else if (option == "--replay") o.replay = value;
    else if (option == "--request") o.request = number(option, value, UINT32_MAX);
    else if (option == "--out") o.out = value;
    else if (option == "--functions") o.functions = value;
    else if (option == "--kernels") o.kernels = value;
    else if (option == "--api-key") o.api_key = value;
    else if (option == "--seed") o.seed = number(option, value, UINT64_MAX);
    else if (option == "--port") o.port = static_cast<uint16_t>(number(option, value, 65535));
    else if (option == "--ip") {
      if (inet_pton(AF_INET, value.c_str(), &address) != 1) fail("--ip " + value + ": not an IPv4 address");
      o.ip = ntohl(address.s_addr);
    } else fail(option + ": unknown (--help lists the options)");
  }
  if (o.replay.empty() == o.function.empty()) fail("expected a function's name or --replay FILE (--help has examples)");
  if (!o.replay.empty() && o.request == 0) fail("--request is missing (the number of the request, from 1 on)");
  return o;
}

// The stages of the request in this window, in cycles since its last byte arrived.
void print_stages(const Board& board, const Board::Steps& s, uint64_t first_in, uint64_t last_in, uint64_t first_out, uint64_t last_out) {
  printf("%-44s %9s\n", "cycles since the last byte of the request", "");
  const auto line = [&](const char* what, uint64_t at) {
    if (at >= first_in && at <= board.cycles) printf("%-44s %9ld\n", what, static_cast<long>(at) - static_cast<long>(last_in));
  };
  line("its first byte", first_in);
  line("the call is requested", s.requested);
  line("the configuration port gets its first word", s.configured_from);
  line("and its last", s.configured_to);
  line("the region has the new kernel", s.swapped);
  line("the region is granted", s.granted);
  line("the reply is in its ring", s.ended);
  line("its first byte leaves the board", first_out);
  line("and its last", last_out);
}

void fresh(Board& board, const Options& o) {
  Peer peer(board, kMac, o.ip, o.ip + 1, 20000, o.port);
  board.on_frame = [&](const Frame& frame) { peer.take(frame); };
  const auto step = [&] {
    if (board.cycles % kTick == 0) board.tick();
    else board.step();
    if (board.cycles > kMostCycles) fail("no reply in " + std::to_string(kMostCycles) + " cycles");
  };
  peer.connect();
  while (!peer.connected()) step();
  std::string request = "POST /function/" + o.function + " HTTP/1.1\r\nHost: board\r\nContent-Length: " + std::to_string(o.body.size()) + "\r\n";
  if (!o.api_key.empty()) request += "X-API-Key: " + o.api_key + "\r\n";
  request += "\r\n" + o.body;
  const auto answered = [&] {
    const size_t head = peer.received.find("\r\n\r\n"), length = peer.received.find("Content-Length: ");
    if (head == std::string::npos || length > head) return false;
    return peer.received.size() >= head + 4 + strtoull(peer.received.c_str() + length + 16, nullptr, 10);
  };
  for (bool traced : {false, true}) {
    if (!traced && o.cold) continue;
    for (int i = 0; i < 500; i++) step();
    peer.received.clear();
    peer.payload_frames = 0;
    if (traced) board.trace(o.out);
    const uint64_t first_in = board.cycles + 1;
    peer.send(request);
    while (!answered()) step();
    if (!traced) {
      peer.settle();
      continue;
    }
    for (int i = 0; i < 16; i++) step();
    board.end_trace();
    printf("%s\n", peer.received.substr(0, peer.received.find("\r\n")).c_str());
    print_stages(board, board.steps, first_in, board.last_byte_in, peer.first_cycle, peer.last_cycle);
  }
}

// Whether this frame is a segment with bytes between the board's port and a client, and whose.
bool carries(const Event& event, const Options& o, uint64_t& client) {
  const Frame& f = event.frame;
  if (f.size() < 54 || f[12] != 8 || f[13] != 0 || f[14] != 0x45 || f[23] != 6) return false;
  const bool in = event.kind == Event::In;
  const size_t head = 34 + (f[46] >> 4) * 4u, end = read16(f, 16) + 14u;
  if (read32(f, in ? 30 : 26) != o.ip || read16(f, in ? 36 : 34) != o.port || end > f.size() || head >= end) return false;
  client = static_cast<uint64_t>(read32(f, in ? 26 : 30)) << 16 | read16(f, in ? 34 : 36);
  return true;
}

void recorded(Board& board, const Options& o) {
  Recorder none("");
  Replay replay(board, recording(o.replay), none);
  const std::vector<Event>& events = replay.events();
  // The request, and its reply: the data that the board sent on that connection before the next
  // request there.
  uint64_t seen = 0, client = 0, other = 0;
  const Event *first = nullptr, *last_in = nullptr, *first_out = nullptr, *last_out = nullptr;
  for (const Event& event : events) {
    if (event.kind != Event::In && event.kind != Event::Out) continue;
    if (!carries(event, o, other)) continue;
    if (event.kind == Event::In && !first && ++seen == o.request) {
      first = last_in = &event;
      client = other;
    } else if (first && other == client) {
      if (event.kind == Event::In && last_out) break;
      if (event.kind == Event::In) last_in = &event;
      else first_out = first_out ? first_out : &event, last_out = &event;
    }
  }
  if (!first) fail(o.replay + ": has " + std::to_string(seen) + " such requests");
  if (!last_out) fail(o.replay + ": request " + std::to_string(o.request) + " has no reply in the recording");
  replay.run(first->cycle);
  board.trace(o.out);
  // With the line's own delay a waiting frame enters later:
  // the request's last one is the latest before the reply.
  replay.run(last_in->cycle + 1);
  board.watched = static_cast<uint16_t>(client);
  while (board.cycles < last_out->cycle) replay.run(board.cycles + 1);
  replay.run(last_out->cycle + 16);
  board.end_trace();
  const uint64_t beats = (first_out->frame.size() + 7) / 8;
  print_stages(board, board.steps, first->cycle + 1, board.last_byte_in, first_out->cycle - beats + 1, last_out->cycle);
  if (!replay.difference.empty()) {
    fprintf(stderr, "not as recorded: %s\n", replay.difference.c_str());
    exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = parse(argc, argv);
    Board board(kMac, o.ip, o.port, o.seed, o.kernels);
    board.require(o.api_key);
    board.schedule(Policy::Affinity, 16, kLoadCost);
    functions::Store images(board);
    functions::provision(board, images, o.functions, false);  // a store would need a network
    if (o.replay.empty()) fresh(board, o);
    else recorded(board, o);
    printf("%s: for GTKWave, 10 ns a cycle\n", o.out.c_str());
  } catch (const std::runtime_error& error) {
    fail(error.what());
  }
  return 0;
}
