// The message door of the live board: kernels of a job in its regions (hdl/messages/sim/ranks.hpp),
// and the wire to the job's other stations. `baltra cluster run` writes a file with the
// configuration, and passes the descriptors that it names:
//
//   address MAC                        this board's address
//   ranks N                            in the cluster
//   kernel RANK REGION LIBRARY [IMAGE]  a kernel of this board: its library, and its program if it is a processor
//   memory RANK BYTES                  a kernel's off-chip memory, a multiple of 64 bytes, up to 256 MB
//   probe RANK out|in|both FILE        captures these streams of a kernel to a file
//   peer RANK MAC SOCKET IP|- [board]  a rank of another station, on a board; raw Ethernet (-) or UDP
//   udp IP                             this board's address for UDP
//   tcp IP STATION PORT                this board as a station of TCP; the port is common to all
//   station N ROLE IP [MAC SOCKET]     1: this board connects to it, 2: it connects; destination of a board's frames
//   peer RANK STATION                  with TCP: a rank of another station
//   fault KIND N                       lose, repeat or swap the Nth numbered frame, or vanish at it; loss: N percent of them
//
// HUM_WIRE is the descriptor of its socket, HUM_SEGMENT that of the counters that the launcher reads;
// with TCP, HUM_KEY is the job's key and HUM_LISTEN the descriptor of the socket to which processes
// connect. The output of kernels has the rank and a colon before each line, "RANK ended CODE" when a
// kernel has ended. The board ends at the end of its input.
//
// A rank is a run in a region like any other: its image is loaded, and the host port starts it.
// Compiled with BOARD_TCP or BOARD_UDP for these networks, otherwise raw Ethernet.
#pragma once
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef BOARD_TCP
#include "../../messages/sim/tcp.hpp"
#else
#include "../../messages/sim/ethernet.hpp"
#endif
#include "../../messages/sim/ranks.hpp"
#include "board.hpp"
#include "host_port.hpp"

class MessageDoor {
 public:
  // Cycles that are run after the last activity.
  static constexpr int kAfterglow = 2 * Network::kIdle;

  // Throws std::runtime_error with the file's line.
  MessageDoor(Board& board, HostPort& host, const std::string& path) : board_(board), host_(host), at_(Board::kRegions), begun_(Board::kRegions) {
    network_.trace.cycles = &board_.cycles;
    read(path);
    for (Rank& rank : ranks_.all) {
      if (at_[rank.port] != nullptr) throw std::runtime_error(path + ": region " + std::to_string(rank.port) + " has two kernels");
      at_[rank.port] = &rank;
    }
    board_.on_rank = [this](size_t region, const region_in& in, const region_out& before, const region_out& after) {
      Rank* const rank = at_[region];
      if (rank == nullptr) return;
      if (in.start) begun_[region] = 1;
      rank->observe(board_.cycles, in, before, after);
    };
  }
  // Starts the ranks; frames may leave the board from here on.
  void start() {
    // Packets for a rank wait for its run (region_packets).
    for (unsigned rank = 0; rank < 256; rank++) board_.place_none(rank);
    for (const Rank& rank : ranks_.all) board_.place_rank(static_cast<unsigned>(rank.rank), rank.port);
    network_.configure(board_);
    // The bridges clear their tables after reset.
    for (int i = 0; i < kSweep; i++) board_.step();
    for (Rank& rank : ranks_.all) start(rank);
  }

  ~MessageDoor() { board_.on_rank = nullptr; }
  MessageDoor(const MessageDoor&) = delete;
  MessageDoor& operator=(const MessageDoor&) = delete;

  // The address in a configuration file.
  static uint64_t address(const std::string& path) {
    std::ifstream file(path);
    std::string what, text;
    if (!(file >> what >> text) || what != "address") throw std::runtime_error(path + ": does not begin with an address");
    return parse_mac(text);
  }

  // A frame that left the board; false: it is not one of messages.
  bool take(const Frame& frame) {
    if (!Network::is_message(frame)) return false;
    network_.trace.out(frame);
    network_.departed(frame);
    network_.out.push_back(frame);
    sent_ = network_.flush();  // at once, so that a waiting receiver needs no further cycles
    board_.hold = network_.out.size() >= Wire::kQueue;
    return true;
  }

  // Passes frames in both directions; true if there was one, or a rank works.
  bool run() {
    bool did = network_.receive();
    for (; !network_.in.empty() && board_.messages_waiting() < Wire::kQueue; network_.in.pop_front()) {
      board_.send_message(std::move(network_.in.front()));
      did = true;
    }
    sent_ = network_.flush();
    board_.hold = network_.out.size() >= Wire::kQueue;
    did |= network_.pass(board_);
    board_.ranks_wait = ranks_.all_wait() && host_.has_only_ranks();
    return did || !ranks_.all_wait();
  }

  bool all_wait() const { return ranks_.all_wait(); }
  // Only a slow receiver can delay this.
  bool has_sent() const { return sent_; }
  // Nothing is to be done before a frame arrives: a session with retransmissions in progress has not
  // ended.
  bool rests() const { return sent_ && !network_.timed(); }
  void note() { ranks_.note(network_.out_of, network_.in_for); }
  void wait_for(std::vector<pollfd>& waits) const {
    for (const pollfd& one : network_.waits()) waits.push_back(one);
  }

 private:
  static constexpr int kSweep = 4200, kStartMost = 2000000;

  void read(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(path + ": cannot be read");
    std::string line, what, text;
    for (int n = 1; std::getline(file, line); n++) {
      std::istringstream words(line);
      if (!(words >> what)) continue;
      const auto is_valid = [&] {
        if (what == "address") return words >> text && parse_mac(text) == board_.own_mac();
        if (what == "fault") {
          uint64_t at = 0;
          return words >> text >> at && network_.fault(text, at);
        }
        return ranks_.line(what, words, Board::kRegions) || network_.line(what, words);
      };
      if (!is_valid()) throw std::runtime_error(path + ":" + std::to_string(n) + ": " + line);
    }
  }

  void start(Rank& rank) {
    board_.probes[rank.port] = rank.probe;
    host_.start_rank(rank.api, rank.port, static_cast<uint32_t>(rank.rank), ranks_.ranks, rank.memory_bytes, rank.program);
    for (int i = 0; !begun_[rank.port]; i++) {
      if (i == kStartMost) throw std::runtime_error("rank " + std::to_string(rank.rank) + " did not start in its region");
      board_.step();
      host_.run();
    }
    Ranks::started(rank);
  }

  Board& board_;
  HostPort& host_;
  Ranks ranks_;
  Network network_;
  std::vector<Rank*> at_;       // by region
  std::vector<uint8_t> begun_;
  bool sent_ = true;
};
