// The live board: the Verilated shell on a TAP device, so that ping,
// curl and tcpdump exercise the RTL.
//
// Time. The RTL's protocol timers count ticks of a millisecond. Here a tick follows the wall clock,
// which is also the peers' time: a retransmission timer has the same duration at both ends although
// the model's clock is slower than silicon. On a host that is too busy to keep up, the board's time
// falls behind the wall clock, and not its work. Cycles are counted separately and never converted
// to time.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "board.hpp"
#include "functions.hpp"
#include "host_port.hpp"
#include "link.hpp"
#ifdef BOARD_MESSAGES
#include "message_door.hpp"
#endif
#include "record.hpp"
#include "replay.hpp"
#include "user_net.hpp"

namespace {

volatile sig_atomic_t stopping = 0;

constexpr uint32_t kLoadCost = 32768;  // assumed cycles of a load when calls are compared

const char kUsage[] =
    "usage: board --tap NAME [OPTION …]\n"
    "       board --net user [--forward [ADDRESS:]PORT] [OPTION …]\n"
    "       board --replay FILE [OPTION …]\n"
    "\n"
    "  --tap NAME        the board's Ethernet port is this TAP device\n"
    "  --net user        without a device or root: its HTTP port is a port of this host\n"
    "  --forward PORT    the port (127.0.0.1:8080); 0: any free port\n"
    "  --ip ADDRESS      the board's address (10.99.0.2)\n"
    "  --mac ADDRESS     its hardware address (02:00:00:00:00:02)\n"
    "  --port PORT       its HTTP port (80)\n"
    "  --functions DIR   its functions: functions.conf and images (those built in)\n"
    "  --kernels DIR     libraries of the kernels that images name (those built in)\n"
    "  --policy NAME     scheduling policy: fifo, affinity (default) or shortest\n"
    "  --patience N      how often a call may be overtaken (16)\n"
    "  --host-port PATH  a Unix socket of the board's host port, for baltra function push and the Device Manager\n"
#ifdef BOARD_MESSAGES
    "  --messages FILE   kernels of a job in the regions, as baltra cluster run writes them; the program ends with\n"
    "                    its input\n"
#endif
    "  --store IP:PORT/PATH  location of the images of functions with @store: PATH/NAME.img, by HTTP\n"
    "  --udp-echo PORT   a UDP port that echoes datagrams\n"
    "  --gateway ADDRESS, --netmask ADDRESS  the way to a store in another network\n"
    "  --pcap FILE       record every frame with its cycle\n"
    "  --replay FILE     no network: replays a recording of --pcap. With the options and the --seed of the\n"
    "                    recording, the same frames leave in the same cycles; otherwise prints the first difference (status 1)\n"
    "  --api-key KEY     required as X-API-Key in all requests except /healthz\n"
    "  --seed N          seed of the faults below, and of the cookies' secret if given\n"
    "  --loss P --duplicate P --reorder P --corrupt P    probability per frame, in both directions\n"
    "  --delay MS        delay of every frame, in both directions\n";

[[noreturn]] void die(const std::string& what) {
  fprintf(stderr, "error: %s\n", what.c_str());
  exit(2);
}

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

int open_tap(const std::string& name) {
  int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) die(std::string("/dev/net/tun: ") + strerror(errno));
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (name.size() >= IFNAMSIZ) die("--tap " + name + ": the name is too long");
  strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (ioctl(fd, TUNSETIFF, &request) < 0) die("TAP device " + name + ": " + strerror(errno));
  return fd;
}

uint64_t parse_address(const std::string& text) {
  unsigned b[6];
  char rest;
  if (sscanf(text.c_str(), "%x:%x:%x:%x:%x:%x%c", b, b + 1, b + 2, b + 3, b + 4, b + 5, &rest) != 6)
    die("--mac " + text + ": not a hardware address");
  uint64_t mac = 0;
  for (unsigned byte : b) {
    if (byte > 255) die("--mac " + text + ": not a hardware address");
    mac = mac << 8 | byte;
  }
  return mac;
}

double parse_number(const std::string& option, const char* text) {
  char* end;
  double value = strtod(text, &end);
  if (*text == 0 || *end != 0 || value < 0) die(option + " " + text + ": not a number");
  return value;
}

uint32_t parse_ip(const std::string& option, const std::string& text) {
  in_addr address;
  if (inet_pton(AF_INET, text.c_str(), &address) != 1) die(option + " " + text + ": not an IPv4 address");
  return ntohl(address.s_addr);
}

// A server and the prefix of image names.
struct StoreAddress {
  uint32_t ip = 0;
  uint16_t port = 0;
  std::string path;
};

