// The Verilated board: its Ethernet port (frames in, frames out, cycles between them), its host
// port (registers, and the host memory that it reads and writes), and the kernels in its regions.
#pragma once
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "Vboard_model.h"
#include "Vboard_model___024root.h"
#include "image_header.hpp"
#include "kernels.hpp"
#include "mapped_memory.hpp"
#include "verilated.h"
#ifdef BOARD_TRACE
#include "verilated_vcd_c.h"
#endif

// Internal to Verilator, in no header.
void Vboard_model___024root___eval(Vboard_model___024root*);
void Vboard_model___024root___eval_ico(Vboard_model___024root*);
void Vboard_model___024root___eval_triggers_vec__act(Vboard_model___024root*);
void Vboard_model___024root___eval_nba(Vboard_model___024root*);

using Frame = std::vector<uint8_t>;

// The entry of a function in the function table (functions_pkg::entry_t).
struct FunctionEntry {
  uint32_t image = 0;    // its address in board memory, a multiple of 256
  uint32_t timeout = 0;  // cycles; 0: unlimited
  uint16_t speed = 0;    // cycles of eight bytes, log2
  uint16_t regions = 0;  // in which its calls may run, a bit each; 0: any
  uint32_t binding = 0;  // address of its binding to a kernel from OpenCL C, in place of the last scalar
  std::string scalars[4];
};

enum class Policy : uint8_t { Fifo, Affinity, Shortest };

// The host port's registers (hdl/host/README.md).
enum class Register : uint8_t {
  Magic, Version, Shell, Sizes, Image, Cycles, CyclesUp, Decouple, Policy, LoadCost, PostLow, PostHigh, Ended, Forget,
  Change, Abort, Name = 16, Entry = 20, Loads = 32, Busy = 48, Held = 16,
  Address = 32, AddressUp, Ip, Put, Station, OwnIp, OwnStation, Secret, SecretUp, Key
};

// The host's memory for the board. False: the address is not mapped.
struct HostMemory {
  virtual ~HostMemory() = default;
  virtual bool read(uint64_t address, uint64_t& data) = 0;
  virtual void write(uint64_t address, uint64_t data, uint8_t keep) = 0;
};

class Board {
 public:
#ifdef BOARD_PORT32
  // The line uses the port's clock, which is independent of the shell's.
  static constexpr size_t kWordBytes = 4;
  static inline double port_ns = 8, core_ns = 16;
#else
  static constexpr size_t kWordBytes = 8;
#endif
  // Interframe gap, preamble and check sequence: 24 byte times of the line that are not in the
  // stream.
  static constexpr int kGapWords = 24 / kWordBytes;
  static constexpr size_t kLeastFrame = 60;
  static constexpr size_t kMostFrame = 9014;

  std::function<void(const Frame&)> on_frame;  // a frame left the board
  uint64_t cycles = 0;
  uint64_t first_byte_out = 0;  // cycle of the latest frame's first word; in the line's clock, like
                                // all times of the line
  uint64_t last_byte_in = 0;    // cycle of the last word of the latest frame, or of the latest from
                                // `watched`
  uint16_t watched = 0;         // a TCP port, or 0

  static constexpr size_t kRegions = sizeof(Vboard_model::k_s_data) / sizeof(uint64_t);
  uint8_t probes[kRegions] = {};  // streams of ranks that are captured (region_abi.h)
  static constexpr size_t kNameBytes = 15, kScalarBytes = 8;
  static constexpr uint32_t kShell = 1;  // the shell id for images
  static constexpr uint32_t kImageAlignment = 256;
  static constexpr uint32_t kBound = 1u << 15;  // marks a binding
  static constexpr uint32_t kRemote = 1;  // marks an image that is in the store
  static constexpr size_t kPathBytes = 64;
  static constexpr size_t kStoreBytes = 8 << 21;  // bytes at the top of memory for fetched images
  static constexpr unsigned kHostLatency = 125;  // cycles from a read of host memory to its first
                                                 // beat: 0.8 us at 156.25 MHz

  // A region's kernel exchanges messages, and has had an edge: its inputs and outputs before it, and
  // its outputs after it.
  std::function<void(size_t region, const region_in&, const region_out& before, const region_out& after)> on_rank;
  bool hold = false;  // no frame leaves
  // Whether descriptors in progress are those of ranks alone, which wait.
  bool ranks_wait = false;

  HostMemory* host_memory = nullptr;
  uint64_t host_ended = 0;  // descriptors

