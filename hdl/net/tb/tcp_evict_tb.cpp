// Scans, attempts and births in any order, compared with a model: the laggard, the sessions that yield, and the address
// for which a free session is kept.
#include "clocked.hpp"

using namespace bench;

TEST(the_oldest_sessions_yield_to_the_address_that_waits) {
    constexpr unsigned kWanted = 16, kWaiter = 62, kPause = 15;  // 64 ms, of the default parameters
    Clocked dut;
    dut->tick_64 = dut->scan = dut->evicts = dut->look = dut->refused = dut->birth = 0;
    dut.reset();
    unsigned lag[16] = {}, age[16] = {};
    unsigned laggard = 0, laggard_lag = 0, eldest = 0, eldest_age = 0, pause = 0, left = 0, yields = 0;
    unsigned asked = 0, again = 0, expired = 0, served = 0, evicted = 0;
    bool waiting = false, known = false, settled = false;
    uint64_t waiter = 0, address = 0;
    for (int i = 0; i < 300000; i++) {
        const bool crowd = i / 20000 % 2;  // many addresses, or the waiting one alone
        dut->scan = dut->tick_64 = dut->evicts = dut->look = dut->refused = dut->birth = 0;
        const unsigned event = dut.random.below(100);
        const unsigned at = dut.random.below(16);
        bool evictable = false, closable = false;
        if (event < 60) {
            lag[at] = dut.random.percent(30) ? 0 : lag[at] + dut.random.below(3);
            age[at] += dut.random.below(2);
            evictable = dut.random.percent(80), closable = dut.random.percent(90);
            dut->scan = 1, dut->scan_at = static_cast<uint8_t>(at);
            dut->scan_lag = static_cast<uint16_t>(lag[at]), dut->scan_age = static_cast<uint16_t>(age[at]);
            dut->scan_evictable = evictable, dut->scan_closable = closable;
        } else if (event < 72) {
            dut->tick_64 = 1;
        } else if (event < 84) {
            if (!waiting || crowd || dut.random.percent(20)) address = 1 + dut.random.below(crowd ? 50 : 3);
            else address = waiter;
            dut->look = 1;
        } else if (event < 92) {
            dut->refused = settled;
        } else if (event < 96) {
            dut->birth = 1, dut->birth_at = static_cast<uint8_t>(at), dut->birth_active = dut.random.percent(20);
        } else if (laggard_lag >= kWanted && settled) {
            dut->evicts = 1;
        }
        dut->address = address;
        dut.settle();
        const bool eldest_over = eldest_age >= kWanted;
        if (settled) {
            check(dut->laggard_over == (laggard_lag >= kWanted), "another time of the laggard");
            check(!dut->laggard_over || dut->laggard == laggard, "another laggard");
            check(dut->kept == (waiting && !known), "a session is kept for another address");
        }
        check(dut->yields == yields, "other sessions yield");
        if (dut->scan) {
            if (evictable ? lag[at] > laggard_lag || at == laggard : at == laggard)
                laggard = at, laggard_lag = evictable ? lag[at] : 0;
            if (closable && !(yields >> at & 1) ? age[at] > eldest_age || at == eldest : at == eldest) {
                eldest_age = closable && !(yields >> at & 1) ? age[at] : 0;
                eldest = at;
            }
        }
        if (dut->evicts) laggard_lag = 0, lag[laggard] = 0, evicted++;
        if (dut->look) known = address == waiter;
        if (dut->refused) {
            if (eldest_over && (!waiting || (known && pause == 0))) {
                check(age[eldest] >= kWanted, "a young session yields");
                (waiting ? again : asked)++;
                waiting = known = true, waiter = address, left = kWaiter, pause = kPause;
                yields |= 1u << eldest, eldest_age = 0;
            } else if (waiting && known) left = kWaiter;
        }
        if (dut->tick_64) {
            if (pause) pause--;
            if (left-- == 0) {
                expired += waiting;
                waiting = false, left = 63;
            }
        }
        if (dut->birth) {
            const bool active = dut->birth_active;
            yields = (yields & ~(1u << at)) | static_cast<unsigned>(active) << at;
            lag[at] = age[at] = 0;
            if (at == eldest) eldest_age = 0;
            if (!active && known && waiting) waiting = false, served++;
        }
        settled = event >= 60 && event < 92 && !dut->refused;  // the comparisons are a cycle late
        dut.rise();
    }
    check(asked > 100 && again > 5 && expired > 5 && served > 100 && evicted > 30,
          "too few cases: " + std::to_string(asked) + ", " + std::to_string(again) + ", " + std::to_string(expired) +
              ", " + std::to_string(served) + ", " + std::to_string(evicted));
}

BENCH_MAIN()
