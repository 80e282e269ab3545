#include "clocked.hpp"

#include <deque>

using namespace bench;

static uint64_t through(Clocked &dut, unsigned idle, unsigned stall, size_t count, size_t *most = nullptr) {
    dut.reset();
    std::deque<uint8_t> inside;
    size_t got = 0, put = 0;
    bool held = false;
    uint8_t held_value = 0;
    uint64_t from = dut.cycles;
    while (got < count) {
        dut->s_valid = put < count && !dut.random.percent(idle);
        dut->s_payload = static_cast<uint8_t>(dut.random.next());
        dut->m_ready = !dut.random.percent(stall);
        dut.settle();
        check(dut->level == inside.size(), "level is " + std::to_string(dut->level));
        if (held) check(dut->m_valid && dut->m_payload == held_value, "an offered word has changed");
        held = dut->m_valid && !dut->m_ready;
        held_value = dut->m_payload;
        if (dut->m_valid && dut->m_ready) {
            check(!inside.empty() && inside.front() == dut->m_payload, "entry " + std::to_string(got) + " is wrong");
            inside.pop_front();
            got++;
        }
        if (dut->s_valid && dut->s_ready) {
            inside.push_back(dut->s_payload);
            put++;
        }
        if (most) *most = std::max(*most, inside.size());
        check(dut.cycles - from < 100 * count + 100, "hangs");
        dut.rise();
    }
    return dut.cycles - from;
}

TEST(keeps_order_and_counts_under_any_traffic) {
    Clocked dut;
    for (unsigned idle : {0, 30, 90})
        for (unsigned stall : {0, 30, 90}) through(dut, idle, stall, 2000);
}

TEST(holds_all_of_its_depth) {
    Clocked dut;
    size_t most = 0;
    through(dut, 0, 90, 500, &most);
    check(most == 17, "held " + std::to_string(most));
}

TEST(an_entry_a_cycle_and_two_cycles_late) {
    Clocked dut;
    check(through(dut, 0, 0, 1000) == 1002, "is slower");
}

BENCH_MAIN()
