// Bytes that arrive in any pieces and are taken in any pieces come out as they are.
#include <deque>

#include "clocked.hpp"

using namespace bench;

TEST(any_pieces) {
    Clocked dut;
    dut->start = 0;
    dut->take = 0;
    dut->may = 0;
    dut.reset();
    constexpr int kLatency = 4;
    for (int run = 0; run < 60; run++) {
        // The ring's words, where byte p of the stream is at p modulo the ring.
        uint32_t from = static_cast<uint32_t>(dut.random.next());
        Bytes stream = dut.random.bytes(2000);
        auto word = [&](uint64_t address) {
            uint64_t value = dut.random.next();  // what is not stream is anything
            for (int i = 0; i < 8; i++) {
                uint32_t at = static_cast<uint32_t>((address * 8 + static_cast<unsigned>(i) - from) & ((1u << 21) - 1));
                if (at < stream.size()) value = (value & ~(0xffull << (8 * i))) | static_cast<uint64_t>(stream[at]) << (8 * i);
            }
            return value;
        };
        uint32_t arrived = 0, taken = 0;
        std::deque<uint64_t> pipe(kLatency, 0);
        dut->session = 3;
        dut->from = from;
        dut->up_to = from;
        dut->start = 1;
        dut.settle();
        dut.rise();
        dut->start = 0;
        unsigned busy = dut.random.below(100);
        int idle = 0;
        bool might = false;
        while (taken < stream.size()) {
            if (dut.random.percent(30) || dut.random.percent(busy)) {
                arrived = std::min<uint32_t>(static_cast<uint32_t>(stream.size()), arrived + dut.random.below(40));
                dut->up_to = from + arrived;
            }
            dut->may = dut.random.percent(70);
            dut.settle();
            for (int i = 0; i < dut->count; i++) {
                uint8_t byte = static_cast<uint8_t>(dut->bytes[i / 4] >> (8 * (i % 4)));
                check(taken + static_cast<unsigned>(i) < arrived, "a byte that has not arrived");
                check(byte == stream[taken + static_cast<unsigned>(i)], "byte " + std::to_string(taken + i) + " is wrong");
            }
            if (dut->drained) check(taken + dut->count == arrived, "drained too early");
            dut->take = static_cast<uint8_t>(dut.random.below(dut->count + 1u));
            dut.settle();
            taken += dut->take;
            check(!dut->read || might, "reads although it may not");
            might = dut->wants && dut->may;
            idle = dut->take ? 0 : idle + 1;
            check(idle < 1000, "nothing comes any more");
            // A read in this cycle shows its data after kLatency.
            pipe.push_back(dut->read ? word(dut->read_address & ((1u << 18) - 1)) : 0);
            if (dut->read) check(dut->read_address >> 18 == 3, "another session's ring");
            dut.rise();
            pipe.pop_front();
            dut->read_data = pipe.front();
        }
        dut->take = 0;
    }
}

BENCH_MAIN()
