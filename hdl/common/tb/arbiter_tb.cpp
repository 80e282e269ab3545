#include "clocked.hpp"

using namespace bench;

TEST(grants_one_request_and_each_in_turn) {
    Clocked dut;
    dut->enable = dut->request = 0;
    dut.reset();
    int waited[4] = {};
    for (int i = 0; i < 20000; i++) {
        dut->enable = dut.random.percent(80);
        // A requester keeps its request until it is granted.
        for (unsigned n = 0; n < 4; n++)
            if (dut.random.percent(40)) dut->request |= static_cast<uint8_t>(1 << n);
        dut.settle();
        unsigned request = dut->request, grant = dut->grant;
        check((grant & ~request) == 0, "given to one that did not ask");
        check((grant & (grant - 1)) == 0, "given to two");
        check(!grant == (!dut->enable || !request), dut->enable ? "grants no request" : "grants while disabled");
        for (unsigned n = 0; n < 4; n++) {
            if (grant >> n & 1) waited[n] = 0;
            else if (grant && request >> n & 1) waited[n]++;
            check(waited[n] < 4, "one waits for more than all others");
        }
        dut.rise();
        dut->request &= static_cast<uint8_t>(~grant);
    }
}

BENCH_MAIN()
