#include "clocked.hpp"

using namespace bench;

namespace {

constexpr size_t beat_bytes = W / 8;
using Data = std::conditional_t<W == 32, uint32_t, uint64_t>;

// A kernel in software behind the region's boundary, correct or faulty. It changes its outputs
// after each clock edge from its inputs before the edge, like registers.
struct Behavior {
    bool stalls_input = false;   // accepts no beats after `after` beats
    bool stalls_output = false;  // sends no beats after `after` beats
    bool never_ends = false;     // sends beats indefinitely, without last
    bool forgets_done = false;
    bool all_last = false;       // sets last with each beat
    bool shouts = false;         // valid, ready and done at random, outside of runs too
    size_t after = 3;
    uint8_t code = 0;            // with done; at other times it is arbitrary
};

struct Outcome {
    Bytes out;
    bool failed = false, marked = false;
    uint8_t code = 0;
    uint64_t took = 0;
};

struct Region : Clocked {
    Behavior kernel;
    unsigned idle = 0, stall = 0;
    uint32_t timeout = 500;
    uint64_t kill_after = ~0ull, decouple_after = ~0ull;

    Region() {
        auto &dut = *this;
        dut->start = dut->kill = dut->decouple = dut->s_valid = dut->m_ready = 0;
        dut->k_code = 0;
        dut->k_done = dut->k_s_ready = dut->k_m_valid = 0;
        reset();
    }

    Outcome run(const Bytes &body) {
        auto &dut = *this;
        Outcome o;
        size_t sent = 0;
        bool offered = false, in_ended = false, out_ended = false, held = false;
        uint64_t from = cycles, started = 0, held_data = 0;
        bool running = false;
        dut->timeout = timeout;
        for (bool done = false; !done;) {
            uint64_t at = cycles - from;
            if (!offered && !in_ended && !random.percent(idle)) {
                offered = true;
                size_t count = std::min(beat_bytes, body.size() - sent);
                uint64_t data = 0;
                for (size_t i = 0; i < count; i++) data |= static_cast<uint64_t>(body[sent + i]) << (8 * i);
                dut->s_data = static_cast<Data>(data);
                dut->s_keep = static_cast<uint8_t>((1u << count) - 1);
                dut->s_last = sent + count == body.size();
            }
            dut->s_valid = offered;
            dut->m_ready = !random.percent(stall);
            dut->kill = running && cycles - started == kill_after;
            if (running && cycles - started == decouple_after) dut->decouple = 1;
            dut->start = 0;
            settle();
            if (!running && dut->idle) {
                dut->start = 1;
                for (int i = 0; i < 4; i++) dut->params[i] = 100u + static_cast<uint32_t>(i);
                running = true;
                started = cycles;
                settle();
            }
            if (held) check(dut->m_valid && dut->m_data == held_data, "the answer changes while it waits");
            held = dut->m_valid && !dut->m_ready;
            held_data = dut->m_data;
            if (dut->m_valid && dut->m_ready) {
                check(running && !out_ended, "output after its end");
                unsigned keep = dut->m_keep;
                check(keep + 1 == 1u << beat_bytes || dut->m_last, "a beat that is not the last is not full");
                check(keep || o.out.empty() || dut->m_failed, "an empty beat after others");
                for (size_t i = 0; i < beat_bytes; i++)
                    if (keep >> i & 1) o.out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(dut->m_data) >> (8 * i)));
                out_ended = dut->m_last;
                o.marked = dut->m_failed;
                check(!o.marked || dut->m_last, "marked before its end");
            }
            if (offered && dut->s_ready) {
                offered = false;
                sent += std::min(beat_bytes, body.size() - sent);
                in_ended = dut->s_last;
            }
            if (dut->done) {
                check(running, "done without a run");
                o.failed = dut->failed;
                o.code = dut->code;
                o.took = cycles - started;
                done = true;
            }
            clock_kernel();
            check(at < 20000 + 100 * body.size(), "hangs");
        }
        check(in_ended, "its input has not ended");
        // The last beats may still be in the boundary's register.
        for (int i = 0; i < 200 && !out_ended; i++) {
            dut->start = 0;
            dut->s_valid = 0;
            dut->m_ready = 1;
            settle();
            if (dut->m_valid) {
                for (size_t b = 0; b < beat_bytes; b++)
                    if (dut->m_keep >> b & 1) o.out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(dut->m_data) >> (8 * b)));
                out_ended = dut->m_last;
                o.marked = dut->m_failed;
            }
            clock_kernel();
        }
        check(out_ended, "its output has not ended");
        dut->s_valid = 0;
        return o;
    }

    // Runs the kernel outside of runs.
    void rest(int count) {
        auto &dut = *this;
        for (int i = 0; i < count; i++) {
            dut->start = dut->s_valid = 0;
            dut->m_ready = 1;
            settle();
            check(!dut->m_valid && !dut->done, "something comes from a region at rest");
            clock_kernel();
        }
    }

