// Streams of several sessions, one after another, with hints that are right, wrong, late or
// missing: the bytes are correct, and data hinted in time is available without waiting for memory.
#include <array>

#include "clocked.hpp"
#include "ring_words.hpp"

using namespace bench;

namespace {

constexpr int kLatency = 4, kSessions = 3;

// As in http_pkg.
unsigned kind_of(uint8_t byte) {
    static const std::string others = " \t\r\n:?,=%/\"<>@\\{}()[];#^`|";
    static const unsigned kinds[] = {10, 11, 12, 13, 1, 2, 3, 6, 7, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 14, 14, 14, 14};
    const size_t i = byte != 0 ? others.find(static_cast<char>(byte)) : std::string::npos;
    return i != std::string::npos ? kinds[i] : byte >= 0x80 ? 9 : byte <= 0x20 || byte == 0x7f ? 8 : 0;
}

// The expected bytes among the visible ones, and after them if there are fewer than can be visible.
template <typename Dut>
void check_kinds(Dut &dut, const uint8_t *bytes) {
    for (unsigned i = dut->lane; i < 24; i++) {
        const unsigned kind = dut->kinds[i / 8] >> (4 * (i % 8)) & 15, n = i - dut->lane;
        if (n < dut->count) check(kind == kind_of(bytes[n]), "the kind of byte " + std::to_string(n) + " of those that show is wrong");
        check(n >= dut->count ? dut->count == 16 || !(dut->there >> i & 1) : dut->there >> i & 1, "other bytes are there");
    }
}

struct Stream {
    uint32_t from = 0, arrived = 0, taken = 0;
    Bytes bytes;
};

struct Ahead : Clocked {
    std::array<Stream, kSessions> streams;
    RingWords words{kLatency};
    unsigned may = 100, pause = 0;
    uint8_t current = 0;
    int next = -1;  // the hint, or -1

    Ahead() {
        auto &dut = *this;
        dut->start = dut->ahead = dut->drop = dut->onward = dut->may = dut->pause = 0;
        dut->word_valid = 0;
        reset();
        for (auto &s : streams) fresh(s);
    }

    void fresh(Stream &s) {
        s.from = static_cast<uint32_t>(random.next());
        s.arrived = s.taken = 0;
        s.bytes = random.bytes(400);
    }

    uint64_t word(uint64_t address) {
        Stream &s = streams[(address >> 18) % kSessions];
        uint64_t value = random.next();
        for (unsigned i = 0; i < 8; i++) {
            uint32_t at = static_cast<uint32_t>((address * 8 + i - s.from) & ((1u << 21) - 1));
            if (at < s.arrived) value = (value & ~(0xffull << (8 * i))) | static_cast<uint64_t>(s.bytes[at]) << (8 * i);
        }
        return value;
    }

    // One cycle, with as many bytes consumed as `most` allows. Returns their number.
    unsigned step(bool start, unsigned most) {
        auto &dut = *this;
        Stream &now = streams[current];
        dut->start = start;
        dut->session = start ? current : static_cast<uint8_t>(random.below(16));
        dut->from = start ? now.from + now.taken : static_cast<uint32_t>(random.next());
        dut->up_to = now.from + now.arrived;
        dut->ahead = next >= 0;
        if (next >= 0) {
            Stream &s = streams[static_cast<size_t>(next)];
            dut->ahead_session = static_cast<uint8_t>(next);
            dut->ahead_from = s.from + s.taken;
            dut->ahead_up_to = s.from + s.arrived;
        }
        dut->may = random.percent(may);
        dut->pause = random.percent(pause);
        dut->onward = dut->lane;
        settle();
        unsigned n = 0;
        if (!start) {
            check(now.taken + dut->count <= now.arrived, "bytes that have not arrived");
            for (unsigned i = 0; i < dut->count; i++)
                check(static_cast<uint8_t>(dut->bytes[i / 4] >> (8 * (i % 4))) == now.bytes[now.taken + i],
                      "byte " + std::to_string(now.taken + i) + " is wrong");
            check_kinds(dut, now.bytes.data() + now.taken);
            if (dut->drained) check(now.taken + dut->count == now.arrived, "drained too early");
            n = std::min<unsigned>(most, dut->count);
            dut->onward = static_cast<uint8_t>(dut->lane + n);
            settle();
            now.taken += n;
        }
        if (dut->read) words.read(word(dut->read_address), dut->read_note, random);
        rise();
        arrive();
        return n;
    }

