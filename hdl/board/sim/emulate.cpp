// The simulation library of an OpenCL program, without the program itself (emulate_program.hpp): it is
// compiled once for all programs.
//
// Buffers keep their place in the caller's memory. Each has a range of the board's addresses; ranges
// of buffers that overlap overlap in the same way.
#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <string>
#include <vector>

#include "dram.hpp"
#include "emulate_abi.h"
#include "emulate_channels.hpp"
#include "emulate_program.hpp"
#include "region_frame.hpp"

// The models do not use Verilator's simulation time.
double sc_time_stamp() { return 0; }

namespace {

// A line of the cache.
constexpr uint32_t kLine = 128, kWords = 16;
// Ranges of buffers begin in different lines of the cache.
constexpr uint64_t kColor = 5 * kLine;
constexpr size_t kText = 4096;
constexpr unsigned kBuffers = 15;
// Bursts of a direction that the memory's controller accepts before it has completed the first.
constexpr size_t kOutstanding = 8;

// The board's memory: ranges of addresses that are the caller's buffers.
class Memory {
 public:
  struct Range {
    uint8_t* bytes;
    uint64_t size, address;
  };

  // The addresses of the buffers.
  std::vector<uint32_t> place(const emulate_buffer* buffers, unsigned count) {
    std::vector<unsigned> order;
    for (unsigned i = 0; i < count; i++)
      if (buffers[i].bytes != nullptr && buffers[i].size != 0) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return buffers[a].bytes < buffers[b].bytes; });
    ranges_.clear();
    std::vector<uint32_t> addresses(count);
    uint64_t next = kLine;
    for (unsigned i : order) {
      uint8_t* from = buffers[i].bytes;
      uint64_t size = buffers[i].size;
      // Buffers that share a word share a range.
      if (ranges_.empty() || from >= ranges_.back().bytes + (ranges_.back().size + 7) / 8 * 8)
        ranges_.push_back({from, 0, (next + kLine - 1) / kLine * kLine});
      Range& range = ranges_.back();
      range.size = std::max<uint64_t>(range.size, from + size - range.bytes);
      next = range.address + range.size + kColor;
      addresses[i] = static_cast<uint32_t>(range.address + (from - range.bytes));
    }
    return addresses;
  }

  uint64_t read(uint64_t address) const {
    uint64_t word = 0;
    if (const Range* range = find(address)) {
      uint64_t at = address - range->address;
      std::memcpy(&word, range->bytes + at, std::min<uint64_t>(8, range->size - at));
    }
    return word;
  }

  void write(uint64_t address, uint64_t word) {
    if (const Range* range = find(address)) {
      uint64_t at = address - range->address;
      std::memcpy(range->bytes + at, &word, std::min<uint64_t>(8, range->size - at));
    }
  }

 private:
  const Range* find(uint64_t address) const {
    for (const Range& range : ranges_)
      if (address >= range.address && address - range.address < range.size) return &range;
    return nullptr;
  }

  std::vector<Range> ranges_;
};

// The timing of a memory that instances share.
struct SharedDram {
  uint64_t made;
  Dram dram;
};
static_assert(sizeof(SharedDram) <= EMULATE_MEMORY_BYTES);

std::vector<Channel> make_channels() {
  std::vector<Channel> made;
  for (unsigned i = 0; i < kProgram.channels; i++) made.emplace_back(kProgram.channel_sizes[i].words, kProgram.channel_sizes[i].capacity);
  return made;
}
std::vector<Channel> channels = make_channels();

// A kernel in simulation.
class Kernel {
 public:
  Kernel(const region_api& api, void* region, const KernelChannels& ports)
      : api_(api), region_(region), ports_(ports), words_in_(ports.words_in), words_out_(ports.words_out) {}
  ~Kernel() { api_.destroy(region_); }
  Kernel(const Kernel&) = delete;

