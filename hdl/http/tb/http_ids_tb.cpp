// Ids that are written byte by byte, of many sessions in turn: each is read back unchanged.
#include <array>

#include "Vdut.h"
#include "bench.hpp"

using namespace bench;

TEST(each_session_has_its_own) {
    constexpr unsigned kSessions = 16, kBytes = 40;
    Random random(seed());
    Vdut dut;
    std::array<std::array<uint8_t, kBytes>, kSessions> ids{};
    std::array<unsigned, kSessions> lengths{};
    dut.write = 0;
    dut.read = 1;
    for (int i = 0; i < 20000; i++) {
        const unsigned s = random.below(kSessions);
        // One more byte of an id, or its first byte again for another request.
        if (lengths[s] == kBytes || random.percent(2)) lengths[s] = 0;
        dut.write = random.percent(50);
        dut.write_session = static_cast<uint8_t>(s);
        dut.write_at = static_cast<uint8_t>(lengths[s]);
        dut.write_data = static_cast<uint8_t>(random.next());
        // Meanwhile another one is read: an id being written is not read.
        const unsigned other = (s + 1 + random.below(kSessions - 1)) % kSessions, word = random.below(kBytes / 8);
        dut.session = static_cast<uint8_t>(other);
        dut.word = static_cast<uint8_t>(word);
        dut.clk = 0;
        dut.eval();
        dut.clk = 1;
        dut.eval();
        if (dut.write) ids[s][lengths[s]++] = dut.write_data;
        for (unsigned k = 0; k < 8 && 8 * word + k < lengths[other]; k++)
            check(static_cast<uint8_t>(dut.data >> (8 * k)) == ids[other][8 * word + k],
                  "byte " + std::to_string(8 * word + k) + " of session " + std::to_string(other) + " is wrong");
    }
}

BENCH_MAIN()
