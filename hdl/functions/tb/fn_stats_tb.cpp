#include "clocked.hpp"

using namespace bench;

namespace {

struct Counters {
    uint64_t calls = 0, failures = 0, loads = 0, cycles = 0;
};

struct Stats : Clocked {
    Stats() {
        auto &dut = *this;
        dut->event_valid = 0;
        reset();
    }
    void add(uint8_t function, bool failed, bool loaded, uint32_t cycles_taken) {
        auto &dut = *this;
        dut->event_valid = 1;
        dut->event_function = function;
        dut->event_failed = failed;
        dut->event_loaded = loaded;
        dut->event_cycles = cycles_taken;
        for (int i = 0;; i++) {
            settle();
            bool ready = dut->event_ready;
            check(i < 100, "hangs");
            rise();
            if (ready) break;
        }
        dut->event_valid = 0;
    }
    Counters read(uint8_t function) {
        auto &dut = *this;
        for (int i = 0; i < 3; i++) {
            dut->read_function = function;
            settle();
            rise();
        }
        settle();
        return {dut->calls, dut->failures, dut->loads, dut->cycles};
    }
};

}  // namespace

TEST(counts_each_function_apart) {
    Stats stats;
    Counters want[64];
    for (int i = 0; i < 5000; i++) {
        uint8_t f = static_cast<uint8_t>(stats.random.below(i & 1 ? 64 : 3));
        bool failed = stats.random.percent(10), loaded = stats.random.percent(30);
        uint32_t took = static_cast<uint32_t>(stats.random.next());
        stats.add(f, failed, loaded, took);
        want[f].calls++;
        want[f].failures += failed;
        want[f].loads += loaded;
        want[f].cycles += took;
    }
    for (uint8_t f = 0; f < 64; f++) {
        Counters c = stats.read(f);
        check(c.calls == want[f].calls && c.failures == want[f].failures && c.loads == want[f].loads && c.cycles == want[f].cycles,
              "function " + std::to_string(f));
    }
}

TEST(a_reset_clears_all) {
    Stats stats;
    for (uint8_t f = 0; f < 64; f++) stats.add(f, true, true, 5);
    stats.reset();
    stats.add(9, false, false, 7);
    for (uint8_t f = 0; f < 64; f++) {
        Counters c = stats.read(f);
        check(c.calls == (f == 9) && c.failures == 0 && c.loads == 0 && c.cycles == (f == 9 ? 7 : 0), "is not cleared");
    }
}

BENCH_MAIN()
