// The simulation library of an OpenCL program. KERNELS lists its kernels: X(number, name) for each
// model Vkernel_NUMBER of region_call. CHANNELS lists its channels: C(name, words of 32 bits, capacity). Ports<NUMBER> has
// the channels of a kernel.
//
// Buffers keep their place in the caller's memory. Each has a range of the board's addresses; ranges
// of buffers that overlap overlap in the same way.
#include <verilated.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "dram.hpp"
#include "emulate_abi.h"
#include "emulate_channels.hpp"
#include "kernels.h"
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

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void start(const emulate_launch& launch) = 0;
  virtual void run(uint64_t now, uint64_t cycles, emulate_result& result) = 0;
};

#define C(name, words, capacity) {words, capacity},
Channel channels[] = {CHANNELS{0, 0}};
#undef C

template <class Model, class Ports>
class Instance final : public Kernel {
 public:
  Instance() : context_(new VerilatedContext), model_(new Model(context_.get(), "kernel")) {}
  ~Instance() override { model_->final(); }

  void start(const emulate_launch& launch) override {
    Model& m = *model_;
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
    m.arvalid = 0;
    if constexpr (Ports::kAny) m.channel_in_valid = m.channel_out_ready = 0;
    m.rst = 1;
    m.start = m.s_valid = 0;
    m.arready = m.awready = m.wready = m.rvalid = m.bvalid = 0;
    m.m_ready = 1;
    for (int i = 0; i < 4; i++) clock();
    m.rst = 0;
    m.start = 1;
    clock();
    m.start = 0;
  }

  void run(uint64_t now, uint64_t cycles, emulate_result& result) override {
    Model& m = *model_;
    for (uint64_t i = 0; i < cycles && result_.state == EMULATE_RUNNING; i++) {
      memory(now + i);
      m.s_valid = sent_ < body_.size();
      m.s_data = m.s_valid ? body_[sent_] : 0;
      m.s_last = sent_ + 1 == body_.size();
      if (m.s_valid && m.s_ready) sent_++;
      if (m.m_valid) take(m.m_data, m.m_last);
      if constexpr (Ports::kAny) exchange(now + i);
      clock();
      now_++;
    }
    result_.cycles = result_.state == EMULATE_RUNNING ? now_ : cycles_;
    flush();
    result = result_;
  }

 private:
  void clock() {
    model_->clk = 0;
    model_->eval();
    model_->clk = 1;
    model_->eval();
  }

