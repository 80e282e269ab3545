// A Verilated kernel behind region_abi.h. The name comes with -DKERNEL.
#include "Vkernel.h"
#include "region_abi.h"
#include "verilated.h"

namespace {

struct Kernel {
  VerilatedContext context;
  Vkernel top{&context};
};

void* create() {
  Kernel* k = new Kernel;
  k->top.clk = 0;
  k->top.eval();
  return k;
}

void destroy(void* kernel) {
  Kernel* k = static_cast<Kernel*>(kernel);
  k->top.final();
  delete k;
}

void tick(void* kernel, const region_in* in, region_out* out) {
  Vkernel& top = static_cast<Kernel*>(kernel)->top;
  top.rst = in->rst;
  top.start = in->start;
  for (int i = 0; i < 4; i++) top.params[i] = in->params[i];
  top.s_valid = in->valid;
  top.s_data = in->data;
  top.s_keep = in->keep;
  top.s_last = in->last;
  top.m_ready = in->ready;
  top.clk = 1;
  top.eval();
  top.clk = 0;
  top.eval();
  out->done = top.done;
  out->ready = top.s_ready;
  out->valid = top.m_valid;
  out->data = top.m_data;
  out->keep = top.m_keep;
  out->last = top.m_last;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const region_api* baltra_region() {
  static const region_api api = {REGION_ABI, KERNEL, create, destroy, tick};
  return &api;
}
