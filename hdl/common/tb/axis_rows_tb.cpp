#include "clocked.hpp"

using namespace bench;

static constexpr size_t beat_bytes = W / 8;
using Data = std::conditional_t<W == 32, uint32_t, uint64_t>;

static uint64_t one(Clocked &dut, const Bytes &body, size_t width, unsigned idle, unsigned stall) {
    Bytes out;
    size_t sent = 0, count = 0, in_row = 0;
    bool offered = false, ended = false, in_ended = false;
    uint64_t from = dut.cycles;
    while (!ended) {
        dut->start = dut.cycles == from;
        dut->width = static_cast<uint16_t>(width);
        if (!offered && !in_ended && dut.cycles > from && !dut.random.percent(idle)) {
            offered = true;
            count = std::min(body.size() - sent, beat_bytes);
            uint64_t data = dut.random.next();
            for (size_t i = 0; i < count; i++) {
                data &= ~(0xffull << (8 * i));
                data |= static_cast<uint64_t>(body[sent + i]) << (8 * i);
            }
            dut->s_data = static_cast<Data>(data);
            dut->s_count = static_cast<uint8_t>(count);
            dut->s_last = sent + count == body.size();
        }
        dut->s_valid = offered;
        dut->m_ready = dut.cycles > from && !dut.random.percent(stall);
        dut.settle();
        if (dut->m_valid && dut->m_ready) {
            if (dut->m_end) {
                check(dut->m_count == 0 && in_row == 0, "ends within a row");
                ended = true;
            } else {
                check(dut->m_count == std::min(beat_bytes, width - in_row), "a piece of " + std::to_string(dut->m_count));
                for (size_t i = 0; i < dut->m_count; i++)
                    out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(dut->m_data) >> (8 * i)));
                in_row += dut->m_count;
                check(dut->m_row_last == (in_row == width), "does not say that the row ends");
                if (in_row == width) in_row = 0;
            }
        }
        if (offered && dut->s_ready) {
            offered = false;
            sent += count;
            in_ended = dut->s_last;
        }
        check(dut.cycles - from < 1000 * (body.size() + 100), "hangs");
        dut.rise();
    }
    Bytes want = body;
    want.resize((body.size() + width - 1) / width * width);
    expect(out, want, std::to_string(body.size()) + " bytes in rows of " + std::to_string(width));
    return dut.cycles - from;
}

TEST(any_rows_under_any_traffic) {
    Clocked dut;
    dut.reset();
    for (unsigned idle : {0, 50})
        for (unsigned stall : {0, 50})
            for (int i = 0; i < 800; i++)
                one(dut, dut.random.bytes(dut.random.below(120)), 1 + dut.random.below(30), idle, stall);
}

TEST(a_piece_a_cycle) {
    Clocked dut;
    dut.reset();
    for (size_t width : {8 * beat_bytes, 8 * beat_bytes - 1}) {
        uint64_t took = one(dut, Bytes(20 * width, 1), width, 0, 0);
        check(took <= 20 * 8 + 4, "takes " + std::to_string(took));
    }
}

BENCH_MAIN()