StoreAddress parse_store(const std::string& text) {
  StoreAddress store;
  const size_t colon = text.find(':'), slash = text.find('/');
  if (colon == std::string::npos || slash == std::string::npos || slash < colon) die("--store " + text + ": not IP:PORT/PATH");
  store.ip = parse_ip("--store", text.substr(0, colon));
  char* end;
  const std::string digits = text.substr(colon + 1, slash - colon - 1);
  const unsigned long port = strtoul(digits.c_str(), &end, 10);
  if (digits.empty() || digits[0] < '0' || digits[0] > '9' || *end || port == 0 || port > 65535) die("--store " + text + ": '" + digits + "' is not a port (1 to 65535)");
  store.port = static_cast<uint16_t>(port);
  store.path = text.substr(slash);
  if (store.path.back() != '/') store.path += '/';
  if (store.path.size() > Board::kPathBytes) die("--store " + text + ": the path has more than " + std::to_string(Board::kPathBytes - 1) + " characters");
  for (unsigned char c : store.path)
    if (c <= 0x20 || c > 0x7e) die("--store " + text + ": a character that a request's target cannot have");
  if (store.ip == 0) die("--store " + text + ": invalid address");
  return store;
}

Policy parse_policy(const std::string& text) {
  if (text == "fifo") return Policy::Fifo;
  if (text == "affinity") return Policy::Affinity;
  if (text == "shortest") return Policy::Shortest;
  die("--policy " + text + ": expected fifo, affinity or shortest");
}

uint64_t random_secret() {
  uint64_t secret = 0;
  FILE* f = fopen("/dev/urandom", "rb");
  if (!f || fread(&secret, sizeof secret, 1, f) != 1) die("/dev/urandom cannot be read");
  fclose(f);
  return secret;
}

// The folder of this program, which has its other files.
std::string own_directory() {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0 || n == sizeof path) die("/proc/self/exe cannot be read");
  std::string whole(path, static_cast<size_t>(n));
  return whole.substr(0, whole.rfind('/'));
}

