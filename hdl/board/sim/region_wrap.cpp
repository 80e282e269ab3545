// A Verilated kernel behind region_abi.h. The name comes with -DKERNEL.
#include "../../common/sim/verilated_kernel.hpp"
#include "region_pins.hpp"

namespace {

void tick(void* kernel, const region_in* in, region_out* out) {
  Vkernel& top = VerilatedKernel::of(kernel);
  region_pins::set(top, *in);
  VerilatedKernel::clock(top);
  region_pins::get(top, *out);
  out->code = 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const region_api* baltra_region() {
  static const region_api api = {REGION_ABI, 0, KERNEL, VerilatedKernel::create, VerilatedKernel::destroy, tick};
  return &api;
}