  void start(const emulate_launch& launch) {
    launch_ = launch;
    text_.clear();
    result_ = {};
    now_ = 0;
    own_dram_ = Dram();
    dram_ = &own_dram_;
    if (launch.memory != nullptr) {
      SharedDram* shared = static_cast<SharedDram*>(launch.memory);
      if (!shared->made) new (shared) SharedDram{1, Dram()};
      dram_ = &shared->dram;
    }
    reads_.clear();
    writes_.clear();
    written_.clear();
    beat_ = at_ = 0;
    body_.clear();
    sent_ = 0;
    const unsigned words = std::min(launch.words_count, region_frame::kWords), count = std::min(launch.buffers_count, kBuffers);
    body_.push_back(region_frame::head(words, count, UINT32_MAX));
    body_.insert(body_.end(), launch.words, launch.words + words);
    const std::vector<uint32_t> addresses = memory_.place(launch.buffers, count);
    for (unsigned i = 0; i < count; i++) {
      const uint64_t size = launch.buffers[i].bytes == nullptr ? 0 : std::min<uint64_t>(launch.buffers[i].size, 1 << 28);
      body_.push_back(region_frame::buffer(addresses[i], size, launch.buffers[i].read_only == 0));
    }
    in_ = {};
    in_.rst = 1;
    in_.ready = 1;
    if (ports_.settle) pins_ = {}, ports_.settle(region_, &in_, &pins_, words_in_.data(), words_out_.data());
    for (int i = 0; i < 4; i++) clock();
    in_.rst = 0;
    in_.start = 1;
    clock();
    in_.start = 0;
  }

  void run(uint64_t now, uint64_t cycles, emulate_result& result) {
    for (uint64_t i = 0; i < cycles && result_.state == EMULATE_RUNNING; i++) {
      memory(now + i);
      in_.valid = sent_ < body_.size();
      in_.data = in_.valid ? body_[sent_] : 0;
      in_.last = sent_ + 1 == body_.size();
      if (in_.valid && out_.ready) sent_++;
      if (out_.valid) take(out_.data, out_.last);
      if (ports_.settle) exchange(now + i);
      clock();
      now_++;
    }
    result_.cycles = result_.state == EMULATE_RUNNING ? now_ : cycles_;
    flush();
    result = result_;
  }

 private:
  void clock() { api_.tick(region_, &in_, &out_); }

  // Transfers elements of channels in a cycle. The operations of a kernel do not depend on those of
  // others in the same cycle.
  void exchange(uint64_t now) {
    pins_ = {};
    for (unsigned i = 0; i < ports_.in_count; i++) {
      const Port& port = ports_.in[i];
      const Channel& channel = channels[port.channel];
      if (!channel.valid(now)) continue;
      pins_.in_valid |= 1u << i;
      std::copy(channel.front().begin(), channel.front().end(), words_in_.begin() + port.first);
    }
    for (unsigned i = 0; i < ports_.out_count; i++)
      if (channels[ports_.out[i].channel].ready(now)) pins_.out_ready |= 1u << i;
    ports_.settle(region_, &in_, &pins_, words_in_.data(), words_out_.data());
    result_.waits = 0;
    for (unsigned i = 0; i < ports_.in_count; i++) {
      if (pins_.in_waits >> i & 1) wait_for(ports_.in[i].channel, false);
      if ((pins_.in_valid & pins_.in_ready) >> i & 1) channels[ports_.in[i].channel].pop(now), result_.transfers++;
    }
    for (unsigned i = 0; i < ports_.out_count; i++) {
      const Port& port = ports_.out[i];
      if (pins_.out_waits >> i & 1) wait_for(port.channel, true);
      if (((pins_.out_valid & pins_.out_ready) >> i & 1) == 0) continue;
      const auto first = words_out_.begin() + port.first;
      channels[port.channel].push(now, {first, first + channels[port.channel].words});
      result_.transfers++;
    }
  }

  void wait_for(unsigned channel, bool writes) {
    result_.waits = channel + 1;
    result_.waits_to_write = writes;
  }

