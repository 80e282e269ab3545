// A Verilated kernel behind kernel_abi.h. The name comes with -DNAME.
#include "../../common/sim/verilated_kernel.hpp"
#include "kernel_abi.h"

namespace {

void tick(void* kernel, const kernel_in* in, kernel_out* out) {
  Vkernel& top = VerilatedKernel::of(kernel);
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
  top.now = in->now;
  top.probe = in->probe;
  top.arready = in->arready;
  top.rvalid = in->rvalid;
  top.rlast = in->rlast;
  top.rresp = in->rresp;
  top.rdata = in->rdata;
  top.awready = in->awready;
  top.wready = in->wready;
  top.bvalid = in->bvalid;
  top.bresp = in->bresp;
  VerilatedKernel::clock(top);
  out->text_valid = top.text_valid;
  out->text = top.text;
  out->ended = top.ended;
  out->code = top.code;
  out->still = top.still;
  out->waits = top.waits;
  out->m_valid = top.m_valid;
  out->m_last = top.m_last;
  out->m_data = top.m_data;
  out->s_ready = top.s_ready;
  out->arvalid = top.arvalid;
  out->araddr = top.araddr;
  out->awvalid = top.awvalid;
  out->awaddr = top.awaddr;
  out->wvalid = top.wvalid;
  out->wlast = top.wlast;
  out->wdata = top.wdata;
  out->note_valid = top.note_valid;
  if (!top.note_valid) return;
  out->note_gap = top.note_gap;
  out->note_flags = top.note_flags;
  out->note_at = top.note_at;
  out->note_out = top.note_out;
  out->note_in = top.note_in;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const kernel_api* baltra_kernel() {
  static const kernel_api api = {KERNEL_ABI, NAME, VerilatedKernel::create, VerilatedKernel::destroy, tick};
  return &api;
}
