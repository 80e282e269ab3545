// Calls in all regions at once, beside the engine's own reading and writing: each region gets the body of the session
// that was granted to it, each reply is in its session's ring with the request's id, and nothing else is written.
#include <array>
#include <deque>
#include <map>

#include "clocked.hpp"
#include "ring_words.hpp"

using namespace bench;

namespace {

constexpr unsigned kRegions = 4, kSessions = 16, kLatency = 4;
constexpr uint32_t kRing = 1u << 21, kPositions = 1u << 23;

// A session's request, and what has become of it.
struct Request {
    enum { Free, Naming, Waiting, Running } state = Free;
    Bytes body;
    std::string id;
    uint32_t body_at = 0, answer_at = 0;
    bool close = false, keep_alive = false;
};

// A call in a region: the body that it got, and the answer that it gives once it has all of it.
struct Region {
    int session = -1;
    Bytes got, answer;
    size_t given = 0;
    bool body_over = false, offered = false;
};

struct Calls : Clocked {
    std::array<Request, kSessions> requests;
    std::array<Region, kRegions> regions;
    std::map<uint64_t, uint8_t> replies, chunks;  // written bytes, by address in all rings
    RingWords words{kLatency};
    unsigned may = 70, done = 0, side_by_side = 0;
    // The engine's own work: which session is served, and what is written there.
    unsigned served = 0;
    Bytes own;
    size_t own_given = 0;
    uint32_t own_from = 0;
    bool own_chunk = false, own_reads = false, own_read_next = false, begins = true;
    enum { None, Begin, Beats, Rest, Settle } own_state = None;

    Calls() {
        auto &dut = *this;
        dut->called = dut->grant = dut->take = dut->own_rx_wants = dut->own_rx_read = dut->own_turn = 0;
        dut->put = dut->flush = dut->put_start = dut->id_write = dut->id_read = dut->next_valid = 0;
        dut->s_ready = dut->m_valid = dut->rx_word_valid = 0;
        reset();
    }

    Bytes answer_to(const Request &request, unsigned session) {
        Bytes answer(request.body.rbegin(), request.body.rend());
        answer.push_back(static_cast<uint8_t>(session));
        return answer;
    }

    uint64_t word(uint64_t address) {
        const unsigned session = static_cast<unsigned>(address >> 18);
        const Request &request = requests[session];
        uint64_t value = random.next();
        for (unsigned i = 0; i < 8; i++) {
            const uint32_t at = static_cast<uint32_t>((address * 8 + i - request.body_at) & (kRing - 1));
            if (at < request.body.size())
                value = (value & ~(0xffull << (8 * i))) | static_cast<uint64_t>(request.body[at]) << (8 * i);
        }
        return value;
    }

    // The engine begins something for a session without a call: a request's id and its call, or a text of its own.
    void engine() {
        auto &dut = *this;
        dut->called = dut->id_write = dut->put = dut->flush = dut->put_start = dut->own_turn = 0;
        Request &request = requests[served];
        if (request.state == Request::Naming) {
            if (naming_ < request.id.size()) {
                dut->id_write = 1;
                dut->id_at = static_cast<uint8_t>(naming_);
                dut->id_byte = static_cast<uint8_t>(request.id[naming_++]);
            } else {
                dut->called = 1;
                dut->body_at = request.body_at;
                dut->body_bytes = static_cast<uint32_t>(request.body.size());
                dut->answer_at = request.answer_at;
                dut->room = kRing / 2;
                dut->id_bytes = static_cast<uint8_t>(request.id.size());
                dut->close = request.close;
                dut->keep_alive = request.keep_alive;
                request.state = Request::Waiting;
            }
        } else if (own_state != None) {
            own_work();
        } else if (begins && random.percent(40)) {
            served = random.below(kSessions);
            begin();
        }
    }

    void begin() {
        Request &request = requests[served];
        if (request.state != Request::Free) return;
        if (random.percent(60)) {
            request.state = Request::Naming;
            naming_ = 0;
            request.body = random.bytes(random.below(random.percent(20) ? 1000 : 60));
            request.id.assign(random.percent(50) ? 0 : 1 + random.below(40), ' ');
            for (char &letter : request.id) letter = static_cast<char>('a' + random.below(26));
            request.body_at = static_cast<uint32_t>(random.next()) % kPositions;
            request.answer_at = static_cast<uint32_t>(random.next()) % kPositions;
            request.close = random.percent(30);
            request.keep_alive = random.percent(30);
        } else {
            own = random.bytes(1 + random.below(60));
            own_given = 0;
            own_from = static_cast<uint32_t>(random.next()) % kPositions;
            own_chunk = random.percent(30);
            own_state = Begin;
        }
    }

