// Replays a recording into a board: the same frames and ticks in the same cycles. An identical
// board with the same functions sends the same frames in the same cycles.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "board.hpp"
#include "record.hpp"

class Replay {
 public:
  // `record` records the replay.
  Replay(Board& board, std::vector<Event> events, Recorder& record) : board_(board), events_(std::move(events)), record_(record) {
    for (size_t i = 0; i < events_.size(); i++)
      if (events_[i].kind == Event::Out) expected_.push_back(i);
    board_.on_frame = [this](const Frame& frame) { left(frame); };
  }

  // Replays up to this cycle, or to the end.
  void run(uint64_t until = ~0ull) {
    for (; next_ < events_.size() && board_.cycles < until; next_++) {
      const Event& event = events_[next_];
      for (; repeated_ < event.repeats; repeated_++) {
        const uint64_t at = event.cycle + repeated_ * event.distance;
        while (board_.cycles < std::min(at, until)) board_.step();
        if (board_.cycles < at) return;
        if (event.kind == Event::Out) continue;  // compared in the step that begins here
        if (board_.cycles > at) throw std::runtime_error("the recording begins before this board is ready: other options or functions?");
        if (event.kind == Event::Tick) record_.tick(at), board_.tick();
        if (event.kind == Event::In) {
          in++;
          record_.frame(event.frame, true, at);
          board_.send(event.frame);
        }
      }
      repeated_ = 0;
    }
    if (over() && !expected_.empty() && events_[expected_.back()].cycle == board_.cycles && board_.cycles < until) board_.step();
  }
  bool over() const { return next_ >= events_.size(); }
  const std::vector<Event>& events() const { return events_; }

  uint64_t in = 0, out = 0;
  std::string difference;  // the first; empty: none
  // Whether all recorded frames were sent.
  bool complete() const { return out >= expected_.size(); }
  size_t recorded_out() const { return expected_.size(); }

 private:
  void left(const Frame& frame) {
    record_.frame(frame, false, board_.cycles);
    const uint64_t number = out++;
    if (!difference.empty()) return;
    if (number >= expected_.size()) {
      difference = "frame " + std::to_string(number + 1) + " from the board (cycle " + std::to_string(board_.cycles) + ") was not recorded";
      return;
    }
    const Event& want = events_[expected_[number]];
    if (want.cycle != board_.cycles || want.frame != frame)
      difference = "frame " + std::to_string(number + 1) + " from the board is " + (want.frame == frame ? "the same" : "another one") + ", in cycle " +
                   std::to_string(board_.cycles) + "; recorded in " + std::to_string(want.cycle);
  }

  Board& board_;
  std::vector<Event> events_;
  Recorder& record_;
  std::vector<size_t> expected_;
  size_t next_ = 0;
  uint64_t repeated_ = 0;
};