  // The cycles of the steps of the latest call; with several calls in progress,
  // the latest of each step.
  struct Steps {
    uint64_t requested = 0, granted = 0, swapped = 0, ended = 0;
    uint64_t configured_from = 0, configured_to = 0;  // first and last word at the configuration
                                                      // port
  } steps;
  uint64_t configured = 0;  // words at the configuration port
  uint64_t loads = 0;

  // `kernels` is the directory of their libraries.
  Board(uint64_t mac, uint32_t ip, uint16_t port, uint64_t secret, const std::string& kernels)
      : top_(new Vboard_model(&context_)), libraries_(kernels) {
#ifdef BOARD_TRACE
    context_.traceEverOn(true);
    top_->trace(&waves_, kAllLevels);
#endif
    top_->clk = 0;
    top_->rst = 1;
    top_->tick = 0;
    top_->own_mac = mac;
    top_->own_ip = ip;
    top_->listen_port = port;
    top_->secret = secret;
    top_->rx_valid = 0;
    top_->tx_ready = 1;
    top_->store_ip = 0;
    top_->netmask = top_->gateway = 0;
    top_->udp_echo = 0;
    top_->host_write = 0;
    top_->dma_read_ready = top_->dma_write_ready = 1;
    top_->dma_data_valid = 0;
    top_->eval();  // the first call initializes the model
    far_ = std::exchange(FarMemory::latest, nullptr);
    for (int i = 0; i < 16; i++) step();
    top_->rst = 0;
    for (int i = 0; i < 128; i++) step();
  }
  // Required in requests as X-API-Key, up to 32 characters; empty: none.
  void require(const std::string& key) {
    for (size_t i = 0; i < 8; i++) top_->api_key[i] = 0;
    for (size_t i = 0; i < key.size() && i < 32; i++) top_->api_key[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(key[i])) << (8 * (i % 4));
  }
  // The location of images that are not in memory, as `path`NAME.img; up to 64 characters.
  void store(uint32_t ip, uint16_t port, const std::string& path) {
    top_->store_ip = ip;
    top_->store_port = port;
    for (size_t i = 0; i < kPathBytes / 4; i++) top_->store_path[i] = 0;
    for (size_t i = 0; i < path.size() && i < kPathBytes; i++) top_->store_path[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(path[i])) << (8 * (i % 4));
  }
  // Echoes datagrams that arrive at this UDP port; 0: none.
  void udp_echo(uint16_t port) { top_->udp_echo = port; }
  // The network for the store; 0: every host is on the own network.
  void route(uint32_t netmask, uint32_t gateway) {
    top_->netmask = netmask;
    top_->gateway = gateway;
  }
  ~Board() { top_->final(); }

  // Queues a frame for the line. Short ones are padded, as a MAC would receive them.
  void send(Frame frame) {
    if (frame.empty() || frame.size() > kMostFrame) return;
    if (frame.size() < kLeastFrame) frame.resize(kLeastFrame);
    in_.push_back(std::move(frame));
  }
  // The same for a frame of messages, which waits while the board has no space for it, as a MAC's
  // pause frames would have it.
  void send_message(Frame frame) { messages_in_.push_back(std::move(frame)); }
  size_t messages_waiting() const { return messages_in_.size(); }

  void write_register(Register at, uint32_t value, unsigned offset = 0) {
    top_->host_write = 1;
    top_->host_address = static_cast<uint8_t>(static_cast<unsigned>(at) + offset);
    top_->host_data = value;
    step();
    top_->host_write = 0;
  }
  uint32_t read_register(Register at, unsigned offset = 0) {
    top_->host_address = static_cast<uint8_t>(static_cast<unsigned>(at) + offset);
    step();
    step();
    return top_->host_read_data;
  }

  // `patience`: how often a call may be overtaken; `load_cost`: cycles of a load, for Shortest.
  void schedule(Policy policy, uint8_t patience, uint32_t load_cost) {
    write_register(Register::Policy, static_cast<uint32_t>(policy) | static_cast<uint32_t>(patience) << 8);
    write_register(Register::LoadCost, load_cost);
  }

  // For images uploaded by the host.
  size_t memory_bytes() const { return sizeof(Memory) - kStoreBytes; }

  // Writes into board memory, like DMA. False if it does not fit.
  bool write(uint32_t address, const void* bytes, size_t count) {
    if (address > memory_bytes() || count > memory_bytes() - address) return false;
    memcpy(reinterpret_cast<uint8_t*>(&memory()) + address, bytes, count);
    return true;
  }