    void own_work() {
        auto &dut = *this;
        dut->own_turn = 1;
        dut->put_chunk = own_chunk;
        if (own_state == Begin) {
            dut->put_start = 1;
            dut->put_from = own_from;
            own_state = Beats;
        } else if (own_state == Beats) {
            if (random.percent(30)) return;
            const size_t count = std::min<size_t>(1 + random.below(8), own.size() - own_given);
            dut->put = 1;
            dut->put_length = static_cast<uint8_t>(count);
            dut->put_data = random.next();
            for (size_t i = 0; i < count; i++)
                dut->put_data = (dut->put_data & ~(0xffull << (8 * i))) | static_cast<uint64_t>(own[own_given + i]) << (8 * i);
            own_given += count;
            if (own_given == own.size()) own_state = Rest, settling_ = 3;
        } else if (own_state == Rest) {
            if (settling_-- == 3) dut->flush = 1;
            if (settling_ == 0) own_state = Settle;
        } else {
            check(dut->position == (own_from + own.size()) % kPositions, "the engine's own text ends elsewhere");
            auto &memory = own_chunk ? chunks : replies;
            for (uint32_t k = 0; k < own.size(); k++) {
                const auto found = memory.find(static_cast<uint64_t>(served) * kRing + (own_from + k) % kRing);
                check(found != memory.end() && found->second == own[k], "byte " + std::to_string(k) + " of the engine's own text");
                memory.erase(found);
            }
            own_state = None;
        }
    }

    // The function engine: grants waiting requests, predicts the next one, takes complete calls.
    void functions() {
        auto &dut = *this;
        dut->grant = dut->take = 0;
        std::vector<unsigned> waiting;
        for (unsigned s = 0; s < kSessions; s++)
            if (requests[s].state == Request::Waiting && !(dut->called && s == served)) waiting.push_back(s);
        dut->next_valid = 0;
        for (unsigned i = 0; i < kRegions; i++)
            if (!waiting.empty() && random.percent(50)) {
                dut->next_valid |= static_cast<uint8_t>(1u << i);
                dut->next_tag[i] = static_cast<uint8_t>(waiting.front());
            }
        const unsigned at = random.below(kRegions);
        if (regions[at].session < 0 && !waiting.empty() && random.percent(50)) {
            const unsigned session = waiting[random.percent(70) ? 0 : random.below(static_cast<uint32_t>(waiting.size()))];
            dut->grant = 1;
            dut->grant_region = static_cast<uint8_t>(at);
            dut->grant_tag = static_cast<uint8_t>(session);
            requests[session].state = Request::Running;
            regions[at] = Region{static_cast<int>(session), {}, answer_to(requests[session], session), 0, false, false};
        }
        dut->finish_region = static_cast<uint8_t>(random.below(kRegions));
    }

    void offer() {
        auto &dut = *this;
        dut->m_valid = dut->m_last = dut->s_ready = 0;
        for (unsigned i = 0; i < kRegions; i++) {
            Region &region = regions[i];
            if (random.percent(may)) dut->s_ready |= static_cast<uint8_t>(1u << i);
            const size_t count = std::min<size_t>(8, region.answer.size() - region.given);
            if (region.session >= 0 && region.body_over && count && random.percent(may)) region.offered = true;
            dut->m_data[i] = random.next();
            if (!region.offered) continue;
            dut->m_valid |= static_cast<uint8_t>(1u << i);
            for (size_t k = 0; k < count; k++)
                dut->m_data[i] = (dut->m_data[i] & ~(0xffull << (8 * k))) | static_cast<uint64_t>(region.answer[region.given + k]) << (8 * k);
            dut->m_keep[i] = static_cast<uint8_t>((1u << count) - 1);
            if (region.given + count == region.answer.size()) dut->m_last |= static_cast<uint8_t>(1u << i);
        }
    }

    void streams() {
        auto &dut = *this;
        unsigned busy = 0;
        for (unsigned i = 0; i < kRegions; i++) {
            Region &region = regions[i];
            busy += region.session >= 0;
            if (dut->s_valid >> i & dut->s_ready >> i & 1) {
                check(region.session >= 0 && !region.body_over, "a beat for a region without a call");
                for (unsigned k = 0; k < 8; k++)
                    if (dut->s_keep[i] >> k & 1) region.got.push_back(static_cast<uint8_t>(dut->s_data[i] >> (8 * k)));
                region.body_over = dut->s_last >> i & 1;
                if (region.body_over) expect(region.got, requests[static_cast<size_t>(region.session)].body, "the body");
            }
            if (region.offered && dut->m_ready >> i & 1) {
                region.offered = false;
                region.given = std::min(region.given + 8, region.answer.size());
            }
        }
        side_by_side += busy > 2;
    }

