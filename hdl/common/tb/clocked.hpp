// A model with one clock: set inputs, settle(), look at outputs, rise().
#pragma once

#include <memory>

#include "Vdut.h"
#include "bench.hpp"

namespace bench {

class Clocked {
public:
    explicit Clocked(uint64_t seed = bench::seed()) : random(seed) {
        Verilated::randReset(2);  // registers without a reset begin with anything
        Verilated::randSeed(static_cast<int>(seed));
        dut_ = std::make_unique<Vdut>();
    }
    ~Clocked() { dut_->final(); }
    Vdut *operator->() { return dut_.get(); }

    void settle() {
        dut_->clk = 0;
        dut_->eval();
    }
    void rise() {
        dut_->clk = 1;
        dut_->eval();
        cycles++;
    }
    void reset() {
        dut_->rst = 1;
        Verilated::assertOn(false);  // of what registers hold before
        for (int i = 0; i < 4; i++) {
            settle();
            rise();
        }
        Verilated::assertOn(true);
        dut_->rst = 0;
    }

    Random random;
    uint64_t cycles = 0;

private:
    std::unique_ptr<Vdut> dut_;
};

}  // namespace bench