private:
    struct Beat {
        uint64_t data;
        unsigned keep;
        bool last;
    };

    void clock_kernel() {
        auto &dut = *this;
        bool reset = dut->k_rst, start = dut->k_start, took = dut->k_s_valid && dut->k_s_ready,
             gave = dut->k_m_valid && dut->k_m_ready;
        if (start) {
            check(dut->k_params[0] == 100 && dut->k_params[3] == 103, "the scalars are wrong");
        }
        Beat in{static_cast<uint64_t>(dut->k_s_data), dut->k_s_keep, static_cast<bool>(dut->k_s_last)};
        rise();
        bool done = false;
        if (reset) {
            queue_.clear();
            in_beats_ = out_beats_ = 0;
            taking_ = open_ = false;
        } else {
            if (gave) {
                out_beats_++;
                if (kernel.never_ends) {
                } else {
                    if (queue_.front().last) open_ = false, done = !kernel.forgets_done;
                    queue_.erase(queue_.begin());
                }
            }
            if (took) {
                in_beats_++;
                queue_.push_back(in);
                if (in.last) taking_ = false;
            }
            if (start) {
                taking_ = open_ = true;
                queue_.clear();
                in_beats_ = out_beats_ = 0;
            }
        }
        dut->k_s_ready = taking_ && queue_.size() < 2 && !(kernel.stalls_input && in_beats_ >= kernel.after);
        if (kernel.never_ends) {
            dut->k_s_ready = taking_;
            queue_.clear();
            dut->k_m_valid = open_;
            dut->k_m_data = static_cast<Data>(0x55);
            dut->k_m_keep = static_cast<uint8_t>((1u << beat_bytes) - 1);
            dut->k_m_last = 0;
        } else {
            dut->k_m_valid = !queue_.empty() && !(kernel.stalls_output && out_beats_ >= kernel.after);
            if (!queue_.empty()) {
                dut->k_m_data = static_cast<Data>(queue_.front().data);
                dut->k_m_keep = static_cast<uint8_t>(queue_.front().keep);
                dut->k_m_last = queue_.front().last || kernel.all_last;
            }
        }
        dut->k_done = done;
        dut->k_code = static_cast<uint8_t>(done ? kernel.code : random.below(4));
        if (kernel.shouts && !open_) {
            dut->k_s_ready = random.percent(50);
            dut->k_m_valid = random.percent(50);
            dut->k_m_last = random.percent(50);
            dut->k_done = random.percent(50);
        }
    }

    std::vector<Beat> queue_;
    size_t in_beats_ = 0, out_beats_ = 0;
    bool taking_ = false, open_ = false;
};

void good(Region &region, const char *when) {
    region.kernel = {};
    region.kernel.code = static_cast<uint8_t>(region.random.below(3));
    Bytes body = region.random.bytes(region.random.below(100));
    Outcome o = region.run(body);
    check(!o.failed && !o.marked, std::string("a good run fails ") + when);
    check(o.code == region.kernel.code, std::string("another code ") + when);
    expect(o.out, body, std::string("a good run ") + when);
}

}  // namespace

TEST(a_good_kernel_passes_under_any_traffic) {
    Region region;
    for (unsigned idle : {0, 50, 90})
        for (unsigned stall : {0, 50, 90})
            for (int i = 0; i < 100; i++) {
                region.idle = idle;
                region.stall = stall;
                good(region, "in traffic");
            }
}