    // The word of the next cycle, if there is one.
    void arrive() {
        auto &dut = *this;
        const RingWords::Word came = words.next();
        dut->word_valid = came.valid, dut->word_note = came.note, dut->word_data = came.data;
    }
};

}  // namespace

TEST(any_order_and_any_hints) {
    Ahead dut;
    for (int run = 0; run < 3000; run++) {
        dut.may = 20 + dut.random.below(81);
        dut.words.jitter = dut.random.percent(50) ? 0 : dut.random.below(60);
        dut.pause = dut.random.below(80);
        dut.current = static_cast<uint8_t>(dut.random.below(kSessions));
        dut.step(true, 0);
        dut.next = -1;
        for (unsigned n = dut.random.below(60); n; n--) {
            if (dut.random.percent(10)) dut.next = static_cast<int>(dut.random.below(kSessions + 1)) - 1;
            if (dut.next == dut.current) dut.next = -1;  // a session is not its own next one
            for (auto &s : dut.streams)
                if (dut.random.percent(20)) s.arrived = std::min<uint32_t>(400, s.arrived + dut.random.below(30));
            dut.step(false, dut.random.below(17));
        }
        // One ends, and another is opened under its number.
        for (uint8_t i = 0; i < kSessions; i++)
            if (i != dut.current && dut.streams[i].arrived > 300 && dut.random.percent(30)) {
                dut.next = -1;
                dut->drop = 1;
                dut->drop_session = i;
                uint32_t from = dut.streams[i].from + dut.streams[i].taken;
                dut.fresh(dut.streams[i]);
                if (dut.random.percent(50)) dut.streams[i].from = from;  // even at the same place
                dut.step(false, 0);
                dut->drop = 0;
            }
        if (dut.streams[dut.current].taken == 400) dut.fresh(dut.streams[dut.current]), dut.current = 0;
    }
}

TEST(hinted_streams_are_prefetched) {
    Ahead dut;
    dut.streams[0].arrived = dut.streams[1].arrived = 400;
    dut.step(true, 0);
    dut.next = 1;
    for (int i = 0; i < 80; i++) dut.step(false, 8);  // the current one has priority
    check(dut.streams[0].taken == 400, "the current one waits");
    dut.current = 1;
    dut.next = -1;
    dut.step(true, 0);
    dut.step(false, 0);
    dut.step(false, 0);
    check(dut.step(false, 16) > 8, "is not there");
}

// Bytes of one stream that arrive and are consumed in any pieces.
TEST(any_pieces) {
    Ahead dut;
    for (int run = 0; run < 60; run++) {
        // The ring's words, where byte p of the stream is at p modulo the ring.
        uint32_t from = static_cast<uint32_t>(dut.random.next());
        Bytes stream = dut.random.bytes(2000);
        auto word = [&](uint64_t address) {
            uint64_t value = dut.random.next();  // bytes outside of the stream are random
            for (int i = 0; i < 8; i++) {
                uint32_t at = static_cast<uint32_t>((address * 8 + static_cast<unsigned>(i) - from) & ((1u << 21) - 1));
                if (at < stream.size()) value = (value & ~(0xffull << (8 * i))) | static_cast<uint64_t>(stream[at]) << (8 * i);
            }
            return value;
        };
        uint32_t arrived = 0, taken = 0;
        dut.words.jitter = dut.random.percent(50) ? 0 : dut.random.below(60);
        dut->session = 3;
        dut->from = from;
        dut->up_to = from;
        dut->start = 1;
        dut.settle();
        dut.rise();
        dut.arrive();
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
            check_kinds(dut, stream.data() + taken);
            if (dut->drained) check(taken + dut->count == arrived, "drained too early");
            const unsigned n = dut.random.below(dut->count + 1u);
            dut->onward = static_cast<uint8_t>(dut->lane + n);
            dut.settle();
            taken += n;
            check(!dut->read || might, "reads although it may not");
            might = dut->wants && dut->may;
            idle = n ? 0 : idle + 1;
            check(idle < 1000, "nothing comes any more");
            if (dut->read) {
                check(dut->read_address >> 18 == 3, "another session's ring");
                const uint64_t data = word(dut->read_address & ((1u << 18) - 1));
                dut.words.read(data, dut->read_note, dut.random);
            }
            dut.rise();
            dut.arrive();
        }
        dut->onward = dut->lane;
    }
}

BENCH_MAIN()
