// Reports and kicks at any time: each session with one is in the queue once, and they leave in order.
#include <algorithm>
#include <deque>

#include "clocked.hpp"

using namespace bench;

TEST(each_session_leaves_once_and_in_order) {
    Clocked dut;
    dut->report_valid = dut->kick = dut->taken = 0;
    dut.reset();
    // The marks of all sessions are cleared after the reset.
    for (int i = 0; i < 20; i++) dut.settle(), dut.rise();
    std::deque<unsigned> queue;
    unsigned left = 0, waited = 0;
    bool kicks = false;
    for (int i = 0; i < 50000; i++) {
        const unsigned load = i / 2000 % 2 ? 60 : 5;
        dut->report_valid = dut.random.percent(load);
        dut->report_at = static_cast<uint8_t>(dut.random.below(16));
        if (!kicks && dut.random.percent(load)) kicks = true, dut->kick_at = static_cast<uint8_t>(dut.random.below(16));
        dut->kick = kicks;
        dut.settle();
        dut->taken = dut->chosen && dut.random.percent(30);
        dut.settle();
        if (dut->taken) check(!queue.empty() && dut->next == queue.front(), "another session");
        waited = dut->chosen || queue.empty() ? 0 : waited + 1;
        check(waited < 3, "a session in the queue is not offered");
        check(dut->busy || queue.empty(), "a session is in the queue, but it is not busy");
        if (dut->report_valid || kicks) {
            const unsigned at = dut->report_valid ? dut->report_at : dut->kick_at;
            const bool was = std::find(queue.begin(), queue.end(), at) != queue.end();
            const bool again = dut->taken && queue.front() == at;
            if (!was || again) queue.push_back(at);
        }
        if (dut->taken) queue.pop_front(), left++;
        if (!dut->report_valid) kicks = false;
        dut.rise();
    }
    check(left > 5000, "too few sessions left");
}

BENCH_MAIN()
