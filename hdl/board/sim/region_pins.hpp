// The pins of every kernel's model (docs/kernels.md) behind region_abi.h.
#pragma once
#include "region_abi.h"

namespace region_pins {

template <class Top>
void set(Top& top, const region_in& in) {
  top.rst = in.rst;
  top.start = in.start;
  for (int i = 0; i < 4; i++) top.params[i] = in.params[i];
  top.s_valid = in.valid;
  top.s_data = in.data;
  top.s_keep = in.keep;
  top.s_last = in.last;
  top.m_ready = in.ready;
}

template <class Top>
void get(const Top& top, region_out& out) {
  out.done = top.done;
  out.ready = top.s_ready;
  out.valid = top.m_valid;
  out.data = top.m_data;
  out.keep = top.m_keep;
  out.last = top.m_last;
}

// The pins of models with a port to memory.
template <class Top>
void set_memory(Top& top, const region_in& in) {
  top.arready = in.arready;
  top.rvalid = in.rvalid;
  top.rlast = in.rlast;
  top.rresp = in.rresp;
  top.rdata = in.rdata;
  top.awready = in.awready;
  top.wready = in.wready;
  top.bvalid = in.bvalid;
  top.bresp = in.bresp;
}

template <class Top>
void get_memory(const Top& top, region_out& out) {
  out.code = top.code;
  out.arvalid = top.arvalid;
  out.araddr = top.araddr;
  out.awvalid = top.awvalid;
  out.awaddr = top.awaddr;
  out.wvalid = top.wvalid;
  out.wdata = top.wdata;
}

}  // namespace region_pins
