// Drives one kernel through its interface (docs/kernels.md) and checks every rule of it.
#pragma once

#include <array>
#include <memory>

#include "Vdut.h"
#include "bench.hpp"

namespace bench {

using Params = std::array<uint32_t, 4>;

// Disturbances by the two neighbors, in percent of cycles.
struct Traffic {
    unsigned idle = 0;   // no input offered
    unsigned stall = 0;  // no output taken
};

inline const std::vector<Traffic> &traffics() {
    static const std::vector<Traffic> all = {{0, 0}, {0, 60}, {60, 0}, {40, 40}, {95, 0}, {0, 95}};
    return all;
}

struct Timing {
    uint64_t first = 0;    // cycles from the first input beat accepted to the first output beat
                           // offered
    uint64_t last = 0;     // cycles from the last input beat accepted to the first output beat
                           // offered, if later
    uint64_t total = 0;    // cycles from start to done
};

class Kernel {
public:
    using Data = std::conditional_t<W == 32, uint32_t, uint64_t>;
    static constexpr size_t beat_bytes = W / 8;
    static constexpr uint64_t patience = 200000;  // cycles without any progress that count as hung

    explicit Kernel(uint64_t seed = bench::seed()) : random_(seed), dut_(new Vdut) {
        Verilated::randReset(2);
        Verilated::randSeed(static_cast<int>(seed));
        dut_.reset(new Vdut);
        reset();
    }
    ~Kernel() { dut_->final(); }

    void reset() {
        done_now_ = false;
        dut_->rst = 1;
        dut_->start = 0;
        dut_->s_valid = 0;
        dut_->m_ready = 0;
        Verilated::assertOn(false);  // of what registers hold before
        for (int i = 0; i < 4; i++) clock();
        Verilated::assertOn(true);
        dut_->rst = 0;
    }

    // One run: start, body in, output out, done. `abort_after` resets the kernel after that many
    // cycles.
    Bytes run(const Bytes &body, Params params = {}, Traffic traffic = {}, uint64_t abort_after = ~0ull) {
        Bytes out;
        size_t sent = 0;
        bool in_ended = false, out_ended = false, done = false, offered = false, started = false;
        bool early = random_.percent(50);  // data may wait before the start
        uint64_t start_at = random_.below(4), quiet = 0, started_at = 0, first_in = 0, last_in = 0;
        bool first_in_seen = false, first_out_seen = false;
        bool held = false;
        uint64_t held_data = 0;
        unsigned held_keep = 0, held_last = 0;
        timing = {};

        for (uint64_t cycle = 0; !done; cycle++) {
            if (cycle == abort_after) {
                reset();
                return out;
            }
            bool start = cycle == start_at;
            dut_->start = start;
            if (start) {
                started_at = cycle;
                for (int i = 0; i < 4; i++) dut_->params[i] = params[i];
            }
            // An offered beat stays until it is accepted.
            if (!offered && !in_ended && (started || start || early) && !random_.percent(traffic.idle)) {
                offered = true;
                offer(body, sent);
            }
            dut_->s_valid = offered;
            if (!offered) scramble();

            bool ready = !random_.percent(traffic.stall);
            dut_->clk = 0;
            dut_->m_ready = !ready;
            dut_->eval();
            bool valid_otherwise = dut_->m_valid;
            dut_->m_ready = ready;
            dut_->eval();
            check(valid_otherwise == !!dut_->m_valid, "m_valid waits for m_ready");

            bool took = offered && dut_->s_ready, gave = dut_->m_valid && ready;
            check(started || !dut_->s_ready, "takes input before start");
            check(!in_ended || !dut_->s_ready, "takes input after its last beat");
            check((started && !out_ended) || !dut_->m_valid, "offers output outside of a run");
            if (held) {
                check(dut_->m_valid, "m_valid falls without a handshake");
                check(dut_->m_data == held_data && dut_->m_keep == held_keep && dut_->m_last == held_last,
                      "output changes while it waits");
            }
            held = dut_->m_valid && !ready;
            held_data = dut_->m_data;
            held_keep = dut_->m_keep;
            held_last = dut_->m_last;

            if (dut_->m_valid && !first_out_seen) {
                first_out_seen = true;
                timing.first = first_in_seen ? cycle - first_in : 0;
                timing.last = in_ended ? cycle - last_in : 0;
            }
            if (gave) {
                collect(out);
                if (dut_->m_last) out_ended = true;
            }
            if (took) {
                if (!first_in_seen) first_in = cycle;
                first_in_seen = true;
                size_t count = std::min(beat_bytes, body.size() - sent);
                sent += count;
                offered = false;
                if (last_) {
                    in_ended = true;
                    last_in = cycle;
                }
            }
            if (dut_->done && !(cycle == 0 && done_now_)) {
                check(started, "done before start");
                check(in_ended && !took, "done before the last input beat");
                check(out_ended && !gave, "done before the last output beat");
                done = true;
                timing.total = cycle - started_at;
            }
            if (start) started = true;
            quiet = took || gave || start ? 0 : quiet + 1;
            check(quiet < patience, "hangs after " + std::to_string(sent) + " bytes in, " + std::to_string(out.size()) + " out");
            // The next start may come in the cycle of done, which is then this loop's first cycle.
            done_now_ = done && random_.percent(50);
            if (!done_now_) rise();
        }
        dut_->start = 0;
        return out;
    }

