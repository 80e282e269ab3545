#include "kernel_bench.hpp"

using namespace bench;

static Bytes upper(Bytes b) {
    for (auto &c : b) c = c >= 'a' && c <= 'z' ? c - 32 : c;
    return b;
}

TEST(every_byte_value) {
    Bytes all(256);
    for (int i = 0; i < 256; i++) all[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
    expect(Kernel().run(all), upper(all), "all byte values");
    expect(Kernel().run(text("hello, Board [{`z")), text("HELLO, BOARD [{`Z"), "a text");
}

TEST(any_body_under_any_traffic) { sweep(upper); }

TEST(leaves_nothing_behind_after_a_reset) {
    Bytes body = Random(seed()).bytes(100);
    reset_anywhere(body, upper(body));
}

TEST(one_beat_a_cycle_and_one_cycle_late) {
    Kernel kernel;
    kernel.run(Bytes(800, 'x'));
    check(kernel.timing.first == 1, "first output after " + std::to_string(kernel.timing.first) + " cycles");
    check(kernel.timing.total <= 800 / Kernel::beat_bytes + 4, "takes " + std::to_string(kernel.timing.total) + " cycles");
}

BENCH_MAIN()