    // A complete call: its reply is in the ring, word for word.
    void finish() {
        auto &dut = *this;
        Region &region = regions[dut->finish_region];
        if (!dut->complete || !random.percent(50)) return;
        check(region.session >= 0 && region.given == region.answer.size() && !dut->over, "complete before its answer");
        dut->take = 1;
        settle();
        const Request &request = requests[static_cast<size_t>(region.session)];
        char head[200];
        const char *ending = request.close ? "\r\nConnection: close" : request.keep_alive ? "\r\nConnection: keep-alive" : "";
        std::snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %8zu%s%s%s\r\n\r\n", region.answer.size(),
                      request.id.empty() ? "" : "\r\nX-Request-Id: ", request.id.c_str(), ending);
        Bytes want = text(head);
        want.insert(want.end(), region.answer.begin(), region.answer.end());
        check(dut->answer_to == (request.answer_at + want.size()) % kPositions, "the reply ends elsewhere");
        due_.push_back({cycles + 3, static_cast<uint64_t>(region.session), request.answer_at, want});
        region.session = -1;
        done++;
    }

    void step() {
        auto &dut = *this;
        engine();
        dut->session = static_cast<uint8_t>(served);
        functions();
        offer();
        dut->own_rx_wants = random.percent(30);
        dut->own_rx_read = own_read_next;
        dut->own_rx_address = static_cast<uint32_t>(random.next()) & ((1u << 22) - 1);
        dut->own_rx_note = random.next() & 15;
        dut->rx_ready = random.percent(90);
        dut->tx_ready = random.percent(90);
        settle();
        own_read_next = dut->own_rx_wants && dut->own_rx_may;
        finish();
        streams();
        if (dut->tx_write_valid || dut->fill_valid)
            for (unsigned i = 0; i < 8; i++)
                if (dut->write_keep >> i & 1)
                    (dut->fill_valid ? chunks : replies)[dut->write_address * 8ull + i] = static_cast<uint8_t>(dut->write_data >> (8 * i));
        if (own_read_next) own_reads = true;
        if (dut->own_rx_read) check(dut->rx_read_valid && dut->rx_read_address == dut->own_rx_address, "the engine's own read");
        if (dut->rx_read_valid) {
            words.read(word(dut->rx_read_address), 0, random);
            notes_.push_back(dut->rx_read_note);
        }
        rise();
        arrive();
        while (!due_.empty() && due_.front().cycle <= cycles) settled();
    }

    // The word of the next cycle, if there is one.
    void arrive() {
        auto &dut = *this;
        const RingWords::Word came = words.next();
        dut->rx_word_valid = came.valid, dut->rx_word_data = came.data;
        if (came.valid) dut->rx_word_note = notes_.front(), notes_.pop_front();
    }

    // The writes that were on their way when the call was taken have arrived.
    void settled() {
        const Due due = due_.front();
        due_.pop_front();
        for (uint32_t k = 0; k < due.want.size(); k++) {
            const auto found = replies.find(due.session * kRing + (due.at + k) % kRing);
            check(found != replies.end() && found->second == due.want[k], "byte " + std::to_string(k) + " of a reply");
            replies.erase(found);
        }
        requests[due.session].state = Request::Free;
    }

private:
    struct Due {
        uint64_t cycle, session;
        uint32_t at;
        Bytes want;
    };
    std::deque<Due> due_;
    std::deque<uint16_t> notes_;  // of the reads, which come back in their order
    size_t naming_ = 0;
    int settling_ = 0;
};

}  // namespace

TEST(calls_of_all_regions_get_their_own_bytes) {
    Calls dut;
    for (int i = 0; i < 60000; i++) {
        if (i % 2000 == 0) dut.may = 20 + dut.random.below(81);
        dut.step();
    }
    dut.begins = false;
    for (int i = 0; i < 20000; i++) dut.step();
    for (const auto &request : dut.requests) check(request.state == Request::Free, "a call does not end");
    check(dut.replies.empty() && dut.chunks.empty(), "other bytes are written");
    check(dut.done > 500 && dut.side_by_side > 10000 && dut.own_reads, "too few calls: " + std::to_string(dut.done));
}

BENCH_MAIN()
