// HalfSipHash-2-4 of 16 bytes, compared with a direct implementation of its definition.
#include "clocked.hpp"

using namespace bench;

namespace {

uint32_t rotate(uint32_t v, int by) { return v << by | v >> (32 - by); }

uint32_t half_sip_hash(uint64_t key, const uint32_t *words) {
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    uint32_t v0 = k0, v1 = k1, v2 = 0x6c796765 ^ k0, v3 = 0x74656462 ^ k1;
    auto round = [&] {
        v0 += v1, v1 = rotate(v1, 5), v1 ^= v0, v0 = rotate(v0, 16);
        v2 += v3, v3 = rotate(v3, 8), v3 ^= v2;
        v0 += v3, v3 = rotate(v3, 7), v3 ^= v0;
        v2 += v1, v1 = rotate(v1, 13), v1 ^= v2, v2 = rotate(v2, 16);
    };
    for (int i = 0; i < 5; i++) {
        uint32_t m = i < 4 ? words[i] : 16u << 24;
        v3 ^= m;
        round(), round();
        v0 ^= m;
    }
    v2 ^= 0xff;
    round(), round(), round(), round();
    return v1 ^ v3;
}

}  // namespace

TEST(as_defined) {
    Clocked dut;
    dut->start = 0;
    dut.reset();
    for (int i = 0; i < 500; i++) {
        uint64_t key = dut.random.next();
        uint32_t words[4];
        for (auto &w : words) w = static_cast<uint32_t>(dut.random.next());
        dut->secret = key;
        for (int w = 0; w < 4; w++) dut->message[w] = words[w];
        dut->start = 1;
        dut.settle();
        dut.rise();
        dut->start = 0;
        int cycles = 0;
        for (dut.settle(); !dut->done; dut.settle()) {
            dut.rise();
            check(++cycles < 50, "no hash after 50 cycles");
        }
        check(dut->hash == half_sip_hash(key, words), "another hash");
        check(cycles == 14, "another latency: " + std::to_string(cycles));
        dut.rise();
    }
}

BENCH_MAIN()