  // The inputs of the next cycle, from the outputs after the last one. Bursts are served in order;
  // further ones are accepted meanwhile.
  void memory(uint64_t now) {
    if (in_.rvalid && ++beat_ == kWords) {
      reads_.pop_front();
      beat_ = 0;
    }
    if (in_.bvalid) written_.pop_front();
    in_.arready = reads_.size() < kOutstanding;
    if (out_.arvalid && in_.arready) reads_.push_back({out_.araddr, access(now, out_.araddr)});
    in_.rvalid = !reads_.empty() && now >= reads_.front().due;
    in_.rlast = beat_ == kWords - 1;
    in_.rdata = in_.rvalid ? memory_.read(reads_.front().address + 8 * beat_) : 0;
    in_.awready = writes_.size() + written_.size() < kOutstanding;
    in_.wready = !writes_.empty();
    if (out_.wvalid && in_.wready) {
      memory_.write(writes_.front() + 8 * at_++, out_.wdata);
      if (at_ == kWords) {
        written_.push_back(access(now, writes_.front()));
        writes_.pop_front();
        at_ = 0;
      }
    }
    if (out_.awvalid && in_.awready) writes_.push_back(out_.awaddr);
    in_.bvalid = !written_.empty() && now >= written_.front();
  }

  // The time of a burst's first word, or of its response.
  uint64_t access(uint64_t now, uint32_t address) { return dram_->access(now, address + launch_.rows * Dram::kRowBytes * Dram::kBanks, kWords); }

  // A beat of the answer.
  void take(uint64_t beat, bool last) {
    if (last) {
      cycles_ = beat;
      result_.state = end_.fault ? EMULATE_FAULT : end_.status != 0 ? EMULATE_STATUS : EMULATE_DONE;
      result_.status = end_.status;
      result_.argument = end_.buffer - 1u;
      result_.write = end_.write;
      result_.offset = end_.offset;
    } else if (!region_frame::text(beat, text_)) {
      end_ = region_frame::end(beat);
    }
    if (text_.size() >= kText) flush();
  }

  void flush() {
    if (!text_.empty() && launch_.print != nullptr) launch_.print(launch_.print_context, text_.data(), text_.size());
    text_.clear();
  }

  const region_api& api_;
  void* const region_;
  region_in in_{};
  region_out out_{};
  // Of its channels: the pins, and the words of all ports of a direction.
  const KernelChannels& ports_;
  ChannelPins pins_{};
  std::vector<uint32_t> words_in_, words_out_;
  emulate_launch launch_{};
  emulate_result result_{};
  Memory memory_;
  Dram own_dram_;
  Dram* dram_ = &own_dram_;
  std::string text_;
  uint64_t cycles_ = 0, now_ = 0;
  // Bursts without their last word or response: reads; addresses of writes; times of responses.
  struct Read {
    uint32_t address;
    uint64_t due;
  };
  std::deque<Read> reads_;
  std::deque<uint32_t> writes_;
  std::deque<uint64_t> written_;
  std::vector<uint64_t> body_;
  size_t sent_ = 0;
  region_frame::End end_{};
  unsigned beat_ = 0, at_ = 0;
};

void* create(uint32_t number) {
  if (number >= kProgram.kernels) return nullptr;
  const region_api& api = kProgram.regions[number];
  void* region = nullptr;
  try {
    region = api.create();
    return region == nullptr ? nullptr : new Kernel(api, region, kProgram.kernel_channels[number]);
  } catch (const std::bad_alloc&) {
    if (region != nullptr) api.destroy(region);
    return nullptr;
  }
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }
void start(void* kernel, const emulate_launch* launch) { static_cast<Kernel*>(kernel)->start(*launch); }
void run(void* kernel, uint64_t now, uint64_t cycles, emulate_result* result) { static_cast<Kernel*>(kernel)->run(now, cycles, *result); }

void clear_channels() {
  for (Channel& channel : channels) channel.clear();
}

const emulate_api kApi = {EMULATE_ABI,      kProgram.kernels,  kProgram.names,         create,        destroy, start, run,
                          kProgram.regions, kProgram.channels, kProgram.channel_names, clear_channels};

}  // namespace

extern "C" __attribute__((visibility("default"))) const emulate_api* baltra_emulate(void) { return &kApi; }
