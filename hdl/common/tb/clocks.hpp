// A model with two independent clocks. Each has a period and jitter, a fraction of it by which an
// edge may be early or late; the order of simultaneous edges is random.
#pragma once

#include <functional>
#include <memory>

#include "Vdut.h"
#include "bench.hpp"

namespace bench {

class Clocks {
public:
    struct Rate {
        double period, jitter;
    };

    explicit Clocks(uint64_t seed = bench::seed()) : random(seed) {
        Verilated::randReset(2);  // registers without a reset begin with anything
        Verilated::randSeed(static_cast<int>(seed));
        dut_ = std::make_unique<Vdut>();
    }
    ~Clocks() { dut_->final(); }
    Vdut *operator->() { return dut_.get(); }

    // `before` sets this clock's inputs; it may settle() and read outputs,
    // as they are before the edge.
    void add(uint8_t &wire, Rate rate, std::function<void()> before) {
        wire = 0;
        domains_.push_back({&wire, rate, rate.period * random.below(1000) / 1000.0, 0, std::move(before), 0});
        schedule(domains_.back());
    }
    void rate(size_t domain, Rate rate) { domains_[domain].rate = rate; }
    uint64_t cycles(size_t domain) const { return domains_[domain].cycles; }

    void settle() { dut_->eval(); }
    // The next edge of any clock.
    void edge() {
        Domain *next = &domains_[0];
        for (auto &d : domains_)
            if (d.at < next->at || (d.at == next->at && random.percent(50))) next = &d;
        next->before();
        settle();
        *next->wire = 1;
        settle();
        *next->wire = 0;
        settle();
        next->cycles++;
        next->due += next->rate.period;
        schedule(*next);
    }

    Random random;

private:
    struct Domain {
        uint8_t *wire;
        Rate rate;
        double due, at;
        std::function<void()> before;
        uint64_t cycles;
    };
    void schedule(Domain &d) {
        d.at = d.due + d.rate.period * d.rate.jitter * (random.below(2001) / 1000.0 - 1);
    }

    std::vector<Domain> domains_;
    std::unique_ptr<Vdut> dut_;
};

}  // namespace bench
