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

// Without the code, which only kernels with a port to memory have.
template <class Top>
void get(const Top& top, region_out& out) {
  out.done = top.done;
  out.ready = top.s_ready;
  out.valid = top.m_valid;
  out.data = top.m_data;
  out.keep = top.m_keep;
  out.last = top.m_last;
}

}  // namespace region_pins
