// A Verilated module in a library of its own: its life and its clock, the same behind every interface. The module's
// prefix is Vkernel; its ports are the includer's.
#pragma once
#include "Vkernel.h"
#include "verilated.h"

// Nameless: many such libraries are in one process, each with a module of its own under these names.
namespace {

struct VerilatedKernel {
  VerilatedContext context;
  Vkernel top{&context};

  static void* create() {
    VerilatedKernel* k = new VerilatedKernel;
    k->top.clk = 0;
    k->top.eval();
    return k;
  }
  static void destroy(void* kernel) {
    VerilatedKernel* k = static_cast<VerilatedKernel*>(kernel);
    k->top.final();
    delete k;
  }
  static Vkernel& of(void* kernel) { return static_cast<VerilatedKernel*>(kernel)->top; }

  // One clock, with the inputs as they are now; the outputs are those after its edge.
  static void clock(Vkernel& top) {
    top.clk = 1;
    top.eval();
    top.clk = 0;
    top.eval();
  }
};

}  // namespace
