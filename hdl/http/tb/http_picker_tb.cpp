// Sessions with any work and any calls: each is served after at most one turn of all others, and never while its call is
// in progress.
#include "clocked.hpp"

using namespace bench;

TEST(sessions_are_served_in_turn) {
    Clocked dut;
    dut->picks = dut->calls = dut->again = dut->arrived = dut->woken = dut->finished = 0;
    dut->session = 0;
    dut.reset();
    bool ready[16] = {}, in_call[16] = {};
    unsigned passed[16] = {}, served = 0, called = 0;
    int serving = -1, steps = 0;  // -1: none
    for (int i = 0; i < 100000; i++) {
        const unsigned load = i / 3000 % 2 ? 20 : 2;
        dut->arrived = dut.random.percent(load), dut->arrived_at = static_cast<uint8_t>(dut.random.below(16));
        dut->woken = dut.random.percent(load), dut->woken_at = static_cast<uint8_t>(dut.random.below(16));
        const unsigned ends = dut.random.below(16);
        dut->finished = in_call[ends] && serving != static_cast<int>(ends) && dut.random.percent(30);
        dut->finish_tag = static_cast<uint8_t>(ends);
        dut->picks = serving < 0;
        dut->calls = dut->again = 0;
        if (serving >= 0 && --steps == 0) {
            dut->calls = dut.random.percent(40);
            dut->again = !dut->calls && dut.random.percent(30);
        }
        dut.settle();
        unsigned working = 0;
        bool any = false, calling = false, others = false;
        for (unsigned s = 0; s < 16; s++) {
            working |= static_cast<unsigned>(ready[s] || in_call[s]) << s;
            any |= ready[s] && !in_call[s];
            others |= ready[s] && !in_call[s] && s != dut->session;
            calling |= in_call[s];
        }
        check(dut->working == working && dut->any == any && dut->calling == calling && dut->others == others, "another state");
        const bool picked = dut->picks && dut->next_valid;
        if (picked) {
            const unsigned next = dut->next;
            check(ready[next] && !in_call[next], "a session without work, or with a call in progress");
            for (unsigned s = 0; s < 16; s++)
                if (ready[s] && !in_call[s] && s != next) check(++passed[s] <= 16, "a session is passed over");
            passed[next] = 0;
            ready[next] = false;
            serving = static_cast<int>(next), steps = 1 + static_cast<int>(dut.random.below(12));
            served++;
        } else if (serving >= 0 && steps == 0) {
            if (dut->calls) in_call[serving] = true, called++;
            if (dut->again) ready[serving] = true;
            serving = -1;
        }
        if (dut->finished) in_call[ends] = false, ready[ends] = true;
        if (dut->arrived) ready[dut->arrived_at] = true;
        if (dut->woken) ready[dut->woken_at] = true;
        dut.rise();
        if (picked) dut->session = static_cast<uint8_t>(serving);
    }
    check(served > 5000 && called > 1000, "too few sessions were served");
}

BENCH_MAIN()
