// The kernels in the board's regions, from libraries; another kernel is placed into a region when
// its image has been loaded.
#pragma once
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "emulate_abi.h"
#include "region_abi.h"

// A kernel, with the library that it is from: a library is unloaded when no region has its kernels.
using KernelRef = std::shared_ptr<const region_api>;

// The libraries of a directory, by the kernel's number: kernel-3.so. Beyond those numbers, kernels of
// libraries that programs bring.
class KernelLibraries {
 public:
  static constexpr uint32_t kBroughtFrom = 1u << 31;  // numbers of kernels that programs bring

  explicit KernelLibraries(std::string directory) : directory_(std::move(directory)) {}

  // Adds a kernel of a program's library, the sealed content of a file; returns its number, or an
  // error.
  std::optional<uint32_t> bring(int file, uint32_t kernel, std::string& error) {
    // A name that no other library has: the linker compares names first.
    const std::string path = "/tmp/board-kernels-" + std::to_string(getpid()) + "-" + std::to_string(next_) + ".so";
    unlink(path.c_str());
    if (symlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path.c_str()) < 0) {
      error = "the library cannot be linked";
      return {};
    }
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) error = dlerror();
    unlink(path.c_str());
    if (!library) return {};
    const std::shared_ptr<void> owner(library, dlclose);
    auto entry = reinterpret_cast<const emulate_api* (*)()>(dlsym(library, "baltra_emulate"));
    const emulate_api* const api = entry ? entry() : nullptr;
    if (!api || api->abi != EMULATE_ABI || kernel >= api->kernels || api->regions[kernel].abi != REGION_ABI) {
      error = "the library is not one for this board, or lacks the kernel";
      return {};
    }
    const uint32_t number = kBroughtFrom | next_++;
    brought_[number] = KernelRef(owner, &api->regions[kernel]);
    return number;
  }
  // Adds a kernel whose library stays loaded.
  uint32_t add(const region_api* api) {
    const uint32_t number = kBroughtFrom | next_++;
    brought_[number] = KernelRef(KernelRef(), api);
    return number;
  }
  void drop(uint32_t number) { brought_.erase(number); }

  // Null if there is none, or none that matches the model.
  KernelRef find(uint32_t number) {
    if (number >= kBroughtFrom) {
      auto brought = brought_.find(number);
      return brought == brought_.end() ? nullptr : brought->second;
    }
    // The directory's libraries stay loaded.
    return KernelRef(KernelRef(), built_in(number));
  }

 private:
  const region_api* built_in(uint32_t number) {
    auto known = known_.find(number);
    if (known != known_.end()) return known->second;
    const std::string path = directory_ + "/kernel-" + std::to_string(number) + ".so";
    const region_api* api = nullptr;
    // Each library has private symbols, because all of them define the same ones.
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      auto entry = reinterpret_cast<region_entry>(dlsym(library, "baltra_region"));
      api = entry ? entry() : nullptr;
      if (!api || api->abi != REGION_ABI) {
        fprintf(stderr, "warning: %s is not a kernel for this model\n", path.c_str());
        api = nullptr;
      }
    } else {
      fprintf(stderr, "warning: no kernel %u: %s\n", number, dlerror());
    }
    return known_[number] = api;
  }

  std::string directory_;
  std::map<uint32_t, const region_api*> known_;
  std::map<uint32_t, KernelRef> brought_;
  uint32_t next_ = 0;
};

// One region. While it is being loaded, or empty, its outputs are random; if there is no library
// for the loaded image, its outputs are zero.
class RegionLogic {
 public:
  RegionLogic() = default;
  RegionLogic(const RegionLogic&) = delete;
  RegionLogic& operator=(const RegionLogic&) = delete;
  ~RegionLogic() { clear(); }

  void clear() {
    if (kernel_) api_->destroy(kernel_);
    kernel_ = nullptr;
    api_.reset();
  }
  void swap(KernelRef api) {
    clear();
    api_ = std::move(api);
    if (api_) kernel_ = api_->create();
    awake_ = kAwake;
    out_ = {};
  }
  const char* name() const { return kernel_ ? api_->name : "nothing"; }
  bool is_rank() const { return kernel_ && api_->messages; }

  // With these inputs its state would not change: it needs no edge, and its outputs are constant.
  bool rests(bool rst, bool start, bool loading, bool packet) const {
    return awake_ == 0 && !start && !loading && !packet && rst == was_reset_;
  }
  const region_out& shown() const { return out_; }

  // One rising edge. `loading`: the region is decoupled.
  const region_out& tick(const region_in& in, bool loading) {
    if (loading) {
      clear();
      awake_ = kAwake;
      noise_ = noise_ * 6364136223846793005ull + 1442695040888963407ull;
      out_.data = noise_;
      out_.done = noise_ >> 33 & 1;
      out_.valid = noise_ >> 34 & 1;
      out_.keep = static_cast<uint8_t>(noise_ >> 40);
      out_.last = noise_ >> 35 & 1;
      out_.ready = noise_ >> 36 & 1;
      out_.arvalid = noise_ >> 37 & 1;
      out_.awvalid = noise_ >> 38 & 1;
      out_.wvalid = noise_ >> 39 & 1;
      out_.araddr = out_.awaddr = static_cast<uint32_t>(noise_ >> 16);
      out_.packet = noise_;
      out_.packet_valid = noise_ >> 41 & 1;
      out_.packet_last = noise_ >> 42 & 1;
      out_.packet_ready = noise_ >> 43 & 1;
      return out_;
    }
    if (!kernel_) {
      was_reset_ = in.rst;
      if (awake_ > 0) awake_--;
      out_ = {};
      return out_;
    }
    if (in.start) running_ = true;
    if (in.start || running_ || in.rst != was_reset_) awake_ = kAwake;
    was_reset_ = in.rst;
    // A rank waits, and answers packets after the end of its run, too.
    if (api_->messages) {
      const bool waits = out_.rank.still && !out_.packet_valid && !in.packet_valid;
      if (!waits) awake_ = kAwake;
      else if (running_ && !in.start) awake_ = 0;
    }
    // An idle kernel changes no state, so its clock is not simulated.
    if (awake_ == 0) return out_;
    awake_--;
    api_->tick(kernel_, &in, &out_);
    if (out_.done || in.rst) running_ = false;
    return out_;
  }

 private:
  static constexpr int kAwake = 16;  // cycles after the end of a run, or of a reset's beginning or
                                     // end

  KernelRef api_;
  void* kernel_ = nullptr;
  region_out out_{};
  uint64_t noise_ = 1;
  int awake_ = kAwake;
  bool running_ = false, was_reset_ = false;
};
