#include "kernel_bench.hpp"

using namespace bench;

static uint32_t crc32(const Bytes &b) {
    uint32_t c = ~0u;
    for (auto x : b) {
        c ^= x;
        for (int i = 0; i < 8; i++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
    }
    return ~c;
}

static Bytes raw(const Bytes &b) {
    uint32_t c = crc32(b);
    return {static_cast<uint8_t>(c), static_cast<uint8_t>(c >> 8), static_cast<uint8_t>(c >> 16), static_cast<uint8_t>(c >> 24)};
}

static Bytes digits(const Bytes &b) {
    char s[9];
    std::snprintf(s, sizeof s, "%08x", crc32(b));
    return text(s);
}

TEST(known_values) {
    Kernel kernel;
    // The check value of the catalog of CRCs, and that of nothing.
    expect(kernel.run(text("123456789"), {1}), text("cbf43926"), "123456789");
    expect(kernel.run(text("123456789"), {0}), unhex("2639f4cb"), "123456789, raw");
    expect(kernel.run({}, {1}), text("00000000"), "nothing");
}

TEST(raw_of_any_body_under_any_traffic) { sweep(raw, {0}); }

TEST(digits_of_any_body_under_any_traffic) { sweep(digits, {1}); }

TEST(leaves_nothing_behind_after_a_reset) {
    Bytes body = Random(seed()).bytes(100);
    reset_anywhere(body, raw(body));
}

TEST(answers_two_cycles_after_the_last_beat) {
    Kernel kernel;
    kernel.run(Bytes(800, 'x'));
    check(kernel.timing.last == 2, "answers after " + std::to_string(kernel.timing.last) + " cycles");
    check(kernel.timing.total <= 800 / Kernel::beat_bytes + 6, "takes " + std::to_string(kernel.timing.total) + " cycles");
}

BENCH_MAIN()
