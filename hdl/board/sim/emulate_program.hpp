// A program in its simulation library: the part that is compiled for each program (emulate_kernels.cpp)
// gives it to the harness (emulate.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "region_abi.h"

// A port of a kernel to a channel: the channel's number, and the first word of its element among those of
// all ports of the direction.
struct Port {
  unsigned channel, first;
};

// A bit for each port to a channel.
struct ChannelPins {
  uint32_t in_valid, out_ready;                       // to the kernel
  uint32_t in_ready, out_valid, in_waits, out_waits;  // from it
};

struct KernelChannels {
  const Port *in, *out;
  unsigned in_count, out_count;
  size_t words_in, words_out;  // of all ports of a direction
  // The pins within a cycle, before its edge; null: no channels.
  void (*settle)(void* region, const region_in* in, ChannelPins* pins, const uint32_t* words_in, uint32_t* words_out);
};

struct ChannelSize {
  unsigned words;  // of 32 bits, of an element
  size_t capacity;
};

struct Program {
  // The kernels, also as contents of a board's region.
  uint32_t kernels;
  const char* const* names;
  const region_api* regions;
  const KernelChannels* kernel_channels;
  uint32_t channels;
  const char* const* channel_names;
  const ChannelSize* channel_sizes;
};
extern const Program kProgram;
