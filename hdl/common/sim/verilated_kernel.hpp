// A Verilated module in a separate library: its lifetime and its clock, independent of the
// interface. The module's prefix is Vkernel; its ports are the includer's.
#pragma once
#include "Vkernel.h"
#include "Vkernel___024root.h"
#include "verilated.h"

void Vkernel___024root___eval(Vkernel___024root*);  // internal to Verilator, in no header

// An unnamed namespace, because many such libraries are in one process,
// each with a module of its own under these names.
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

  // One clock cycle with the present inputs; the outputs are those after its edge. Like `eval`,
  // without its overhead for messages and objects, which kernels do not use.
  static void clock(Vkernel& top) {
    top.clk = 1;
    Vkernel___024root___eval(top.rootp);
    top.clk = 0;
    Vkernel___024root___eval(top.rootp);
  }
};

}  // namespace
