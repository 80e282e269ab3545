// The capture core through its registers: what it keeps around a trigger, against all that the signals were.
#include "clocked.hpp"

using namespace bench;

namespace {

enum : uint8_t { kControl, kMask, kValue = 3, kBefore = 5, kStep, kShape, kCount, kMark, kIndex, kResult };
enum : uint32_t { kIdle, kArmed, kTriggered, kDone };
constexpr unsigned kDepth = 1024;

class Capture : public Clocked {
public:
    std::vector<uint64_t> was;  // the signals at each cycle
    std::function<uint64_t()> signals;

    Capture() {
        signals = [this] { return random.next(); };
        (*this)->write = 0;
        (*this)->address = 0;
        reset();
        step(1);
    }
    void step(unsigned cycles) {
        for (unsigned i = 0; i < cycles; i++) {
            was.push_back(signals());
            (*this)->signals = was.back();
            settle();
            rise();
        }
    }
    void put(uint8_t address, uint32_t data) {
        (*this)->write = 1, (*this)->address = address, (*this)->write_data = data;
        step(1);
        (*this)->write = 0;
    }
    void put64(uint8_t address, uint64_t data) { put(address, static_cast<uint32_t>(data)), put(static_cast<uint8_t>(address + 1), static_cast<uint32_t>(data >> 32)); }
    uint32_t get(uint8_t address) {
        (*this)->address = address;
        step(2);
        return (*this)->read_data;
    }
    uint64_t sample(uint32_t index) {
        put(kIndex, index);
        step(2);
        const uint64_t low = get(kResult);
        return low | uint64_t(get(kResult + 1)) << 32;
    }
    void wait() {
        for (unsigned i = 0; get(kControl) != kDone; i++) check(i < 20000, "no trigger");
    }
    // All of it, and that it is what the signals were, `apart` cycles between samples: where the trigger's is in `was`.
    size_t whole(unsigned apart) {
        const uint32_t count = get(kCount), mark = get(kMark);
        std::vector<uint64_t> got;
        for (uint32_t i = 0; i < count; i++) got.push_back(sample(i));
        check(mark < count, "no sample is the trigger's");
        for (size_t at = 0; at < was.size(); at++) {
            size_t n = 0;
            while (n < count && at + n * apart < was.size() && was[at + n * apart] == got[n]) n++;
            if (n == count) return at + mark * apart;
        }
        check(false, "samples that the signals never were");
        return 0;
    }
};

}  // namespace

TEST(the_samples_around_a_trigger_are_kept) {
    for (uint32_t before : {0u, 1u, 7u, 500u, kDepth - 1})
        for (unsigned early : {0u, 3u, 3000u}) {
            Capture c;
            uint64_t n = 0;
            c.signals = [&] { return n++ << 20 | 0x5a5a5; };
            c.put(kBefore, before);
            c.put(kStep, 0);
            c.put64(kMask, 0xffffffull << 20);
            c.put64(kValue, (n + 20 + early) << 20);
            const uint64_t wanted = (n - 2 + 20 + early);
            c.put(kControl, 1);
            check(c.get(kControl) == kArmed, "not armed");
            c.wait();
            const size_t at = c.whole(1);
            check(c.was[at] >> 20 == wanted, "the trigger is at another sample");
            const uint32_t mark = c.get(kMark), count = c.get(kCount);
            check(early < 3000 ? mark <= before : mark == before, "before: " + std::to_string(mark));
            check(count - mark == kDepth - before, "behind: " + std::to_string(count - mark));
        }
}

TEST(samples_are_as_far_apart_as_is_wanted) {
    for (unsigned apart : {1u, 2u, 7u}) {
        Capture c;
        c.put(kBefore, 10);
        c.put(kStep, apart - 1);
        c.put64(kMask, 0);
        c.put(kControl, 1);
        c.wait();
        c.whole(apart);
        check(c.get(kMark) == 0 && c.get(kCount) == kDepth - 10, "the first sample is not the trigger's");
    }
}

TEST(it_can_be_stopped_told_to_trigger_and_armed_again) {
    Capture c;
    check(c.get(kShape) == (10u << 8 | 64), "another shape");
    c.put(kBefore, 100);
    c.put(kStep, 0);
    c.put64(kMask, ~0ull);
    c.put64(kValue, 0x1234567890abcdefull);
    c.put(kControl, 1);
    c.step(5000);
    check(c.get(kControl) == kArmed, "a trigger out of nothing");
    c.put(kControl, 0);
    check(c.get(kControl) == kIdle, "not stopped");
    for (int round = 0; round < 3; round++) {
        c.put(kControl, 1);
        c.step(200 + c.random.below(2000));
        c.put(kControl, 2);
        c.wait();
        c.whole(1);
        check(c.get(kMark) == 100 && c.get(kCount) == kDepth, "not a whole capture");
    }
}

BENCH_MAIN()
