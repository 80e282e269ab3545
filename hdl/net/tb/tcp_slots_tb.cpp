// Sessions are taken and released in any order: no session is taken twice, and none is lost.
#include "clocked.hpp"

using namespace bench;

TEST(unused_sessions_are_taken_in_order) {
    Clocked dut;
    dut->release_valid = dut->hold = dut->taken = 0;
    dut.reset();
    for (unsigned i = 0; i < 16; i++) {
        for (int wait = 0; wait < 3; wait++) dut.settle(), dut.rise();
        check(dut->slot_free && dut->slot == i && dut->born == i, "another session");
        dut->hold = dut->taken = 1;
        dut.settle();
        dut.rise();
        dut->hold = dut->taken = 0;
    }
    for (int wait = 0; wait < 3; wait++) dut.settle(), dut.rise();
    check(!dut->slot_free && dut->born == 16, "a session more than there are");
}

TEST(no_session_is_taken_twice_or_lost) {
    Clocked dut;
    dut->release_valid = dut->hold = dut->taken = 0;
    dut.reset();
    bool used[16] = {};
    unsigned count = 0, most = 0, taken = 0, held = 0, idle = 0;
    for (int i = 0; i < 50000; i++) {
        // Phases in which most sessions are released, or most are taken.
        const unsigned releases = i / 1000 % 2 ? 5 : 30;
        const unsigned at = dut.random.below(16);
        dut->release_valid = used[at] && dut.random.percent(releases);
        dut->release_at = static_cast<uint8_t>(at);
        dut->taken = held == 1;
        dut->hold = held > 0;
        dut.settle();
        if (dut->taken) {
            check(!used[dut->slot], "a session that is in use");
            used[dut->slot] = true;
            count++, taken++;
        }
        if (dut->release_valid) used[at] = false, count--;
        most = std::max(most, count);
        if (held > 0) held--;
        else if (dut->slot_free && dut.random.percent(50)) held = 1 + dut.random.below(10);
        // A free session is offered two cycles after its release.
        idle = count < 16 && held == 0 && !dut->slot_free ? idle + 1 : 0;
        check(idle < 4, "a free session is not offered");
        dut.rise();
    }
    check(most == 16 && taken > 1000, "too few sessions were taken");
}

BENCH_MAIN()
