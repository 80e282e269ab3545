// A Verilated kernel of the message door (msg_region) behind region_abi.h. The name comes with
// -DNAME.
#include "../../common/sim/verilated_kernel.hpp"
#include "region_pins.hpp"

namespace {

void tick(void* kernel, const region_in* in, region_out* out) {
  Vkernel& top = VerilatedKernel::of(kernel);
  region_pins::set(top, *in);
  region_pins::set_memory(top, *in);
  top.packet_out_ready = in->packet_ready;
  top.packet_in_valid = in->packet_valid;
  top.packet_in_last = in->packet_last;
  top.packet_in = in->packet;
  top.now = in->now;
  top.probe = in->probe;
  VerilatedKernel::clock(top);
  region_pins::get(top, *out);
  region_pins::get_memory(top, *out);
  out->packet_valid = top.packet_out_valid;
  out->packet_last = top.packet_out_last;
  out->packet = top.packet_out;
  out->packet_ready = top.packet_in_ready;
  region_rank& rank = out->rank;
  rank.text_valid = top.text_valid;
  rank.text = top.text;
  rank.still = top.still;
  rank.waits = top.waits;
  rank.note_valid = top.note_valid;
  if (!top.note_valid) return;
  rank.note_gap = top.note_gap;
  rank.note_flags = top.note_flags;
  rank.note_at = top.note_at;
  rank.note_out = top.note_out;
  rank.note_in = top.note_in;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const region_api* baltra_region() {
  static const region_api api = {REGION_ABI, 1, NAME, VerilatedKernel::create, VerilatedKernel::destroy, tick};
  return &api;
}