    Timing timing;
    Random random_;

private:
    void offer(const Bytes &body, size_t at) {
        size_t left = body.size() - at, count = std::min(beat_bytes, left);
        uint64_t data = random_.next();  // bytes beyond keep are random
        for (size_t i = 0; i < count; i++) {
            data &= ~(0xffull << (8 * i));
            data |= static_cast<uint64_t>(body[at + i]) << (8 * i);
        }
        last_ = left <= beat_bytes;
        dut_->s_data = static_cast<Data>(data);
        dut_->s_keep = static_cast<uint8_t>((1u << count) - 1);
        dut_->s_last = last_;
    }

    void scramble() {
        dut_->s_data = static_cast<Data>(random_.next());
        dut_->s_keep = static_cast<uint8_t>(random_.next() & ((1u << beat_bytes) - 1));
        dut_->s_last = random_.next() & 1;
    }

    void collect(Bytes &out) {
        unsigned keep = dut_->m_keep, full = (1u << beat_bytes) - 1;
        check((keep & (keep + 1)) == 0, "keep has holes");
        check(keep == full || dut_->m_last, "a beat that is not the last is not full");
        check(keep != 0 || out.empty(), "an empty last beat after others");
        for (size_t i = 0; i < beat_bytes; i++)
            if (keep >> i & 1) out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(dut_->m_data) >> (8 * i)));
    }

    void rise() {
        dut_->clk = 1;
        dut_->eval();
    }

    void clock() {
        dut_->clk = 0;
        dut_->eval();
        rise();
    }

    std::unique_ptr<Vdut> dut_;
    bool last_ = false;
    bool done_now_ = false;  // the last run ended in a cycle that has not passed
};

// Lengths around every edge of a beat and of a 64-byte block.
inline std::vector<size_t> lengths() {
    std::vector<size_t> all;
    for (size_t i = 0; i <= 20; i++) all.push_back(i);
    for (size_t i : {31, 32, 33, 55, 56, 57, 59, 60, 61, 63, 64, 65, 119, 120, 121, 127, 128, 129, 1000, 1460}) all.push_back(i);
    return all;
}

// Every length under every traffic, back to back on one kernel, against a reference.
inline void sweep(const std::function<Bytes(const Bytes &)> &reference, Params params = {}) {
    Kernel kernel;
    for (auto t : traffics())
        for (auto n : lengths()) {
            Bytes body = kernel.random_.bytes(n);
            expect(kernel.run(body, params, t), reference(body),
                  std::to_string(n) + " bytes, idle " + std::to_string(t.idle) + " %, stall " + std::to_string(t.stall) + " %");
        }
}

// A run that is reset in any cycle leaves no state behind.
inline void reset_anywhere(const Bytes &body, const Bytes &want, Params params = {}) {
    Kernel kernel;
    for (int i = 0; i < 60; i++) {
        kernel.run(body, params, {20, 20}, kernel.random_.below(8 + static_cast<uint32_t>(body.size() / 2)));
        expect(kernel.run(body, params, {20, 20}), want, "after a reset");
    }
}

}  // namespace bench