  // The kernels' part of board memory; no bytes if the model has none.
  static constexpr uint32_t kKernelBase = 0x40000000;
  uint64_t kernel_memory_bytes() const { return far_ ? far_->bytes : 0; }
  // Zeroes a part of it, a multiple of 8, as a driver does before another program receives it.
  void clear(uint32_t address, size_t count) { far_->clear(address - kKernelBase, count); }
  // Writes into it, a multiple of 8.
  void write_kernel_memory(uint32_t address, const void* bytes, size_t count) {
    memcpy(reinterpret_cast<uint8_t*>(far_->words) + (address - kKernelBase), bytes, count);
  }
  // The header of an image in board memory, as the driver has written it; none: it is not intact.
  std::optional<image_header::Header> image_at(uint32_t address) const {
    return image_header::read(reinterpret_cast<const uint8_t*>(&memory()) + address);
  }

  KernelLibraries& libraries() { return libraries_; }

  // Adds a function to the table, or changes its entry; returns its number, or none if there is no
  // space, or a name does not fit.
  std::optional<unsigned> define(const std::string& name, const FunctionEntry& entry) {
    for (const std::string& scalar : entry.scalars)
      if (scalar.size() > kScalarBytes) return {};
    put(Register::Entry, 0, {entry.image, entry.timeout, entry.speed | (entry.binding ? kBound : 0u) | static_cast<uint32_t>(entry.regions) << 16});
    for (unsigned i = 0; i < 4; i++) put(Register::Entry, 3 + 2 * i, words(entry.scalars[i], 2));
    if (entry.binding) put(Register::Entry, 9, {entry.binding, 0});
    return change(name, 1);
  }
  // Removes a function; none if it does not exist.
  std::optional<unsigned> remove(const std::string& name) { return change(name, 2); }

  // Cycles of the line's clock.
#ifdef BOARD_PORT32
  uint64_t line_cycles() const { return port_cycles_; }
#else
  uint64_t line_cycles() const { return cycles; }
#endif
  // Frames dropped by a port of 32 bits.
  unsigned dropped() const { return top_->rx_dropped; }

  bool idle() const { return in_.empty() && messages_in_.empty() && gap_ == 0 && out_.empty() && !top_->busy && (!top_->host_busy || ranks_wait); }

  // The message door's tables (hdl/host/README.md): the board's own address, station and port;
  void address_messages(uint32_t ip, unsigned station, uint16_t port) {
    write_register(Register::OwnIp, ip);
    write_register(Register::OwnStation, station | static_cast<uint32_t>(port) << 16);
  }
  // the secret of TCP, and the job's key;
  void secure_messages(uint64_t secret, const uint32_t (&key)[4]) {
    put(Register::Secret, 0, {static_cast<uint32_t>(secret), static_cast<uint32_t>(secret >> 32)});
    put(Register::Key, 0, {key[0], key[1], key[2], key[3]});
  }
  // where a rank is: in a region, or at another station;
  void place_rank(unsigned rank, unsigned region) { write_register(Register::Put, rank | region << 8); }
  void place_rank_at(unsigned rank, unsigned station, uint64_t address, uint32_t ip) {
    put(Register::Address, 0, {static_cast<uint32_t>(address), static_cast<uint32_t>(address >> 32), ip});
    write_register(Register::Put, rank | kNetwork << 8 | station << 16);
  }
  // no rank;
  void place_none(unsigned rank) { write_register(Register::Put, rank | kNone << 8); }
  // a station of TCP: 1, this board connects to it, 2, it connects.
  void place_station(unsigned station, unsigned role, uint32_t ip) {
    write_register(Register::Ip, ip);
    write_register(Register::Station, station | role << 8);
  }
  bool owes() const { return top_->owed; }
  // A station whose session has failed.
  std::optional<int> failed_station() const { return failed_station_; }
  uint64_t own_mac() const { return top_->own_mac; }
  size_t waiting() const { return in_.size(); }

  // A millisecond of the network's time has passed.
  void tick() {
    top_->tick = 1;
    step();
    top_->tick = 0;
  }

