// A Verilated kernel behind kernel_abi.h. The name comes with -DNAME.
#include "Vkernel.h"
#include "kernel_abi.h"
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

void tick(void* kernel, const kernel_in* in, kernel_out* out) {
  Vkernel& top = static_cast<Kernel*>(kernel)->top;
  top.rst = in->rst;
  top.own = in->own;
  top.ranks = in->ranks;
  top.load_valid = in->load_valid;
  top.load_address = in->load_address;
  top.load_data = in->load_data;
  top.m_ready = in->m_ready;
  top.s_valid = in->s_valid;
  top.s_last = in->s_last;
  top.s_data = in->s_data;
  top.clk = 1;
  top.eval();
  top.clk = 0;
  top.eval();
  out->text_valid = top.text_valid;
  out->text = top.text;
  out->ended = top.ended;
  out->code = top.code;
  out->still = top.still;
  out->m_valid = top.m_valid;
  out->m_last = top.m_last;
  out->m_data = top.m_data;
  out->s_ready = top.s_ready;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const kernel_api* baltra_kernel() {
  static const kernel_api api = {KERNEL_ABI, NAME, create, destroy, tick};
  return &api;
}
