#include "clocked.hpp"

using namespace bench;

static constexpr size_t beat_bytes = W / 8;
using Data = std::conditional_t<W == 32, uint32_t, uint64_t>;

static uint64_t one(Clocked &dut, const Bytes &body, unsigned idle, unsigned stall) {
    Bytes out;
    size_t sent = 0, count = 0;
    bool offered = false, ended = false, in_ended = false;
    uint64_t from = dut.cycles;
    while (!ended) {
        if (!offered && !in_ended && !dut.random.percent(idle)) {
            offered = true;
            count = std::min(body.size() - sent, beat_bytes);
            uint64_t data = dut.random.next();
            for (size_t i = 0; i < count; i++) {
                data &= ~(0xffull << (8 * i));
                data |= static_cast<uint64_t>(body[sent + i]) << (8 * i);
            }
            dut->s_data = static_cast<Data>(data);
            dut->s_keep = static_cast<uint8_t>((1u << count) - 1);
            dut->s_last = sent + count == body.size();
        }
        dut->s_valid = offered;
        dut->m_ready = !dut.random.percent(stall);
        dut.settle();
        if (dut->m_valid && dut->m_ready) {
            if (dut->m_end) ended = true;
            else out.push_back(dut->m_byte);
        }
        if (offered && dut->s_ready) {
            offered = false;
            sent += count;
            in_ended = dut->s_last;
        }
        check(dut.cycles - from < 100 * (body.size() + 100), "hangs");
        dut.rise();
    }
    expect(out, body, std::to_string(body.size()) + " bytes");
    return dut.cycles - from;
}

TEST(every_byte_and_then_the_end) {
    Clocked dut;
    dut.reset();
    for (unsigned idle : {0, 50})
        for (unsigned stall : {0, 50})
            for (int i = 0; i < 500; i++) one(dut, dut.random.bytes(dut.random.below(40)), idle, stall);
}

TEST(a_byte_a_cycle) {
    Clocked dut;
    dut.reset();
    check(one(dut, Bytes(400, 1), 0, 0) == 402, "is slower");
}

BENCH_MAIN()