  // One rising edge. The model's inputs are registered: inputs set before the edge reach the shell
  // at the next one, and the present outputs are those before this edge.
  void step() {
#ifndef BOARD_PORT32
    serve_line();
#endif
    serve_host();
    // The edge of the kernels is the shell's: each side reads the other's outputs from before it.
    [[maybe_unused]] unsigned packet_valid = 0, packet_last = 0, packet_ready = 0;
    unsigned awake = 0, done = 0, code = 0, ready = 0, valid = 0, last = 0, arvalid = 0, awvalid = 0, wvalid = 0;
    for (size_t r = 0; r < kRegions; r++) {
      const bool rst = top_->k_rst >> r & 1, start = top_->k_start >> r & 1, loading = top_->decouple >> r & 1;
      // The model keeps the outputs of a region that rests.
      if (regions_[r].rests(rst, start, loading, packet_for(r))) continue;
      awake |= 1u << r;
      const region_out& out = tick(r, loading);
#ifdef BOARD_MESSAGES
      packet_valid |= static_cast<unsigned>(out.packet_valid) << r;
      packet_last |= static_cast<unsigned>(out.packet_last) << r;
      packet_ready |= static_cast<unsigned>(out.packet_ready) << r;
      top_->k_out_data[r] = out.packet;
#endif
      done |= static_cast<unsigned>(out.done) << r;
      code |= static_cast<unsigned>(out.code & 3) << 2 * r;
      ready |= static_cast<unsigned>(out.ready) << r;
      valid |= static_cast<unsigned>(out.valid) << r;
      last |= static_cast<unsigned>(out.last) << r;
      top_->k_m_data[r] = out.data;
      top_->k_m_keep[r] = out.keep;
      arvalid |= static_cast<unsigned>(out.arvalid) << r;
      awvalid |= static_cast<unsigned>(out.awvalid) << r;
      wvalid |= static_cast<unsigned>(out.wvalid) << r;
      top_->k_araddr[r] = out.araddr;
      top_->k_awaddr[r] = out.awaddr;
      top_->k_wdata[r] = out.wdata;
    }
#ifdef BOARD_MESSAGES
    top_->k_out_valid = static_cast<std::decay_t<decltype(top_->k_out_valid)>>(packet_valid);
    top_->k_out_last = static_cast<std::decay_t<decltype(top_->k_out_last)>>(packet_last);
    top_->k_in_ready = static_cast<std::decay_t<decltype(top_->k_in_ready)>>(packet_ready);
#endif
    top_->k_arvalid = static_cast<std::decay_t<decltype(top_->k_arvalid)>>(arvalid);
    top_->k_awvalid = static_cast<std::decay_t<decltype(top_->k_awvalid)>>(awvalid);
    top_->k_wvalid = static_cast<std::decay_t<decltype(top_->k_wvalid)>>(wvalid);
    top_->k_awake = static_cast<std::decay_t<decltype(top_->k_awake)>>(awake);
    top_->k_done = static_cast<std::decay_t<decltype(top_->k_done)>>(done);
    top_->k_code = static_cast<std::decay_t<decltype(top_->k_code)>>(code);
    top_->k_s_ready = static_cast<std::decay_t<decltype(top_->k_s_ready)>>(ready);
    top_->k_m_valid = static_cast<std::decay_t<decltype(top_->k_m_valid)>>(valid);
    top_->k_m_last = static_cast<std::decay_t<decltype(top_->k_m_last)>>(last);
    edge(1);
    edge(0);
    cycles++;
    note();
#ifdef BOARD_PORT32
    for (; port_at_ <= static_cast<double>(cycles) * core_ns; port_at_ += port_ns) port_edge();
#endif
  }

#ifdef BOARD_TRACE
  // Writes the waveform of every signal into this file from here on, 10 ns per cycle.
  void trace(const std::string& path) {
    waves_.open(path.c_str());
    if (!waves_.isOpen()) throw std::runtime_error(path + ": cannot be written");
  }
  void end_trace() { waves_.close(); }
#endif

 private:
#ifdef BOARD_PORT32
  // The port's inputs are not registered: they apply to this edge, and the present outputs are
  // sampled by it. A MAC is ready throughout a frame, and cannot pause within one.
  void port_edge() {
    ready_ = line_busy_ == 0;
    top_->tx_ready = ready_;
    if (!ready_) line_busy_--;
    else if (top_->tx_valid && !top_->rst) take();
    else if (!out_.empty()) throw std::runtime_error("the port pauses in a frame");
    drive();
    top_->port_clk = 1;
    evaluate(true);
    top_->port_clk = 0;
    evaluate(false);
    port_cycles_++;
  }
#else
  void serve_line() {
    if (!ready_) line_busy_ -= line_busy_ > 0;
    else if (top_->tx_valid && !top_->rst) take();
    top_->tx_ready = ready_ = line_busy_ == 0 && !hold;
    drive();
  }
#endif