  // Transfers elements of channels in a cycle. What a kernel does in it does not depend on what others
  // do in the same cycle.
  void exchange(uint64_t now) {
    Model& m = *model_;
    m.channel_in_valid = m.channel_out_ready = 0;
    for (unsigned i = 0; i < Ports::kIn; i++) {
      const Port& port = Ports::in[i];
      const Channel& channel = channels[port.channel];
      if (!channel.valid(now)) continue;
      m.channel_in_valid |= 1u << i;
      for (unsigned w = 0; w < channel.words; w++) m.channel_in_data[port.first + w] = channel.front()[w];
    }
    for (unsigned i = 0; i < Ports::kOut; i++)
      if (channels[Ports::out[i].channel].ready(now)) m.channel_out_ready |= 1u << i;
    model_->eval();
    result_.waits = 0;
    for (unsigned i = 0; i < Ports::kIn; i++) {
      if (m.channel_in_waits >> i & 1) wait_for(Ports::in[i].channel, false);
      if ((m.channel_in_valid & m.channel_in_ready) >> i & 1) channels[Ports::in[i].channel].pop(now), result_.transfers++;
    }
    for (unsigned i = 0; i < Ports::kOut; i++) {
      const Port& port = Ports::out[i];
      if (m.channel_out_waits >> i & 1) wait_for(port.channel, true);
      if (((m.channel_out_valid & m.channel_out_ready) >> i & 1) == 0) continue;
      std::vector<uint32_t> words(channels[port.channel].words);
      for (unsigned w = 0; w < words.size(); w++) words[w] = m.channel_out_data[port.first + w];
      channels[port.channel].push(now, std::move(words));
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
    Model& m = *model_;
    if (m.rvalid && ++beat_ == kWords) {
      reads_.pop_front();
      beat_ = 0;
    }
    if (m.bvalid) written_.pop_front();
    m.arready = reads_.size() < kOutstanding;
    if (m.arvalid && m.arready) reads_.push_back({m.araddr, access(now, m.araddr)});
    m.rvalid = !reads_.empty() && now >= reads_.front().due;
    m.rlast = beat_ == kWords - 1;
    m.rresp = 0;
    m.rdata = m.rvalid ? memory_.read(reads_.front().address + 8 * beat_) : 0;
    m.awready = writes_.size() + written_.size() < kOutstanding;
    m.wready = !writes_.empty();
    if (m.wvalid && m.wready) {
      memory_.write(writes_.front() + 8 * at_++, m.wdata);
      if (m.wlast) {
        written_.push_back(access(now, writes_.front()));
        writes_.pop_front();
        at_ = 0;
      }
    }
    if (m.awvalid && m.awready) writes_.push_back(m.awaddr);
    m.bvalid = !written_.empty() && now >= written_.front();
    m.bresp = 0;
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

  std::unique_ptr<VerilatedContext> context_;
  std::unique_ptr<Model> model_;
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

// The same models in a region of the board, which has the memory.
template <class Model>
struct Region {
  VerilatedContext context;
  Model model{&context, "kernel"};

  static void* create() {
    Region* region = new (std::nothrow) Region;
    if (region) region->model.clk = 0, region->model.eval();
    return region;
  }
  static void destroy(void* region) {
    static_cast<Region*>(region)->model.final();
    delete static_cast<Region*>(region);
  }
  static void tick(void* region, const region_in* in, region_out* out) {
    Model& m = static_cast<Region*>(region)->model;
    m.rst = in->rst;
    m.start = in->start;
    for (int i = 0; i < 4; i++) m.params[i] = in->params[i];
    m.s_valid = in->valid;
    m.s_data = in->data;
    m.s_keep = in->keep;
    m.s_last = in->last;
    m.m_ready = in->ready;
    m.arready = in->arready;
    m.rvalid = in->rvalid;
    m.rlast = in->rlast;
    m.rresp = in->rresp;
    m.rdata = in->rdata;
    m.awready = in->awready;
    m.wready = in->wready;
    m.bvalid = in->bvalid;
    m.bresp = in->bresp;
    m.clk = 1;
    m.eval();
    m.clk = 0;
    m.eval();
    *out = {};
    out->done = m.done;
    out->code = m.code;
    out->ready = m.s_ready;
    out->valid = m.m_valid;
    out->data = m.m_data;
    out->keep = m.m_keep;
    out->last = m.m_last;
    out->arvalid = m.arvalid;
    out->araddr = m.araddr;
    out->awvalid = m.awvalid;
    out->awaddr = m.awaddr;
    out->wvalid = m.wvalid;
    out->wdata = m.wdata;
  }
};

#define X(number, name) {REGION_ABI, 0, name, Region<Vkernel_##number>::create, Region<Vkernel_##number>::destroy, Region<Vkernel_##number>::tick},
const region_api kRegions[] = {KERNELS{}};
#undef X

#define X(number, name) name,
const char* const kNames[] = {KERNELS nullptr};
#undef X

void* create(uint32_t kernel) {
  Kernel* made = nullptr;
  try {
    switch (kernel) {
#define X(number, name) \
  case number: made = new Instance<Vkernel_##number, Ports<number>>; break;
      KERNELS
#undef X
      default: break;
    }
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  return made;
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }
void start(void* kernel, const emulate_launch* launch) { static_cast<Kernel*>(kernel)->start(*launch); }
void run(void* kernel, uint64_t now, uint64_t cycles, emulate_result* result) { static_cast<Kernel*>(kernel)->run(now, cycles, *result); }

#define C(name, words, capacity) name,
const char* const kChannelNames[] = {CHANNELS nullptr};
#undef C

void clear_channels() {
  for (Channel& channel : channels) channel.clear();
}

const emulate_api kApi = {EMULATE_ABI, sizeof kNames / sizeof kNames[0] - 1, kNames, create, destroy, start, run, kRegions,
                           sizeof kChannelNames / sizeof kChannelNames[0] - 1, kChannelNames, clear_channels};

}  // namespace

extern "C" __attribute__((visibility("default"))) const emulate_api* baltra_emulate(void) { return &kApi; }
