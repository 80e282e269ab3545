#include "clocked.hpp"

using namespace bench;

static constexpr size_t beat_bytes = W / 8;
using Data = std::conditional_t<W == 32, uint32_t, uint64_t>;

// One stream in random pieces, of up to `most` bytes and at least `least`.
static uint64_t one(Clocked &dut, const Bytes &body, size_t least, size_t most, unsigned idle, unsigned stall) {
    Bytes out;
    size_t sent = 0, piece = 0;
    bool offered = false, ended = false, in_ended = false;
    uint64_t from = dut.cycles;
    while (!ended) {
        if (!offered && !in_ended && !dut.random.percent(idle)) {
            offered = true;
            piece = std::min(body.size() - sent, least + dut.random.below(static_cast<uint32_t>(most - least + 1)));
            uint64_t data = dut.random.next();
            for (size_t i = 0; i < piece; i++) {
                data &= ~(0xffull << (8 * i));
                data |= static_cast<uint64_t>(body[sent + i]) << (8 * i);
            }
            dut->s_data = static_cast<Data>(data);
            dut->s_count = static_cast<uint8_t>(piece);
            // The last piece may be an empty one after all bytes.
            dut->s_last = sent + piece == body.size() && (least || !dut.random.percent(30));
        }
        dut->s_valid = offered;
        dut->m_ready = !dut.random.percent(stall);
        dut.settle();
        if (dut->m_valid && dut->m_ready) {
            unsigned keep = dut->m_keep;
            check((keep & (keep + 1)) == 0, "keep has holes");
            check(keep + 1 == 1u << beat_bytes || dut->m_last, "a beat that is not the last is not full");
            check(keep || out.empty(), "an empty beat after others");
            for (size_t i = 0; i < beat_bytes; i++)
                if (keep >> i & 1) out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(dut->m_data) >> (8 * i)));
            ended = dut->m_last;
        }
        if (offered && dut->s_ready) {
            offered = false;
            sent += piece;
            in_ended = dut->s_last;
        }
        check(dut.cycles - from < 100 * (body.size() + 100), "hangs");
        dut.rise();
    }
    check(in_ended, "ends before its input");
    expect(out, body, std::to_string(body.size()) + " bytes");
    return dut.cycles - from;
}

TEST(any_pieces_under_any_traffic) {
    Clocked dut;
    dut.reset();
    for (unsigned idle : {0, 50})
        for (unsigned stall : {0, 50})
            for (int i = 0; i < 1500; i++) one(dut, dut.random.bytes(dut.random.below(70)), 0, beat_bytes, idle, stall);
}

TEST(a_beat_a_cycle) {
    Clocked dut;
    dut.reset();
    uint64_t took = one(dut, Bytes(100 * beat_bytes, 1), beat_bytes, beat_bytes, 0, 0);
    check(took <= 102, "takes " + std::to_string(took));
}

BENCH_MAIN()
