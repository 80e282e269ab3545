#include "clocked.hpp"

#include <deque>

using namespace bench;

// Passes `count` entries at random paces; an offered entry stays until it is accepted.
static uint64_t through(Clocked &dut, unsigned idle, unsigned stall, size_t count) {
    dut.reset();
    std::deque<uint8_t> inside;
    size_t got = 0, put = 0;
    bool offered = false, held = false;
    uint8_t held_value = 0;
    uint64_t from = dut.cycles;
    while (got < count) {
        if (!offered && put < count && !dut.random.percent(idle)) {
            offered = true;
            dut->s_payload = static_cast<uint8_t>(dut.random.next());
        }
        dut->s_valid = offered;
        if (!offered) dut->s_payload = static_cast<uint8_t>(dut.random.next());
        dut->m_ready = 0;
        dut.settle();
        bool ready_before = dut->s_ready;
        dut->m_ready = !dut.random.percent(stall);
        dut.settle();
        check(ready_before == dut->s_ready, "s_ready depends on m_ready");
        if (held) check(dut->m_valid && dut->m_payload == held_value, "an offered word has changed");
        held = dut->m_valid && !dut->m_ready;
        held_value = dut->m_payload;
        if (dut->m_valid && dut->m_ready) {
            check(!inside.empty() && inside.front() == dut->m_payload, "entry " + std::to_string(got) + " is wrong");
            inside.pop_front();
            got++;
        }
        if (offered && dut->s_ready) {
            inside.push_back(dut->s_payload);
            put++;
            offered = false;
        }
        check(inside.size() <= 2, "holds more than two");
        check(dut.cycles - from < 100 * count + 100, "hangs");
        dut.rise();
    }
    return dut.cycles - from;
}

TEST(keeps_order_under_any_traffic) {
    Clocked dut;
    for (unsigned idle : {0, 30, 90})
        for (unsigned stall : {0, 30, 90}) through(dut, idle, stall, 2000);
}

TEST(an_entry_a_cycle_and_one_cycle_late) {
    Clocked dut;
    check(through(dut, 0, 0, 1000) == 1001, "is slower");
}

BENCH_MAIN()