  void edge(uint8_t clk) {
    top_->clk = clk;
    evaluate(clk);
#ifdef BOARD_TRACE
    if (waves_.isOpen()) waves_.dump(10 * cycles + (clk ? 0 : 5));
#endif
  }

  // Like `eval`, without its overhead for waveforms and messages, which the model does not use.
  void evaluate([[maybe_unused]] bool rising) {
#if defined BOARD_TRACE
    top_->eval();
#elif defined BOARD_PORT32 || defined BOARD_UNGATED
    Vboard_model___024root___eval(top_->rootp);
#else
    // It also skips the search for follow-up events where there can be none: while the clock is
    // high no gate opens; all other signals change with the rising edge, because inputs are
    // registered, and only the gates with the falling one.
    Vboard_model___024root* const root = top_->rootp;
    if (!rising) {
      root->__VicoTriggered[0] = 1;
      Vboard_model___024root___eval_ico(root);
    }
    Vboard_model___024root___eval_triggers_vec__act(root);
    if (!rising) return;
    root->__VnbaTriggered = root->__VactTriggered;
    Vboard_model___024root___eval_nba(root);
#endif
  }

#ifdef BOARD_MESSAGES
  bool packet_for(size_t r) const { return top_->k_in_valid >> r & 1; }
#else
  static constexpr bool packet_for(size_t) { return false; }
#endif

  const region_out& tick(size_t r, bool loading) {
    const region_in in = into_region(r);
    if (!on_rank || loading || !regions_[r].is_rank()) return regions_[r].tick(in, loading);
    const region_out before = regions_[r].shown();
    const region_out& out = regions_[r].tick(in, loading);
    on_rank(r, in, before, out);
    return out;
  }

  static constexpr unsigned kNetwork = 16, kNone = 31;

  region_in into_region(size_t r) const {
    region_in in;
    in.rst = top_->k_rst >> r & 1;
    in.start = top_->k_start >> r & 1;
    in.valid = top_->k_s_valid >> r & 1;
    in.last = top_->k_s_last >> r & 1;
    in.ready = top_->k_m_ready >> r & 1;
    in.data = top_->k_s_data[r];
    in.keep = top_->k_s_keep[r];
    for (int i = 0; i < 4; i++) in.params[i] = top_->k_params[r][i];
    in.rdata = top_->k_rdata[r];
    in.arready = top_->k_arready >> r & 1;
    in.rvalid = top_->k_rvalid >> r & 1;
    in.rlast = top_->k_rlast >> r & 1;
    in.rresp = static_cast<uint8_t>((top_->k_rfailed >> r & 1) << 1);
    in.awready = top_->k_awready >> r & 1;
    in.wready = top_->k_wready >> r & 1;
    in.bvalid = top_->k_bvalid >> r & 1;
    in.bresp = static_cast<uint8_t>((top_->k_bfailed >> r & 1) << 1);
#ifdef BOARD_MESSAGES
    in.packet_valid = top_->k_in_valid >> r & 1;
    in.packet_last = top_->k_in_last >> r & 1;
    in.packet_ready = top_->k_out_ready >> r & 1;
    in.packet = top_->k_in_data[r];
    in.now = static_cast<uint32_t>(cycles);
    in.probe = probes[r];
#else
    in.packet_valid = in.packet_last = in.packet_ready = in.probe = 0;
    in.packet = in.now = 0;
#endif
    return in;
  }

  // Events of the cycle that begins.
  void note() {
    if (top_->call_requested) steps.requested = cycles;
    if (top_->call_granted) steps.granted = cycles;
    if (top_->call_ended) steps.ended = cycles;
    if (top_->failed) failed_station_ = top_->failed_station;
    if (top_->icap_valid) {
      if (!configuring_) steps.configured_from = cycles;
      configuring_ = true;
      steps.configured_to = cycles;
      configured++;
    }
    if (top_->swap) {
      steps.swapped = cycles;
      configuring_ = false;
      loads++;
      regions_[top_->swap_region].swap(libraries_.find(top_->swap_kernel));
    }
  }

