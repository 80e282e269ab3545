// The message door of the live board: kernels of a job in its regions (hdl/messages/sim/ranks.hpp),
// and the wire to the job's other stations. A file has the configuration, as for the board of
// messages alone (hdl/messages/sim/board.cpp): the descriptors that it names come from
// `baltra cluster run`.
//
// A rank is a run in a region like any other: its image is loaded, and the host port starts it.
#pragma once
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../messages/sim/ethernet.hpp"
#include "../../messages/sim/ranks.hpp"
#include "board.hpp"
#include "host_port.hpp"

class MessageDoor {
 public:
  // Starts the ranks. Throws std::runtime_error with the file's line.
  MessageDoor(Board& board, HostPort& host, const std::string& path, uint64_t own_mac) : board_(board), host_(host) {
    network_.trace.cycles = &board_.cycles;
    read(path, own_mac);
    at_.assign(Board::kRegions, nullptr);
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
    for (Rank& rank : ranks_.all) start(rank);
    // Packets for a rank before its run would be discarded: the table comes last.
    for (const Rank& rank : ranks_.all) board_.place_rank(static_cast<unsigned>(rank.rank), rank.port);
    for (const auto& [rank, address] : network_.addresses()) board_.place_rank_at(static_cast<unsigned>(rank), address);
    // The bridges clear their tables after reset.
    for (int i = 0; i < kSweep; i++) board_.step();
  }
  ~MessageDoor() { board_.on_rank = nullptr; }
  MessageDoor(const MessageDoor&) = delete;
  MessageDoor& operator=(const MessageDoor&) = delete;

  // A frame that left the board; false: it is not one of messages.
  bool take(const Frame& frame) {
    if (frame.size() < kHead || frame[12] != kType >> 8 || frame[13] != (kType & 0xff)) return false;
    network_.trace.out(frame);
    network_.departed(frame);
    network_.out.push_back(frame);
    network_.flush();
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
    board_.ranks_wait = ranks_.all_wait() && host_.has_only_ranks();
    return did || !ranks_.all_wait();
  }

  // Before the board waits for its sockets.
  void rest() {
    if (sent_ && ranks_.all_wait()) ranks_.note(network_.out_of, network_.in_for);
  }
  void wait_for(std::vector<pollfd>& waits) const {
    for (const pollfd& one : network_.waits()) waits.push_back(one);
  }

 private:
  static constexpr size_t kHead = 24;
  static constexpr unsigned kType = 0x7400;
  static constexpr int kSweep = 4200, kStartMost = 2000000;

  void read(const std::string& path, uint64_t own_mac) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(path + ": cannot be read");
    std::string line, what, text;
    for (int n = 1; std::getline(file, line); n++) {
      std::istringstream words(line);
      if (!(words >> what)) continue;
      const auto is_valid = [&] {
        if (what == "address") return words >> text && parse_mac(text) == own_mac;
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
    begun_.resize(Board::kRegions);
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
  std::vector<Rank*> at_;      // by region
  std::vector<uint8_t> begun_;
  bool sent_ = true;
};
