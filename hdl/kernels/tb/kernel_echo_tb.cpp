#include "kernel_bench.hpp"

using namespace bench;

static Bytes same(const Bytes &b) { return b; }

TEST(gives_back_any_body_under_any_traffic) { sweep(same); }

TEST(leaves_nothing_behind_after_a_reset) {
    Bytes body = Random(seed()).bytes(100);
    reset_anywhere(body, body);
}

TEST(one_beat_a_cycle_and_one_cycle_late) {
    Kernel kernel;
    for (int i = 0; i < 20; i++) {
        kernel.run(Bytes(64, 'x'));
        check(kernel.timing.first == 1, "first output after " + std::to_string(kernel.timing.first) + " cycles");
        check(kernel.timing.total == 64 / Kernel::beat_bytes + 2, "takes " + std::to_string(kernel.timing.total) + " cycles");
    }
}

BENCH_MAIN()