  static std::vector<uint32_t> words(const std::string& text, size_t count) {
    std::vector<uint32_t> all(count);
    for (size_t i = 0; i < text.size() && i < 4 * count; i++)
      all[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(text[i])) << (8 * (i % 4));
    return all;
  }
  void put(Register at, unsigned offset, const std::vector<uint32_t>& values) {
    for (uint32_t value : values) write_register(at, value, offset++);
  }
  std::optional<unsigned> change(const std::string& name, uint32_t what) {
    if (name.empty() || name.size() > kNameBytes) return {};
    put(Register::Name, 0, words(name, 4));
    write_register(Register::Change, what);
    uint32_t result;
    do result = read_register(Register::Change);
    while (result & 1);
    return result & 2 ? std::optional<unsigned>(result >> 16) : std::nullopt;
  }

  // Reads are late and in order, one beat per cycle; writes are accepted at once.
  void serve_host() {
    if (top_->dma_data_valid) top_->dma_data_valid = 0;
    if (!reads_.empty() && reads_.front().due <= cycles) {
      uint64_t data = 0;
      top_->dma_data_error = !host_memory || !host_memory->read(reads_.front().address, data);
      top_->dma_data = data;
      top_->dma_data_valid = 1;
      reads_.pop_front();
    }
    if (top_->dma_read_valid)
      for (unsigned i = 0; i < top_->dma_read_beats; i++) reads_.push_back({top_->dma_read_address + 8 * i, cycles + kHostLatency});
    if (top_->dma_write_valid && host_memory) host_memory->write(top_->dma_write_address, top_->dma_write_data, top_->dma_write_keep);
    if (top_->host_ended) host_ended++;
  }

  using Memory = decltype(Vboard_model___024root::board_model__DOT__u_memory__DOT__memory);
  Memory& memory() const { return top_->rootp->board_model__DOT__u_memory__DOT__memory; }

  void drive() {
    if (gap_ > 0) {
      gap_--;
      top_->rx_valid = 0;
      return;
    }
    // Both kinds of frames in turn.
    if (at_ == 0) message_ = !messages_in_.empty() && !top_->pause && (in_.empty() || !message_);
    std::deque<Frame>& queue = message_ ? messages_in_ : in_;
    if (queue.empty()) {
      top_->rx_valid = 0;
      return;
    }
    const Frame& frame = queue.front();
    size_t left = frame.size() - at_, n = left < kWordBytes ? left : kWordBytes;
    uint64_t data = 0;
    memcpy(&data, frame.data() + at_, n);
    top_->rx_data = data;
    top_->rx_keep = static_cast<uint8_t>((1u << n) - 1);
    top_->rx_last = left <= kWordBytes;
    top_->rx_valid = 1;
    at_ += n;
    if (left <= kWordBytes) {
      if (!watched || (frame.size() > 35 && (frame[34] << 8 | frame[35]) == watched)) last_byte_in = line_cycles() + kInputRegisters;
      queue.pop_front();
      at_ = 0;
      gap_ = kGapWords;
    }
  }

  void take() {
    if (out_.empty()) first_byte_out = line_cycles();
    uint64_t data = top_->tx_data;
    int n = __builtin_popcount(top_->tx_keep);
    size_t at = out_.size();
    out_.resize(at + n);
    memcpy(out_.data() + at, &data, n);
    if (top_->tx_last) {
      // The line is busy with padding, check sequence and gap.
      constexpr size_t least = 64 / kWordBytes;
      size_t words = (out_.size() + kWordBytes - 1) / kWordBytes;
      line_busy_ = static_cast<int>(kGapWords + (words < least ? least - words : 0));
      if (on_frame) on_frame(out_);
      out_.clear();
    }
  }

#ifdef BOARD_PORT32
  static constexpr uint64_t kInputRegisters = 0;
  uint64_t port_cycles_ = 0;
  double port_at_ = 0.37 * port_ns;  // of its next edge, in ns; an arbitrary phase to the shell's
                                     // clock
#else
  static constexpr uint64_t kInputRegisters = 1;
#endif
  VerilatedContext context_;
#ifdef BOARD_TRACE
  static constexpr int kAllLevels = 99;
  VerilatedVcdC waves_;
#endif
  std::unique_ptr<Vboard_model> top_;
  FarMemory* far_ = nullptr;
  KernelLibraries libraries_;
  RegionLogic regions_[kRegions];
  bool ready_ = true, configuring_ = false;
  struct HostRead {
    uint64_t address, due;
  };
  std::deque<HostRead> reads_;
  std::deque<Frame> in_, messages_in_;
  std::optional<int> failed_station_;
  bool message_ = false;  // the frame on the line is one of messages
  size_t at_ = 0;
  int gap_ = 0;
  int line_busy_ = 0;
  Frame out_;
};
