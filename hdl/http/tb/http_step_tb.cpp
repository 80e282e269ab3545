// Requests that arrive in any pieces and are read at any pace, with functions that are looked up for any time: each is
// understood as a whole, up to its last byte, and its scalars are the operands of its call.
#include <iterator>

#include "clocked.hpp"
#include "ring_words.hpp"

using namespace bench;

namespace {

constexpr int kLatency = 4;
constexpr uint32_t kRing = 1u << 21, kPositions = 1u << 23;
// As in http_pkg.
enum Method { Get, Head, Post, Options };
enum Route { None, Function, System, Health, Metrics, Functions, Server };

struct Case {
    const char *text;
    Method method;
    Route route;
    const char *name;      // of the function that is looked up
    uint32_t length;
    unsigned keys;         // scalars in the query: a bit each
    uint32_t first, second;  // their values
    bool http10, close, expects, bad;
};

// The functions have two scalars: width and height.
const Case kCases[] = {
    {"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", Get, Health, "", 0, 0, 0, 0, false, false, false, false},
    {"POST /function/sobel?width=640&height=48 HTTP/1.1\r\nHost: a\r\nContent-Length: 123456\r\n\r\n", Post, Function, "sobel", 123456, 3, 640, 48, false, false, false, false},
    {"POST /function/sobel?height=7 HTTP/1.0\r\nConnection: close\r\nContent-Length: 3\r\n\r\n", Post, Function, "sobel", 3, 2, 0, 7, true, true, false, false},
    {"POST /function/%73obe%6c?width=4294967295 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 64\r\n\r\n", Post, Function, "sobel", 64, 1, 4294967295u, 0, false, false, true, false},
    {"POST /function/sobel?depth=1 HTTP/1.1\r\nHost: a\r\n\r\n", Post, Function, "sobel", 0, 0, 0, 0, false, false, false, true},
    {"POST /function/missing?width=1 HTTP/1.1\r\nHost: a\r\n\r\n", Post, None, "missing", 0, 0, 0, 0, false, false, false, false},
    {"POST /function/fifteen-letters HTTP/1.1\r\nHost: a\r\nX-Request-Id: 0123\r\n\r\n", Post, Function, "fifteen-letters", 0, 0, 0, 0, false, false, false, false},
    {"POST /function/fifteen-lett%65rs?width=9 HTTP/1.1\r\nHost: a\r\n\r\n", Post, Function, "fifteen-letters", 0, 1, 9, 0, false, false, false, false},
    {"OPTIONS * HTTP/1.1\r\nHost: a\r\nX-A-Long-Header-Indeed: v a l u e\r\n\r\n", Options, Server, "", 0, 0, 0, 0, false, false, false, false},
    {"HEAD http://somewhere/metrics?x=y HTTP/1.1\r\nHost: a\r\n\r\n", Head, Metrics, "", 0, 0, 0, 0, false, false, false, false},
    {"GET /system/functions HTTP/1.1\r\nHost: a\r\n\r\n", Get, Functions, "", 0, 0, 0, 0, false, false, false, false},
};

uint64_t named(const char *text) {
    uint64_t name = 0;
    for (unsigned i = 0; text[i]; i++) name |= static_cast<uint64_t>(static_cast<uint8_t>(text[i])) << (8 * i);
    return name;
}

struct Parser : Clocked {
    uint32_t from = 0, arrived = 0;
    Bytes text;
    std::string looked_up;  // the name
    RingWords words{kLatency};

    Parser() {
        auto &dut = *this;
        dut->begins = dut->found_valid = dut->find_ready = dut->may = dut->word_valid = 0;
        dut->scalars_low[0] = static_cast<uint32_t>(named("width")), dut->scalars_low[1] = static_cast<uint32_t>(named("width") >> 32);
        dut->scalars_low[2] = static_cast<uint32_t>(named("height")), dut->scalars_low[3] = static_cast<uint32_t>(named("height") >> 32);
        for (int i = 0; i < 4; i++) dut->scalars_high[i] = 0;
        // The classification of bytes begins with anything, and is one-hot from the first cycle on.
        Verilated::assertOn(false);
        reset();
        Verilated::assertOn(true);
    }

    uint64_t word(uint64_t address) {
        uint64_t value = random.next();
        if (address >> 18 != session_) return value;  // of the previous request
        for (unsigned i = 0; i < 8; i++) {
            const uint32_t at = static_cast<uint32_t>((address * 8 + i - from) & (kRing - 1));
            if (at < arrived) value = (value & ~(0xffull << (8 * i))) | static_cast<uint64_t>(text[at]) << (8 * i);
        }
        return value;
    }

