// Streams of beats of any length, from any position, with flushes between: the memory holds them.
#include <map>

#include "clocked.hpp"

using namespace bench;

TEST(bytes_at_any_position) {
    Clocked dut;
    dut->start = dut->valid = dut->flush = 0;
    dut.reset();
    for (int run = 0; run < 300; run++) {
        std::map<uint64_t, uint8_t> memory;
        uint32_t position = static_cast<uint32_t>(dut.random.next());
        uint32_t session = dut.random.below(16);
        auto step = [&] {
            dut.settle();
            dut.rise();
            dut.settle();
            if (dut->write)
                for (int i = 0; i < 8; i++)
                    if (dut->write_keep >> i & 1)
                        memory[dut->write_address * 8ull + static_cast<unsigned>(i)] = static_cast<uint8_t>(dut->write_data >> (8 * i));
        };
        dut->start = 1;
        dut->session = session;
        dut->from = position;
        step();
        dut->start = 0;
        Bytes all;
        for (int beat = 0; beat < 40; beat++) {
            Bytes part = dut.random.bytes(dut.random.below(9));
            dut->valid = 1;
            dut->data = dut.random.next();
            for (size_t i = 0; i < part.size(); i++) {
                dut->data &= ~(0xffull << (8 * i));
                dut->data |= static_cast<uint64_t>(part[i]) << (8 * i);
            }
            dut->length = static_cast<uint8_t>(part.size());
            step();
            dut->valid = 0;
            all.insert(all.end(), part.begin(), part.end());
            if (dut.random.percent(20)) {
                dut->flush = 1;
                step();
                dut->flush = 0;
            }
        }
        dut->flush = 1;
        step();
        dut->flush = 0;
        step();
        check(memory.size() == all.size(), "other bytes than those given were written");
        const uint64_t ring = 1ull << 21;
        for (size_t i = 0; i < all.size(); i++) {
            uint64_t at = session * ring + (position + i) % ring;
            check(memory.count(at) && memory[at] == all[i], "byte " + std::to_string(i) + " is wrong");
        }
    }
}

BENCH_MAIN()
