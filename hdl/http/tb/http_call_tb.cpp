// Calls of any size, at any position of their rings, with ports that are granted at any time and a
// region that accepts and sends at any time: the reply is in its ring, the head's length is right,
// and no other data is changed.
#include <map>

#include "clocked.hpp"
#include "ring_words.hpp"

using namespace bench;

namespace {

constexpr int kLatency = 4;
constexpr uint32_t kRing = 1u << 21, kPositions = 1u << 23;
enum Ending { End, Close, Keep };  // as in http_pkg

const char *const kEnds[] = {"\r\n\r\n", "\r\nConnection: close\r\n\r\n", "\r\nConnection: keep-alive\r\n\r\n"};

struct Call {
    Bytes body, answer;
    uint32_t body_at, answer_at, room = 1u << 20;
    uint8_t session;
    Ending ending;
    std::string id;
};

struct Lane : Clocked {
    unsigned may = 70, region = 70, jitter = 0;
    uint64_t first_beat = 0, to_complete = 0;  // cycles from the start; and from the reply's last
                                               // beat

    Lane() {
        auto &dut = *this;
        dut->start = dut->taken = dut->rx_may = dut->tx_may = dut->k_ready = dut->r_valid = dut->ahead = 0;
        dut->rx_word_valid = 0;
        reset();
    }

    // Written words, by address in all rings.
    std::map<uint64_t, uint8_t> run(const Call &c) {
        auto &dut = *this;
        std::map<uint64_t, uint8_t> memory;
        RingWords words(kLatency);
        words.jitter = jitter;
        Bytes got;
        size_t given = 0;
        bool body_over = false, answer_over = false, offered = false, read_next = false, write_next = false, write_then = false;
        uint64_t started = cycles, last_beat = 0;
        dut->start = 1;
        dut->session = c.session;
        dut->body_at = c.body_at;
        dut->body_bytes = static_cast<uint32_t>(c.body.size());
        dut->answer_at = c.answer_at;
        dut->room = c.room;
        dut->ending = c.ending;
        dut->id_bytes = static_cast<uint8_t>(c.id.size());
        first_beat = 0;
        for (;;) {
            check(cycles - started < 100000, "hangs");
            // The reply begins after the body has begun, and ends after its end.
            size_t count = std::min<size_t>(8, c.answer.size() - given);
            bool last = given + count == c.answer.size();
            if (!offered && !answer_over && !got.empty() + c.body.empty() && (!last || body_over) && random.percent(region)) offered = true;
            dut->r_valid = offered;
            dut->r_data = random.next();
            if (offered) {
                dut->r_data = 0;
                for (size_t i = 0; i < count; i++) dut->r_data |= static_cast<uint64_t>(c.answer[given + i]) << (8 * i);
                dut->r_keep = static_cast<uint8_t>((1u << count) - 1);
                dut->r_last = last;
            }
            dut->k_ready = random.percent(region);
            dut->rx_may = dut->tx_may = 0;
            settle();
            bool reads = dut->rx_wants && random.percent(may), writes = dut->tx_wants && random.percent(may);
            dut->rx_may = reads;
            dut->tx_may = writes;
            settle();
            if (dut->complete && !to_complete_) to_complete_ = true, to_complete = cycles - last_beat;
            dut->taken = dut->complete && random.percent(50);
            settle();
            check(!dut->rx_read || read_next, "reads although it may not");
            check(!dut->tx_write || write_then, "writes although it may not");
            read_next = reads;
            write_then = write_next;
            write_next = writes;
            if (dut->tx_write)
                for (unsigned i = 0; i < 8; i++)
                    if (dut->tx_write_keep >> i & 1) memory[dut->tx_write_address * 8ull + i] = static_cast<uint8_t>(dut->tx_write_data >> (8 * i));
            if (dut->k_valid && !first_beat) first_beat = cycles - started;
            if (dut->k_valid && dut->k_ready) {
                check(!body_over, "a beat behind the last");
                for (unsigned i = 0; i < 8; i++)
                    if (dut->k_keep >> i & 1) got.push_back(static_cast<uint8_t>(dut->k_data >> (8 * i)));
                body_over = dut->k_last;
            }
            if (offered && dut->r_ready) {
                offered = false;
                given += count;
                answer_over = last;
                if (last) last_beat = cycles;
            }
            bool over = dut->taken;
            if (dut->rx_read) {
                uint64_t word = 0;
                check(dut->rx_read_address >> 18 == c.session, "another session's ring");
                for (unsigned i = 0; i < 8; i++) {
                    uint32_t at = static_cast<uint32_t>((dut->rx_read_address * 8 + i - c.body_at) & (kRing - 1));
                    word |= static_cast<uint64_t>(at < c.body.size() ? c.body[at] : random.next() & 255) << (8 * i);
                }
                words.read(word, dut->rx_read_note, random);
            }
            // The id's memory: eight bytes of it, a cycle later.
            uint64_t id = random.next();
            for (unsigned i = 0; i < 8 && dut->id_word * 8u + i < c.id.size(); i++)
                id = (id & ~(0xffull << (8 * i))) | static_cast<uint64_t>(static_cast<uint8_t>(c.id[dut->id_word * 8u + i])) << (8 * i);
            check(dut->id_session == c.session || dut->start, "another session's id");
            rise();
            dut->id_data = id;
            const RingWords::Word came = words.next();
            dut->rx_word_valid = came.valid, dut->rx_word_note = came.note;
            dut->rx_word_data = came.data;
            dut->start = 0;
            if (over) break;
        }
        dut->taken = 0;
        dut->rx_may = dut->tx_may = 0;
        to_complete_ = false;
        for (int behind = 0; behind < 2; behind++) {
            settle();
            if (dut->tx_write)
                for (unsigned i = 0; i < 8; i++)
                    if (dut->tx_write_keep >> i & 1) memory[dut->tx_write_address * 8ull + i] = static_cast<uint8_t>(dut->tx_write_data >> (8 * i));
            rise();
        }
        check(body_over && answer_over, "ends before body and answer do");
        expect(got, c.body, "the body");
        return memory;
    }

