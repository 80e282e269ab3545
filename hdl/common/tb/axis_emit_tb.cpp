#include "clocked.hpp"

using namespace bench;

static constexpr size_t beat_bytes = W / 8;

TEST(every_count) {
    Clocked dut;
    dut->load = 0;
    dut.reset();
    for (int round = 0; round < 20; round++)
        for (uint8_t count = 0; count <= 32; count++) {
            Bytes value = dut.random.bytes(32), out;
            for (size_t i = 0; i < 8; i++)
                dut->value[i] = value[4 * i] | value[4 * i + 1] << 8 | value[4 * i + 2] << 16 |
                                static_cast<uint32_t>(value[4 * i + 3]) << 24;
            dut->count = count;
            dut->load = 1;
            dut->m_ready = 0;
            dut.settle();
            check(!dut->m_valid, "valid before load");
            dut.rise();
            dut->load = 0;
            for (int i = 0; i < 8; i++) dut->value[i] = 0;
            dut->count = 0;
            bool ended = false;
            while (!ended) {
                dut->m_ready = dut.random.percent(70);
                dut.settle();
                check(dut->m_valid, "not valid before its end");
                if (dut->m_ready) {
                    for (size_t i = 0; i < beat_bytes; i++)
                        if (dut->m_keep >> i & 1) out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(dut->m_data) >> (8 * i)));
                    ended = dut->m_last;
                    check(ended || dut->m_keep + 1u == 1u << beat_bytes, "a beat is not full");
                }
                dut.rise();
            }
            value.resize(count);
            expect(out, value, std::to_string(count) + " bytes");
        }
}

BENCH_MAIN()
