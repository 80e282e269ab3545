// The live board without its HTTP door: sixteen regions for kernels of a job, and the wire to the
// job's other stations (message_door.hpp), a Unix datagram socket, which is lossless and needs no
// device or root. A board on which all kernels wait costs no time.
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "board.hpp"
#include "functions.hpp"
#include "host_port.hpp"
#include "message_door.hpp"

namespace {

constexpr int kBurst = 32;    // cycles between polls of the socket
constexpr int kLookMs = 250;  // between two polls of an idle wire

const char kUsage[] =
    "usage: board-ranks FILE\n"
    "\n"
    "The configuration FILE, and descriptors, come from baltra cluster run (hdl/board/sim/message_door.hpp).\n";

bool input_has_ended() {
  char drop[64];
  return ::read(0, drop, sizeof drop) <= 0;
}

void run(const char* path) {
  const char* text = getenv("HUM_SPIN_US");
  const std::chrono::microseconds spin(text == nullptr ? 0 : atoi(text));
  Board board(MessageDoor::address(path), 0, 0, 0, "");
  functions::Store images(board);
  HostPort host(board, images, "");
  MessageDoor door(board, host, path);
  board.on_frame = [&](const Frame& frame) { door.take(frame); };
  door.start();
  int still = 0;
  bool noted = false;
  auto since = std::chrono::steady_clock::now();
  for (uint64_t turn = 0;; turn++) {
    bool did = door.run();
    did |= host.run();
    if (did || !board.idle()) still = 0;
    if (still < MessageDoor::kAfterglow) {
      if (noted && !door.all_wait()) door.note(), noted = false;
      for (int i = 0; i < kBurst; i++) board.step();
      still += kBurst;
      since = std::chrono::steady_clock::now();
      if (turn % 128 == 0) {
        pollfd input{0, POLLIN, 0};
        if (poll(&input, 1, 0) > 0 && input_has_ended()) return;
      }
      if (board.hold) usleep(100);
      continue;
    }
    // A process that wakes a sleeper also waits for the kernel.
    if (std::chrono::steady_clock::now() - since < spin) continue;
    const bool rests = door.rests();
    if (rests) door.note(), noted = true;
    std::vector<pollfd> waits;
    door.wait_for(waits);
    waits.push_back({0, POLLIN, 0});
    poll(waits.data(), waits.size(), rests ? kLookMs : 1);
    if (waits.back().revents != 0 && input_has_ended()) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    const bool help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fputs(kUsage, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  try {
    run(argv[1]);
  } catch (const std::runtime_error& error) {
    fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
  return 0;
}
