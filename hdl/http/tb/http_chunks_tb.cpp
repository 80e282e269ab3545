// Chunks, discarded bodies and ended streams of any length, whose bytes arrive at any time: exactly the bytes of each part
// pass, those of chunks are written, and the writer is written out before other work.
#include "clocked.hpp"

using namespace bench;

namespace {

enum ParserState { Head, Size, Chunk, Discard, End };

struct Passer {
    Clocked dut;
    ParserState place = Head;
    unsigned left = 0;       // bytes of the part
    unsigned visible = 0;    // that have arrived and are not consumed
    unsigned body = 0;       // bytes of chunks so far
    unsigned unwritten = 0;  // words of the writer that are not written out
    uint64_t passed = 0, written = 0, fast = 0, starts = 0;

    Passer() {
        dut->parses = 1, dut->reader_start = dut->too_long = dut->used = 0;
        dut->used_known = 1;
        set();
        dut.reset();
    }
    void set() {
        dut->at_chunk = place == Chunk, dut->at_size = place == Size, dut->at_discard = place == Discard, dut->at_end = place == End;
        dut->chunk = left, dut->body_length = body;
        dut->count = static_cast<uint8_t>(std::min(visible, 16u));
    }
    // One cycle, as http_engine uses the module.
    void step(unsigned stalls) {
        dut->fill_ready = !dut.random.percent(stalls), dut->chunks_wait = dut.random.percent(stalls);
        set();
        dut.settle();
        const bool moves = dut->moves, chunk_moves = dut->chunk_moves, all = dut->pass_all;
        const unsigned take = dut->pass_take;
        check(dut->passes == (place == Chunk || place == Discard || place == End), "another place passes bytes");
        check(dut->in_chunks == (place == Chunk || place == Size), "it is in a chunked body, or is not");
        check(chunk_moves == (moves && place == Chunk), "bytes of a chunk are not written, or others are");
        check(!moves || dut->parses, "bytes pass while no request is parsed");
        if (chunk_moves) check(dut->fill_ready && !dut->chunks_wait, "bytes are written while the memory is not ready");
        if (dut->fill_flush) check(dut->fill_dirty && !chunk_moves, "an empty writer is written out");
        if (dut->fill_start) starts++, check(!dut->fill_dirty, "the writer begins elsewhere with bytes in it");
        check(dut->fill_dirty == (unwritten != 0), "the writer has bytes, or none");
        if (moves) {
            check(take > 0 && take <= 8 && take <= visible, "more bytes pass than are visible");
            if (place != End) {
                check(take <= left, "more bytes pass than belong to the part");
                check(all == (take == left), "the part's end is found elsewhere");
                left -= take;
            }
            visible -= take;
            passed += take;
            fast += dut->plenty;
            if (chunk_moves) body += take, written += take, unwritten++;
        }
        if (dut->fill_flush) unwritten = 0;
        dut.rise();
        if (moves && place != End && left == 0) place = place == Chunk ? Size : Head;
    }
};

}  // namespace

TEST(exactly_the_bytes_of_a_part_pass) {
    Passer p;
    uint64_t expected = 0, chunked = 0;
    for (int part = 0; part < 4000; part++) {
        const unsigned arrives = p.dut.random.percent(50) ? 16 : 1 + p.dut.random.below(9);
        const unsigned stalls = p.dut.random.percent(50) ? 0 : 40;
        const auto place = static_cast<ParserState>(2 + p.dut.random.below(2));
        const unsigned length = 1 + p.dut.random.below(p.dut.random.percent(50) ? 20 : 200);
        // Bytes in the writer are written out before the part, except of the same body.
        for (int i = 0; i < 300 && p.unwritten; i++) p.step(stalls);
        check(!p.unwritten, "the writer is not written out");
        p.place = place, p.left = length, p.body = 0;
        expected += length, chunked += place == Chunk ? length : 0;
        unsigned beyond = length + p.dut.random.below(40), arrived = 0;
        p.visible = 0;
        int cycles = 0;
        for (; p.place == place && cycles < 4000; cycles++) {
            const unsigned more = std::min(beyond - arrived, p.visible < 17 ? p.dut.random.below(arrives + 1) : 0);
            arrived += more, p.visible += more;
            p.step(stalls);
        }
        check(p.left == 0, "the part does not end");
        check(p.visible == arrived - length, "bytes behind the part were consumed");
    }
    check(p.passed == expected && p.written == chunked, "another number of bytes");
    check(p.fast > 1000, "bytes hardly ever pass eight in a cycle");
}

// All eight bytes of a cycle pass while there are enough, so that a large body takes a cycle for each word.
TEST(large_parts_pass_at_full_speed) {
    for (const ParserState place : {Chunk, Discard}) {
        Passer p;
        p.place = place, p.left = 2400;
        int cycles = 0;
        for (; p.place == place && cycles < 1000; cycles++) {
            p.visible = std::max(p.visible, 16u);
            p.step(0);
        }
        check(cycles < 2400 / 8 + 16, "it takes " + std::to_string(cycles) + " cycles");
    }
}

// Everything after the end of a stream passes, and no more than what is visible.
TEST(data_after_the_end_is_dropped) {
    Passer p;
    p.place = End;
    uint64_t arrived = 0;
    for (int i = 0; i < 5000; i++) {
        if (p.visible < 17) {
            const unsigned more = p.dut.random.below(12);
            p.visible += more, arrived += more;
        }
        p.step(30);
    }
    for (int i = 0; i < 20; i++) p.step(0);
    check(p.visible == 0 && p.passed == arrived && p.written == 0, "data is left, or written");
}

// A body is too long if its chunks exceed the limit, announced or received, or if its bytes on the wire fill the ring.
TEST(long_bodies_are_found) {
    Clocked dut;
    dut->parses = 1, dut->reader_start = dut->at_discard = dut->at_end = dut->at_chunk = 0;
    dut->fill_ready = 1, dut->chunks_wait = dut->count = 0;
    dut.reset();
    int over = 0;
    for (int i = 0; i < 20000; i++) {
        const bool in = dut.random.percent(90), too_long = dut.random.percent(5), known = dut.random.percent(80);
        const unsigned length = dut.random.below(3200), chunk = dut.random.percent(50) ? dut.random.below(3200) : 0;
        const unsigned used = dut.random.below(4096);
        dut->at_size = in, dut->too_long = too_long, dut->used_known = known;
        dut->body_length = length, dut->chunk = chunk, dut->used = static_cast<uint16_t>(used);
        for (int k = 0; k < 3; k++) dut.settle(), dut.rise();  // the comparison is two cycles late
        const bool expected = in && (too_long || (known && used > 4096 - 512) || length + chunk > 3000);
        dut.settle();
        check(dut->over == expected, "a body is too long, or is not");
        over += expected;
    }
    check(over > 1000, "too few long bodies");
}

BENCH_MAIN()