    // Until the head is complete, the request malformed, or its bytes used up; false: neither of the first two.
    bool run(const std::string &request, unsigned most, unsigned pace, unsigned lookup) {
        auto &dut = *this;
        text = bench::text(request);
        from = static_cast<uint32_t>(random.next()) % kPositions;
        arrived = 0;
        session_ = random.below(16);
        looked_up.clear();
        int finding = -1, still = 0;
        for (bool first = true; still < 200; first = false) {
            if (random.percent(50)) arrived = std::min<uint32_t>(static_cast<uint32_t>(text.size()), arrived + random.below(most + 1));
            dut->begins = first;
            dut->session = static_cast<uint8_t>(session_);
            dut->from = from;
            dut->up_to = from + arrived;
            dut->arrived_all = arrived == text.size();
            dut->may = random.percent(pace);
            dut->find_ready = finding < 0 && random.percent(70);
            dut->found_valid = finding == 0;
            dut->found = looked_up != "missing";
            dut->found_function = dut->found ? 5 : static_cast<uint8_t>(random.below(64));
            settle();
            if (finding >= 0) finding--;
            if (dut->find_valid) {
                check(finding < 0 && looked_up.empty(), "two names are looked up");
                for (int i = 0; i < 16; i++)
                    if (const char c = static_cast<char>(dut->find_name[i / 4] >> (8 * (i % 4)))) looked_up += c;
                finding = 1 + static_cast<int>(random.below(lookup));
            }
            if (!first && (dut->complete || dut->malformed)) return true;
            still = arrived == text.size() && finding < 0 ? still + 1 : 0;
            edge();
        }
        return false;
    }

    // Settles what is counted or read a cycle late.
    void rest() {
        for (int i = 0; i < 3; i++) {
            edge();
            settle();
        }
    }

    // The clock's edge, with the reads of memory.
    void edge() {
        auto &dut = *this;
        if (dut->read) words.read(word(dut->read_address), dut->read_note, random);
        rise();
        const RingWords::Word came = words.next();
        dut->word_valid = came.valid, dut->word_note = came.note, dut->word_data = came.data;
    }

private:
    unsigned session_ = 0;
};

}  // namespace

TEST(requests_in_any_pieces) {
    Parser dut;
    for (const Case &c : kCases)
        for (int run = 0; run < 150; run++) {
            auto &r = dut.random;
            const unsigned most = 1 + r.below(run % 2 ? 5 : 60);
            // The next request is there already, or not.
            const std::string text = c.text, more = r.percent(50) ? "POST /function/other HTTP/1.1\r\n" : "";
            check(dut.run(text + more, most, 20 + r.below(81), 1 + r.below(30)), "not understood: " + text);
            dut.rest();
            check(dut->complete && !dut->malformed, "refused: " + text);
            check((dut->used - dut.from) % kPositions == text.size(), "another end: " + text);
            check(dut.looked_up == c.name, "the function '" + dut.looked_up + "': " + text);
            check(dut->method == c.method && dut->route == c.route, "another method or route: " + text);
            check(c.route != Function || dut->number == 5, "another function: " + text);
            check(dut->body_length == c.length && !dut->length_over, "another length: " + text);
            check(dut->http10 == c.http10 && dut->close == c.close && dut->expect_100 == c.expects && dut->bad == c.bad, "another state: " + text);
            if (c.route != Function) continue;
            check(dut->keys == c.keys, "other scalars: " + text);
            check(dut->params[0] == c.first && dut->params[1] == c.second && !dut->params[2] && !dut->params[3], "other values: " + text);
        }
}

TEST(malformed_requests) {
    Parser dut;
    for (const char *text : {"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", "GET /healthz HTTP/3.0\r\nHost: a\r\n\r\n",
                             "POST /function/sobel HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", " GET / HTTP/1.1\r\n\r\n"})
        for (int run = 0; run < 50; run++) {
            check(dut.run(text, 1 + dut.random.below(20), 70, 5), std::string("not noticed: ") + text);
            check(dut->malformed, std::string("accepted: ") + text);
        }
}

TEST(parts_of_requests_wait) {
    Parser dut;
    for (int run = 0; run < 300; run++) {
        const std::string whole = kCases[dut.random.below(std::size(kCases))].text, part = whole.substr(0, dut.random.below(static_cast<uint32_t>(whole.size())));
        check(!dut.run(part, 20, 70, 5), "complete before its end: " + part);
        check(dut->drained, "bytes are left: " + part);
    }
}

TEST(long_bodies) {
    Parser dut;
    for (const uint32_t length : {1048576u, 1048577u, 12582912u}) {
        check(dut.run("POST /function/sobel HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n", 60, 70, 5), "not understood");
        dut.rest();
        check(dut->complete && (dut->too_long || dut->length_over) == (length > 1048576), "a body that is too long, or is not");
    }
}

BENCH_MAIN()
