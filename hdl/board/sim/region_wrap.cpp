// A Verilated kernel behind region_abi.h. The name comes with -DKERNEL.
#include "../../common/sim/verilated_kernel.hpp"
#include "region_abi.h"

namespace {

void tick(void* kernel, const region_in* in, region_out* out) {
  Vkernel& top = VerilatedKernel::of(kernel);
  top.rst = in->rst;
  top.start = in->start;
  for (int i = 0; i < 4; i++) top.params[i] = in->params[i];
  top.s_valid = in->valid;
  top.s_data = in->data;
  top.s_keep = in->keep;
  top.s_last = in->last;
  top.m_ready = in->ready;
  VerilatedKernel::clock(top);
  out->done = top.done;
  out->code = 0;
  out->ready = top.s_ready;
  out->valid = top.m_valid;
  out->data = top.m_data;
  out->keep = top.m_keep;
  out->last = top.m_last;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const region_api* baltra_region() {
  static const region_api api = {REGION_ABI, 0, KERNEL, VerilatedKernel::create, VerilatedKernel::destroy, tick};
  return &api;
}
