// The kernels of an OpenCL program. KERNELS lists them: X(number, name) for each model Vkernel_NUMBER of
// region_call. CHANNELS lists the channels: C(name, words of 32 bits, capacity). Ports<NUMBER> has the
// channels of a kernel.
#include <verilated.h>

#include <new>

#include "emulate_program.hpp"
#include "region_pins.hpp"

namespace {
// A kernel without channels.
template <unsigned Kernel>
struct Ports {
  static constexpr bool kAny = false;
};
}  // namespace

#include "kernels.h"

// Internal to Verilator, in no header.
#define X(number, name) void Vkernel_##number##___024root___eval(Vkernel_##number##___024root*);
KERNELS
#undef X

// The models do not use Verilator's simulation time.
double sc_time_stamp() { return 0; }

namespace {

// A kernel's model. `eval` is what its method of this name does, without the overhead for messages and
// objects, which kernels do not use.
template <class Model, auto eval>
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
  static Model& set(void* region, const region_in& in) {
    Model& model = static_cast<Region*>(region)->model;
    region_pins::set(model, in);
    region_pins::set_memory(model, in);
    return model;
  }
  static void tick(void* region, const region_in* in, region_out* out) {
    Model& model = set(region, *in);
    model.clk = 1;
    eval(model.rootp);
    model.clk = 0;
    eval(model.rootp);
    region_pins::get(model, *out);
    region_pins::get_memory(model, *out);
  }
  static void settle(void* region, const region_in* in, ChannelPins* pins, const uint32_t* words_in, uint32_t* words_out) {
    Model& model = set(region, *in);
    model.channel_in_valid = pins->in_valid;
    model.channel_out_ready = pins->out_ready;
    for (size_t i = 0; i < sizeof model.channel_in_data / sizeof *words_in; i++) model.channel_in_data[i] = words_in[i];
    eval(model.rootp);
    pins->in_ready = model.channel_in_ready;
    pins->out_valid = model.channel_out_valid;
    pins->in_waits = model.channel_in_waits;
    pins->out_waits = model.channel_out_waits;
    for (size_t i = 0; i < sizeof model.channel_out_data / sizeof *words_out; i++) words_out[i] = model.channel_out_data[i];
  }
};

template <class Region, class Ports>
constexpr KernelChannels channels_of() {
  using Model = decltype(Region::model);
  if constexpr (Ports::kAny) {
    return {Ports::in,
            Ports::out,
            Ports::kIn,
            Ports::kOut,
            sizeof Model::channel_in_data / sizeof(uint32_t),
            sizeof Model::channel_out_data / sizeof(uint32_t),
            Region::settle};
  }
  return {};
}

#define X(number, name) name,
constexpr const char* kNames[] = {KERNELS nullptr};
#undef X
#define REGION(number) Region<Vkernel_##number, Vkernel_##number##___024root___eval>
#define X(number, name) {REGION_ABI, 0, name, REGION(number)::create, REGION(number)::destroy, REGION(number)::tick},
constexpr region_api kRegions[] = {KERNELS{}};
#undef X
#define X(number, name) channels_of<REGION(number), Ports<number>>(),
constexpr KernelChannels kKernelChannels[] = {KERNELS{}};
#undef X
#define C(name, words, capacity) name,
constexpr const char* kChannelNames[] = {CHANNELS nullptr};
#undef C
#define C(name, words, capacity) {words, capacity},
constexpr ChannelSize kChannelSizes[] = {CHANNELS{}};
#undef C

}  // namespace

constexpr Program kProgram = {
    sizeof kNames / sizeof *kNames - 1, kNames, kRegions, kKernelChannels, sizeof kChannelNames / sizeof *kChannelNames - 1, kChannelNames, kChannelSizes,
};