TEST(a_stuck_kernel_is_killed_and_its_streams_end) {
    Region region;
    for (unsigned stall : {0, 50})
        for (size_t after : {0, 1, 3, 10})
            for (int kind = 0; kind < 4; kind++)
                for (size_t bytes : {0, 1, 8, 100, 400}) {
                    region.stall = region.idle = stall;
                    region.kernel = {};
                    region.kernel.after = after;
                    region.kernel.stalls_input = kind == 0;
                    region.kernel.stalls_output = kind == 1;
                    region.kernel.never_ends = kind == 2;
                    region.kernel.forgets_done = kind == 3;
                    Bytes body = region.random.bytes(bytes);
                    Outcome o = region.run(body);
                    size_t beats = std::max<size_t>(1, (bytes + beat_bytes - 1) / beat_bytes);
                    bool stuck = kind >= 2 || beats > after;
                    check(o.failed == stuck, stuck ? "a stuck kernel is not killed" : "a good kernel is killed");
                    if (stuck) {
                        check(o.took > 500, "is killed early");
                        if (kind != 3) check(o.marked, "a cut answer is not marked");
                    } else {
                        expect(o.out, body, "a kernel that would stop later");
                    }
                    good(region, "after a kill");
                }
}

TEST(output_after_the_last_beat_is_ignored) {
    Region region;
    for (unsigned stall : {0, 50})
        for (size_t bytes : {8, 9, 100}) {
            region.stall = stall;
            region.kernel = {};
            region.kernel.all_last = true;
            Bytes body = region.random.bytes(bytes), first = body;
            first.resize(beat_bytes);
            Outcome o = region.run(body);
            check(o.failed == (bytes > beat_bytes) && !o.marked, "is taken for a good run");
            expect(o.out, first, "the beat with last");
            good(region, "after a kernel that went on");
        }
}

TEST(a_slow_shell_is_not_the_kernels_fault) {
    Region region;
    region.timeout = 150;
    region.idle = 97;
    good(region, "with slow input");
    Bytes body = region.random.bytes(400);
    Outcome o = region.run(body);
    check(!o.failed && o.took > 1000, "slow input counts as the kernel's time");
    region.idle = 0;
    region.stall = 97;
    o = region.run(body);
    check(!o.failed && o.took > 1000, "slow output counts as the kernel's time");
}

TEST(without_a_timeout_nothing_is_killed_but_on_request) {
    Region region;
    region.timeout = 0;
    region.kernel.stalls_output = true;
    region.kill_after = 3000;
    Outcome o = region.run(region.random.bytes(200));
    check(o.failed && o.marked && o.took > 3000 && o.took < 3100, "killed after " + std::to_string(o.took));
    region.kill_after = ~0ull;
    good(region, "after a kill");
}

TEST(decoupling_silences_the_kernel) {
    Region region;
    for (uint64_t at : {1, 2, 5, 10, 20}) {
        region.kernel = {};
        region.decouple_after = at;
        Bytes body = region.random.bytes(400);
        Outcome o = region.run(body);
        check(o.failed && o.marked, "a run is not cut by decoupling");
        region.kernel.shouts = true;
        region.rest(200);
        check(!region->idle, "a decoupled region is idle");
        region->decouple = 0;
        region.decouple_after = ~0ull;
        region.rest(20);
        good(region, "after decoupling");
    }
}

TEST(output_outside_of_a_run_is_ignored) {
    Region region;
    for (int i = 0; i < 100; i++) {
        region.kernel.shouts = true;
        region.rest(50);
        Bytes body = region.random.bytes(region.random.below(100));
        region.kernel = {};
        Outcome o = region.run(body);
        expect(o.out, body, "after noise");
        check(!o.failed, "fails after noise");
    }
}

TEST(counts_the_cycles_of_a_run) {
    Region region;
    Outcome o = region.run(Bytes(80 * beat_bytes, 1));
    check(region->cycles >= 80 && region->cycles <= o.took, "counts " + std::to_string(region->cycles));
    std::printf("    80 beats in %llu cycles from start to done\n", (unsigned long long)o.took);
    check(o.took <= 80 + 8, "takes " + std::to_string(o.took));
}

BENCH_MAIN()
