// Sessions with streams that grow and end are served one after another, as http_engine does: the bytes and their end
// are those of the served session, whatever is prefetched, and what was prefetched of the next one is there at once.
#include <array>
#include <deque>

#include "clocked.hpp"
#include "ring_words.hpp"

using namespace bench;

namespace {

constexpr unsigned kSessions = 16, kLatency = 4, kPosition = (1u << 23) - 1, kLength = 400;

struct Stream {
    uint32_t from = 0, arrived = 0, taken = 0;
    bool ended = false;
    Bytes bytes;
};

struct Reader : Clocked {
    std::array<Stream, kSessions> streams;
    RingWords words{kLatency};
    // The served session's end of data in the previous cycles; it is looked at every other cycle.
    std::deque<std::pair<uint32_t, bool>> ends;
    uint8_t current = 0, next = 0;
    bool any = false, valid = false;
    unsigned reads_ahead = 0;

    Reader() {
        auto &dut = *this;
        dut->idle = 1;
        dut->serves = dut->start = dut->drop = dut->drop_next = dut->next_any = dut->next_valid = dut->pause = dut->rx_may = 0;
        dut->word_valid = 0;
        reset();
        for (auto &stream : streams) fresh(stream);
    }

    void fresh(Stream &stream) {
        stream = Stream{static_cast<uint32_t>(random.next()) & kPosition, 0, 0, false, random.bytes(kLength)};
    }

    uint64_t word(uint64_t address) {
        const Stream &stream = streams[address >> 18];
        reads_ahead += (address >> 18) != current;
        uint64_t value = random.next();
        for (unsigned i = 0; i < 8; i++) {
            const uint32_t at = static_cast<uint32_t>((address * 8 + i - stream.from) & ((1u << 21) - 1));
            if (at < stream.arrived)
                value = (value & ~(0xffull << (8 * i))) | static_cast<uint64_t>(stream.bytes[at]) << (8 * i);
        }
        return value;
    }

    void arrive(unsigned most) {
        for (auto &stream : streams)
            if (!stream.ended && random.percent(10)) {
                stream.arrived = std::min(kLength, stream.arrived + random.below(most));
                stream.ended = random.percent(2);  // a FIN after the data
            }
    }

    // One cycle; returns the number of consumed bytes, at most `most` of those that show.
    unsigned step(unsigned most) {
        auto &dut = *this;
        Stream &now = streams[current];
        const Stream &then = streams[next];
        dut->session = current;
        dut->at = (now.from + now.taken) & kPosition;
        dut->next_any = any;
        dut->next_valid = valid;
        dut->next = next;
        dut->next_resume = (then.from + then.taken) & kPosition;
        dut->onward = dut->lane;
        settle();
        const Stream &looked = streams[dut->rcv_of];
        // A FIN takes a sequence number.
        dut->rcv_next = (looked.from + looked.arrived + looked.ended) & kPosition;
        dut->rcv_ended = looked.ended;
        settle();
        unsigned taken = 0;
        if (dut->serves && !dut->start) {
            const uint32_t to = (dut->arrived_to - now.from) & kPosition;
            check(std::find(ends.begin(), ends.end(), std::pair<uint32_t, bool>{to, dut->arrived_all}) != ends.end(),
                  "an end of data that the session does not have");
            check(now.taken + dut->count <= now.arrived, "bytes that have not arrived");
            for (unsigned i = 0; i < dut->count; i++)
                check(static_cast<uint8_t>(dut->bytes[i / 4] >> (8 * (i % 4))) == now.bytes[now.taken + i],
                      "byte " + std::to_string(now.taken + i) + " is wrong");
            if (dut->drained) check(now.taken + dut->count == to, "drained too early");
            taken = std::min<unsigned>(most, dut->count);
            dut->onward = static_cast<uint8_t>(dut->lane + taken);
            settle();
            now.taken += taken;
        }
        ends.emplace_back(now.arrived, now.ended);
        if (ends.size() > 2) ends.pop_front();
        if (dut->rx_read) words.read(word(dut->rx_address), dut->rx_note, random);
        rise();
        const RingWords::Word came = words.next();
        dut->word_valid = came.valid, dut->word_note = came.note, dut->word_data = came.data;
        return taken;
    }

    // The engine's cycles before it reads: nobody is served, the session is loaded, reading starts.
    void serve(uint8_t session, unsigned idle) {
        auto &dut = *this;
        dut->serves = 0, dut->idle = 1;
        while (idle--) step(0);
        dut->idle = 0;
        current = session;
        ends.clear();
        step(0);
        dut->serves = 1, dut->start = 1;
        step(0);
        dut->start = 0;
    }
};

}  // namespace

TEST(served_sessions_show_their_own_bytes) {
    Reader dut;
    unsigned shown = 0;
    for (int run = 0; run < 4000; run++) {
        // A session that was opened again meanwhile, under the same number: its prefetched bytes are not valid.
        const auto opened = static_cast<uint8_t>(dut.random.below(kSessions));
        if (opened != dut.current && (dut.streams[opened].ended || dut.streams[opened].arrived > kLength / 2)) {
            Stream &stream = dut.streams[opened];
            if (dut.random.percent(50)) dut.next = opened, dut.any = dut.valid = true;
            dut->drop_session = opened;
            dut->drop_next = 1;
            dut.step(0);
            const uint32_t place = stream.from + stream.taken;
            dut.fresh(stream);
            if (dut.random.percent(50)) stream.from = place & kPosition;  // even at the same place
            dut->drop = 1;
            dut.step(0);
            dut->drop = dut->drop_next = 0;
        }
        const unsigned may = 30 + dut.random.below(71), pause = dut.random.percent(20) ? 50 : 0;
        // The picker's choice may change until it is served, and another one may be served.
        dut.any = dut.random.percent(80);
        dut.valid = dut.any && dut.random.percent(80);
        dut.next = static_cast<uint8_t>(dut.random.below(kSessions));
        dut.serve(dut.random.percent(70) && dut.valid ? dut.next : static_cast<uint8_t>(dut.random.below(kSessions)),
                  1 + dut.random.below(3));
        for (unsigned n = dut.random.below(60); n; n--) {
            if (dut.random.percent(10)) dut.next = static_cast<uint8_t>(dut.random.below(kSessions));
            dut->rx_may = dut.random.percent(may);
            dut->pause = dut.random.percent(pause);
            dut.arrive(60);
            shown += dut.step(dut.random.below(17));
        }
        dut->pause = 0;
        if (dut.streams[dut.current].taken == kLength) {
            const uint8_t done = dut.current;
            dut.any = dut.valid = false;
            dut->serves = 0, dut->idle = 1;
            dut.current = static_cast<uint8_t>((done + 1) % kSessions);
            dut->drop = dut->drop_next = 1, dut->drop_session = done;
            dut.step(0);
            dut->drop = dut->drop_next = 0;
            dut.fresh(dut.streams[done]);
        }
    }
    check(shown > 50000 && dut.reads_ahead > 1000, "too little was served or prefetched");
}

TEST(the_next_sessions_bytes_are_there_at_once) {
    Reader dut;
    dut->rx_may = 1;
    dut.streams[3].arrived = dut.streams[9].arrived = kLength;
    dut.serve(3, 1);
    dut.any = dut.valid = true, dut.next = 9;
    for (int i = 0; i < 80; i++) dut.step(8);
    check(dut.streams[3].taken == kLength, "the served session waits for the prefetching");
    dut.any = dut.valid = false;
    dut.serve(9, 1);
    dut.step(0);
    dut.step(0);
    check(dut.step(16) > 8, "the next session's bytes are not there");
}

BENCH_MAIN()
