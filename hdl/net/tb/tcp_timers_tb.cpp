// Each tick reaches the sessions with running timers, and every 64th all that were used.
#include "clocked.hpp"

using namespace bench;

TEST(ticks_reach_the_sessions_with_timers) {
    Clocked dut;
    dut->tick = dut->alert_write = dut->taken = 0;
    dut->born = 0;
    dut.reset();
    unsigned alerts = 0, born = 0, slow = 0;
    auto step = [&] {
        dut.settle();
        dut.rise();
    };
    // The memory of alerts is written before it is read.
    for (unsigned s = 0; s < 16; s++) {
        dut->alert_write = 1, dut->alert_at = static_cast<uint8_t>(s), dut->alert = 0;
        step();
    }
    dut->alert_write = 0;
    for (unsigned tick = 1; tick <= 400; tick++) {
        if (born < 16 && tick % 10 == 0) born++;
        dut->born = static_cast<uint8_t>(born);
        for (unsigned n = dut.random.below(4); n > 0; n--) {
            const unsigned at = dut.random.below(16), on = dut.random.below(2);
            dut->alert_write = 1, dut->alert_at = static_cast<uint8_t>(at), dut->alert = static_cast<uint8_t>(on);
            alerts = (alerts & ~(1u << at)) | on << at;
            step();
        }
        dut->alert_write = 0;
        dut->tick = 1;
        step();
        dut->tick = 0;
        check(dut->now == tick, "another time");
        unsigned reached = 0, last = 0;
        const bool all = tick % 64 == 0;
        for (int cycle = 0; cycle < 500; cycle++) {
            dut.settle();
            dut->taken = dut->chosen && dut.random.percent(40);
            dut.settle();
            if (dut->taken) {
                check((reached >> dut->first & 1) == 0 && (reached == 0 || dut->first > last), "a session twice, or not in order");
                check(dut->due_slow == all, "another kind of tick");
                last = dut->first;
                reached |= 1u << dut->first;
                slow += all;
            }
            const bool over = !dut->busy && cycle > 4;
            dut.rise();
            dut->taken = 0;
            if (over) break;
        }
        const unsigned used = (1u << born) - 1;
        check(reached == (all ? used : alerts & used), "other sessions at tick " + std::to_string(tick));
        check(!dut->late, "a scan that is over is late");
    }
    check(slow > 16, "no tick reached all sessions");
}

BENCH_MAIN()