    Call any() {
        Call c;
        c.body = random.bytes(random.below(random.percent(20) ? 3000 : 100));
        c.answer = random.bytes(random.below(random.percent(20) ? 3000 : 100));
        c.body_at = static_cast<uint32_t>(random.next()) % kPositions;
        c.answer_at = static_cast<uint32_t>(random.next()) % kPositions;
        c.session = static_cast<uint8_t>(random.below(16));
        c.ending = static_cast<Ending>(random.below(3));
        c.id.assign(random.percent(50) ? 0 : 1 + random.below(40), 'a');
        for (char &letter : c.id) letter = static_cast<char>('a' + random.below(26));
        return c;
    }

private:
    bool to_complete_ = false;
};

}  // namespace

TEST(the_answer_is_in_its_ring) {
    Lane lane;
    for (int i = 0; i < 400; i++) {
        lane.may = 20 + lane.random.below(81);
        lane.region = 20 + lane.random.below(81);
        lane.jitter = lane.random.percent(50) ? 0 : lane.random.below(60);
        Call c = lane.any();
        auto memory = lane.run(c);
        check(!lane->over, "has no room");
        char head[200];
        std::snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %8zu%s%s%s", c.answer.size(),
                      c.id.empty() ? "" : "\r\nX-Request-Id: ", c.id.c_str(), kEnds[c.ending]);
        Bytes want = text(head);
        want.insert(want.end(), c.answer.begin(), c.answer.end());
        check(memory.size() == want.size(), "other bytes than the answer's are written");
        Bytes got;
        for (uint32_t k = 0; k < want.size(); k++) got.push_back(memory[static_cast<uint64_t>(c.session) * kRing + (c.answer_at + k) % kRing]);
        expect(got, want, "the answer");
        check(lane->answer_to == (c.answer_at + want.size()) % kPositions, "ends elsewhere");
    }
}

TEST(an_answer_without_room_ends_too) {
    Lane lane;
    for (int i = 0; i < 50; i++) {
        Call c = lane.any();
        c.answer = lane.random.bytes(1000 + lane.random.below(1000));
        c.room = lane.random.below(1000);
        auto memory = lane.run(c);
        check(lane->over, "the excess is not reported");
        check(memory.size() <= std::max(c.room, 136u), "writes " + std::to_string(memory.size()) + " bytes into " + std::to_string(c.room));
    }
}

TEST(pace) {
    Lane lane;
    lane.may = lane.region = 100;
    Call c = lane.any();
    c.id.clear();
    c.body = c.answer = lane.random.bytes(64);
    c.body_at &= ~7u;
    lane.run(c);
    std::printf("    64 bytes: the first beat after %llu cycles, complete %llu after the answer's last\n",
                (unsigned long long)lane.first_beat, (unsigned long long)lane.to_complete);
    check(lane.first_beat <= kLatency + 5 && lane.to_complete <= 4, "is slower");
}

BENCH_MAIN()
