#include "Vdut.h"
#include "bench.hpp"

#include <memory>

using namespace bench;

static constexpr size_t beat_bytes = W / 8;

static uint32_t step(uint32_t c, uint8_t x) {
    c ^= x;
    for (int i = 0; i < 8; i++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
    return c;
}

TEST(every_count_of_bytes) {
    auto dut = std::make_unique<Vdut>();
    Random random(seed());
    for (int round = 0; round < 5000; round++) {
        size_t count = random.below(beat_bytes + 1);
        uint64_t data = random.next();
        uint32_t crc = static_cast<uint32_t>(random.next()), want = crc;
        for (size_t i = 0; i < count; i++) want = step(want, static_cast<uint8_t>(data >> (8 * i)));
        dut->crc = crc;
        dut->data = static_cast<std::conditional_t<W == 32, uint32_t, uint64_t>>(data);
        dut->keep = static_cast<uint8_t>((1u << count) - 1);
        dut->eval();
        check(dut->next == want, std::to_string(count) + " bytes");
    }
}

TEST(the_check_value) {
    auto dut = std::make_unique<Vdut>();
    std::string all = "123456789";
    uint32_t crc = ~0u;
    for (size_t at = 0; at < all.size(); at += beat_bytes) {
        uint64_t data = 0;
        size_t count = std::min(beat_bytes, all.size() - at);
        for (size_t i = 0; i < count; i++) data |= static_cast<uint64_t>(all[at + i]) << (8 * i);
        dut->crc = crc;
        dut->data = static_cast<std::conditional_t<W == 32, uint32_t, uint64_t>>(data);
        dut->keep = static_cast<uint8_t>((1u << count) - 1);
        dut->eval();
        crc = dut->next;
    }
    check(~crc == 0xcbf43926u, "the catalog's check value");
}

BENCH_MAIN()