// Replays a recording; returns the exit status.
int replay(Board& board, std::vector<Event> events, Recorder& record) {
  Replay replay(board, std::move(events), record);
  try {
    while (!replay.over() && !stopping) replay.run(board.cycles + 100000);
  } catch (const std::runtime_error& error) {
    die(error.what());
  }
  record.end(board.cycles);
  fprintf(stderr, "frames in %lu, out %lu of %zu; cycles %lu\n", replay.in, replay.out, replay.recorded_out(), board.cycles);
  if (replay.difference.empty() && replay.complete()) return 0;
  fprintf(stderr, "not as recorded: %s\n", replay.difference.empty() ? "frames from the board are missing" : replay.difference.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string tap, net, forward = "127.0.0.1:8080", host_path, pcap_path, replay_path, api_key, messages, ip_text = "10.99.0.2";
  uint64_t mac = 0x020000000002, secret = random_secret();
  uint16_t port = 80;
  std::string kernels = own_directory() + "/kernels", provisioned = own_directory() + "/functions";
  Policy policy = Policy::Affinity;
  uint8_t patience = 16;
  StoreAddress store;
  uint16_t udp_echo = 0;
  uint32_t gateway = 0, netmask = 0xffffff00;
  Faults faults;
  for (int i = 1; i < argc; i++) {
    std::string option = argv[i];
    if (option == "-h" || option == "--help") {
      fputs(kUsage, stdout);
      return 0;
    }
    if (i + 1 == argc) die(option + ": unknown, or its value is missing (--help lists the options)");
    const char* value = argv[++i];
    if (option == "--tap") tap = value;
    else if (option == "--net") net = value;
    else if (option == "--forward") forward = value;
    else if (option == "--ip") ip_text = value;
    else if (option == "--mac") mac = parse_address(value);
    else if (option == "--functions") provisioned = value;
    else if (option == "--kernels") kernels = value;
    else if (option == "--policy") policy = parse_policy(value);
    else if (option == "--patience") patience = static_cast<uint8_t>(std::min(255.0, parse_number(option, value)));
    else if (option == "--port") port = static_cast<uint16_t>(parse_number(option, value));
    else if (option == "--store") store = parse_store(value);
    else if (option == "--udp-echo") udp_echo = static_cast<uint16_t>(std::min(65535.0, parse_number(option, value)));
    else if (option == "--gateway") gateway = parse_ip(option, value);
    else if (option == "--netmask") netmask = parse_ip(option, value);
    else if (option == "--host-port") host_path = value;
    else if (option == "--pcap") pcap_path = value;
#ifdef BOARD_MESSAGES
    else if (option == "--messages") messages = value;
#endif
    else if (option == "--replay") replay_path = value;
    else if (option == "--api-key") api_key = value;
    else if (option == "--seed") faults.seed = static_cast<uint64_t>(parse_number(option, value)), secret = faults.seed;
    else if (option == "--loss") faults.loss = parse_number(option, value);
    else if (option == "--duplicate") faults.duplicate = parse_number(option, value);
    else if (option == "--reorder") faults.reorder = parse_number(option, value);
    else if (option == "--corrupt") faults.corrupt = parse_number(option, value);
    else if (option == "--delay") faults.delay_ms = parse_number(option, value);
    else die(option + ": unknown (--help lists the options)");
  }
  in_addr address;
  if (api_key.size() > 32) die("--api-key: more than 32 characters");
  for (unsigned char c : api_key)
    if (c <= 0x20 || c > 0x7e) die("--api-key: a character that a header's value cannot have");
  if (!net.empty() && net != "user" && net != "tap") die("--net " + net + ": expected user or tap");
  const bool user = net == "user";
  const bool replays = !replay_path.empty();
  if (replays && (!net.empty() || !tap.empty())) die("--replay cannot be combined with --tap or --net");
  if (replays && !host_path.empty()) die("--replay cannot be combined with --host-port: a recording contains only the network");
  if (replays && faults.any()) die("--replay cannot be combined with faults: a recording already contains their effect");
  if (!replays && !user && tap.empty()) die("--tap, --net user or --replay is missing (--help lists the options)");
  if (user && !tap.empty()) die("--tap cannot be combined with --net user");
  if (!messages.empty() && (!user || !pcap_path.empty())) die("--messages needs --net user, and cannot be combined with --pcap");
  if (user && store.ip) die("--store needs a TAP device: behind --net user the board cannot open connections");
  if (user && faults.any()) die("faults are for a TAP device: with --net user the host's own TCP is the client's peer");
  if (inet_pton(AF_INET, ip_text.c_str(), &address) != 1) die("--ip " + ip_text + ": not an IPv4 address");

  std::vector<Event> events;
  try {
    if (replays) events = recording(replay_path);
  } catch (const std::runtime_error& error) {
    die(error.what());
  }
  const int fd = user || replays ? -1 : open_tap(tap);
  struct sigaction action {};
  action.sa_handler = [](int) { stopping = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);

  Board board(mac, ntohl(address.s_addr), port, secret, kernels);
  board.require(api_key);
  board.schedule(policy, patience, kLoadCost);
  board.store(store.ip, store.port, store.path);
  board.route(netmask, gateway);
  board.udp_echo(udp_echo);
  int count = 0;
  functions::Store images(board);
  std::unique_ptr<HostPort> host;
  try {
    count = functions::provision(board, images, provisioned, store.ip != 0);
    if (!host_path.empty() || !messages.empty()) host = std::make_unique<HostPort>(board, images, host_path);
  } catch (const std::runtime_error& error) {
    die(error.what());
  }
  Recorder record(pcap_path);
  if (replays) return replay(board, std::move(events), record);
  uint64_t in = 0, out = 0, refused = 0;
  const auto to_port = [&](Frame frame) {
    record.frame(frame, true, board.cycles);
    board.send(std::move(frame));
  };
  Link to_board(faults, 0, to_port);
  std::unique_ptr<UserNetwork> network;
  if (user) {
    const size_t colon = forward.rfind(':');
    const std::string host = colon == std::string::npos ? "127.0.0.1" : forward.substr(0, colon);
    const std::string digits = colon == std::string::npos ? forward : forward.substr(colon + 1);
    const double number = parse_number("--forward", digits.c_str());
    if (number > 65535) die("--forward " + forward + ": not a port");
    try {
      constexpr uint32_t kOwnIp = 0x0a630001;  // address of this end of the line, different from
                                               // the board's
      const uint32_t own = ntohl(address.s_addr) == kOwnIp ? kOwnIp + 1 : kOwnIp;
      network = std::make_unique<UserNetwork>(Route{mac, ntohl(address.s_addr), port, own, 0}, host, static_cast<uint16_t>(number),
                                              [&](Frame frame) {
                                                in++;
                                                to_port(std::move(frame));
                                              });
    } catch (const std::runtime_error& error) {
      die(std::string("--forward ") + error.what());
    }
  }
  constexpr int kBurst = 16;       // cycles between polls of the device
  constexpr size_t kMany = 4;      // frames that wait for the board
  constexpr int kHeldBursts = 8;   // 0.2 ms
  // A write to the device wakes the process that waits for the frame: on another, virtual processor
  // this takes a quarter of the time of a small call. While many frames wait for the board,
  // outgoing frames are held back for a moment, so that one wake-up serves several.
  std::vector<Frame> held;
  int held_for = 0;  // bursts of cycles
  const auto let_go = [&] {
    for (const Frame& frame : held) {
      // A TAP device whose queue is full drops frames, like a switch.
      if (write(fd, frame.data(), frame.size()) == static_cast<ssize_t>(frame.size())) out++;
      else refused++;
    }
    held.clear();
    held_for = 0;
  };
  Link to_network(faults, 1, [&](Frame frame) {
    held.push_back(std::move(frame));
    if (board.waiting() < kMany) let_go();
  });
  double now = now_ms();
  // With a port of the host a frame may be replied to at once: between two cycles,
  // so that the reply can be replayed.
  std::vector<Frame> leaving;
  const auto pass_on = [&] {
    for (const Frame& frame : std::exchange(leaving, {})) network->take(frame, now);
  };
#ifdef BOARD_MESSAGES
  std::unique_ptr<MessageDoor> door;
  try {
    if (!messages.empty()) door = std::make_unique<MessageDoor>(board, *host, messages);
  } catch (const std::runtime_error& error) {
    die(error.what());
  }
  const auto is_message = [&](const Frame& frame) { return door && door->take(frame); };
#else
  constexpr auto is_message = [](const Frame&) { return false; };
#endif
  board.on_frame = [&](const Frame& frame) {
    if (is_message(frame)) return;
    record.frame(frame, false, board.cycles);
    if (network) {
      out++;
      leaving.push_back(frame);
    } else {
      to_network.send(frame, now);
    }
  };
#ifdef BOARD_MESSAGES
  try {
    if (door) door->start();
  } catch (const std::runtime_error& error) {
    die(error.what());
  }
#endif
  if (network) fprintf(stderr, "board on port %u of this host: %zu regions, %d functions\n", network->listening(), Board::kRegions, count);
  else fprintf(stderr, "board %s port %u on %s: %zu regions, %d functions\n", ip_text.c_str(), port, tap.c_str(), Board::kRegions, count);

  // Cycles that are run after the last activity. Slower reactions continue at the next tick; idle
  // cycles would take processor time from the peers.
  constexpr int kAfterglow = 96;
  constexpr size_t kQueue = 256;    // frames read ahead
  constexpr uint64_t kMostTicks = 8;
  constexpr int kTickCycles = 96;   // enough for the timers of 16 sessions
  const double begin = now;
  uint64_t ticks = 0;
  int quiet = 0;
  std::vector<uint8_t> buffer(65536);
  while (!stopping) {
    now = now_ms();
    to_board.run(now);
    to_network.run(now);
    bool got = false;
    try {
      got = host && host->run();
    } catch (const std::runtime_error& error) {
      die(error.what());
    }
#ifdef BOARD_MESSAGES
    got |= door && door->run();
#endif
    if (network && board.waiting() < kQueue) got = network->run(now);
    while (!network && board.waiting() < kQueue) {
      ssize_t n = read(fd, buffer.data(), buffer.size());
      if (n <= 0) break;
      got = true;
      in++;
      to_board.send(Frame(buffer.begin(), buffer.begin() + n), now);
    }
    if (!held.empty() && (board.waiting() < kMany || ++held_for == kHeldBursts)) let_go();
    // Received frames are processed before time advances, otherwise a host that was busy for a
    // while would look like a network that lost frames. A few missed ticks are repeated; beyond
    // that the board's time is late.
    const uint64_t due = static_cast<uint64_t>(now - begin);
    if (due > ticks + kMostTicks) ticks = due - kMostTicks;
    for (; ticks < due && (quiet >= kAfterglow || board.waiting() == 0); ticks++) {
      record.tick(board.cycles);
      board.tick();
      for (int i = 0; i < kTickCycles; i++) board.step();
    }
    if (!leaving.empty()) pass_on();
    if (got || !board.idle()) quiet = 0;
    if (quiet < kAfterglow) {
      for (int i = 0; i < kBurst; i++) {
        board.step();
        if (!leaving.empty()) pass_on();
      }
      quiet += kBurst;
      continue;
    }
    std::vector<pollfd> waits = network ? network->waits() : std::vector<pollfd>{{fd, POLLIN, 0}};
    if (host) host->wait_for(waits);
#ifdef BOARD_MESSAGES
    if (door) {
      if (door->rests()) door->note();
      door->wait_for(waits);
      waits.push_back({0, POLLIN, 0});
    }
#endif
    poll(waits.data(), waits.size(), 1);
#ifdef BOARD_MESSAGES
    char drop[64];
    if (door && waits.back().revents != 0 && read(0, drop, sizeof drop) <= 0) break;
#endif
  }
  let_go();
  record.end(board.cycles);
  fprintf(stderr, "frames in %lu, out %lu, refused %lu; cycles %lu; faults: lost %lu, corrupted %lu, duplicated %lu, reordered %lu\n",
          in, out, refused, board.cycles, to_board.lost + to_network.lost, to_board.corrupted + to_network.corrupted,
          to_board.duplicated + to_network.duplicated, to_board.reordered + to_network.reordered);
  if (fd >= 0) close(fd);
  return 0;
}
