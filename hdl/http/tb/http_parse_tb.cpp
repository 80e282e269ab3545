// A request is understood the same whatever number of bytes is there at each step.
#include "Vdut.h"
#include "bench.hpp"

using namespace bench;

namespace {

constexpr char kKey[] = "an-API-key";

// The purely combinational module has no clock; the request's state goes from `to` to `from`.
struct Parsed {
    std::vector<uint32_t> state;
    char id[64] = {};  // the memory that a request's id is put into,
    uint32_t values[4] = {};  // and that of its scalars
    bool broken = false, too_big = false, too_long = false;
    uint32_t length = 0;
    size_t used = 0;
};

Parsed parse(Random &random, const Bytes &text, size_t most) {
    Vdut dut;
    Parsed p;
    const size_t words = sizeof(dut.from) / sizeof(uint32_t);
    p.state.assign(words, 0);
    size_t there = 0;
    for (int still = 0; still < 3;) {
        size_t left = there - p.used, show = std::min<size_t>(16, left);
        for (size_t w = 0; w < words; w++) dut.from[w] = p.state[w];
        for (int w = 0; w < 4; w++) dut.bytes[w] = static_cast<uint32_t>(random.next());  // behind those there are, anything
        for (size_t i = 0; i < show; i++) dut.bytes[i / 4] &= ~(0xffu << (8 * (i % 4)));
        for (size_t i = 0; i < show; i++) dut.bytes[i / 4] |= static_cast<uint32_t>(text[p.used + i]) << (8 * (i % 4));
        dut.count = static_cast<uint8_t>(show);
        dut.lane = static_cast<uint8_t>(random.below(8));
        for (int w = 0; w < 3; w++) dut.around[w] = static_cast<uint32_t>(random.next());
        for (int w = 0; w < 8; w++) dut.api_key[w] = 0;
        for (size_t i = 0; kKey[i]; i++) dut.api_key[i / 4] |= static_cast<uint32_t>(kKey[i]) << (8 * (i % 4));
        for (int k = 0; k < 4; k++) dut.values[k] = p.values[k];
        dut.scalars[0] = 'h' | 'e' << 8 | 'x' << 16;  // the function's only scalar
        dut.eval();
        p.too_big = dut.too_big;
        if (dut.too_big) return p;
        p.broken = dut.moved && dut.broken;
        if (dut.broken) {
            p.broken = true;
            return p;
        }
        check(dut.take <= show, "more taken than there is");
        if (dut.id_put) p.id[p.state[0] & 63] = static_cast<char>(text[p.used]);
        if (dut.moved) {
            for (size_t w = 0; w < words; w++) p.state[w] = dut.to[w];
            for (int k = 0; k < 4; k++) p.values[k] = dut.values_now[k];
            p.used += dut.take;
            p.length = dut.length;
            p.too_long = dut.too_long;
            still = 0;
        } else if (there < text.size()) {
            there = std::min(text.size(), there + 1 + random.below(static_cast<uint32_t>(most)));
        } else {
            still++;
        }
    }
    return p;
}

const char *const kGood[] = {
    "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /function/uppercase HTTP/1.1\r\nHost: board.example:80\r\nContent-Length: 123456\r\nConnection: keep-alive, close\r\n\r\n",
    "\r\nPOST /function/checksum?hex=42 HTTP/1.0\nhost:x\nCONTENT-length:\t7 \nexpect: 100-Continue\n\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\nX-Very-Long-Header-Name-Indeed: v a l u e\r\n\r\n",
    "HEAD http://somewhere.example/metrics?x=y HTTP/1.1\r\nHost:\r\nTransfer-Encoding: chunked\r\n\r\n",
    "POST /function/nonexistentnonexistentnonexistent HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /function/echo HTTP/1.1\r\nHost: a\r\nX-API-Key: an-API-key\r\nX-Request-Id: 0123-4567\r\nContent-Length: 64\r\n\r\n",
};

// request_t ends with authorized, matched, id_bytes.
bool authorized(const Parsed &p) { return p.state[0] >> 12 & 1; }
std::string id(const Parsed &p) { return std::string(p.id, p.state[0] & 63); }

}  // namespace

TEST(any_segmentation) {
    Random random(seed());
    for (const char *s : kGood) {
        Bytes text = bench::text(s);
        Parsed whole = parse(random, text, 10000);
        check(!whole.broken && whole.used == text.size(), std::string("not understood: ") + s);
        for (int i = 0; i < 200; i++) {
            Parsed pieces = parse(random, text, 1 + static_cast<size_t>(i) % 20);
            check(std::equal(pieces.values, pieces.values + 4, whole.values), std::string("other scalars in pieces: ") + s);
            check(!pieces.broken && pieces.state == whole.state, std::string("understood in another way in pieces: ") + s);
        }
    }
}

TEST(scalars) {
    Random random(seed());
    for (unsigned most : {1u, 2u, 7u, 1000u})
        for (uint32_t value : {0u, 7u, 42u, 4294967295u}) {
            const std::string text = "POST /function/checksum?hex=" + std::to_string(value) + " HTTP/1.1\r\nHost: a\r\n\r\n";
            Parsed p = parse(random, bench::text(text.c_str()), most);
            check(!p.broken && p.values[0] == value, "not understood: " + text);
        }
}

// A length is what it says, or too long; however many digits it has.
TEST(lengths) {
    Random random(seed());
    std::vector<uint64_t> values = {0, 1, 9, 10, 99, 1048576, 2097151, 2097152, 10485760, 12582912, 12582913, 16777215, 16777216, 20971520,
                                    167772160, 167772161, 1677721600, 16777216000, 99999999999, 1ull << 32, (1ull << 32) + 5, ~0ull};
    for (int i = 0; i < 300; i++) values.push_back(random.next() >> random.below(64));
    for (uint64_t value : values)
        for (unsigned most : {1u, 2u, 1000u}) {
            const std::string zeros(random.below(3), '0');
            const std::string text = "POST /function/echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + zeros + std::to_string(value) + "\r\n\r\n";
            Parsed p = parse(random, bench::text(text.c_str()), most);
            check(!p.broken && p.too_long == (value >= 1 << 24), (p.too_long ? "too long: " : "not too long: ") + text);
            check(p.too_long || p.length == value, "another length: " + text);
        }
}

TEST(api_keys) {
    Random random(seed());
    struct { const char *fields; bool right; } cases[] = {
        {"X-API-Key: an-API-key\r\n", true},
        {"x-api-key:an-API-key \t\r\n", true},
        {"X-API-KEY: \t an-API-key\n", true},
        {"X-API-Key: an-API-ke\r\n", false},
        {"X-API-Key: an-API-keyy\r\n", false},
        {"X-API-Key: an-api-key\r\n", false},
        {"X-API-Key: an-API -key\r\n", false},
        {"X-API-Key: an-API-key an-API-key\r\n", false},
        {"X-API-Key: an-API-key\r\nX-API-Key: other\r\n", false},
        {"X-API-Key:\r\n", false},
        {"X-API-Key: an-API-keyan-API-keyan-API-keyan-API-keyan-API-keyan-API-keyan-API-key\r\n", false},
        {"Authorization: an-API-key\r\n", false},
        {"", false},
    };
    for (auto &c : cases)
        for (size_t most : {1u, 5u, 1000u}) {
            Parsed p = parse(random, bench::text((std::string("GET /healthz HTTP/1.1\r\n") + c.fields + "Host: a\r\n\r\n").c_str()), most);
            check(!p.broken && authorized(p) == c.right, std::string(c.right ? "refused: " : "let in: ") + c.fields);
        }
}

TEST(request_ids) {
    Random random(seed());
    const std::string most(40, 'i'), more(41, 'i');
    struct { std::string value, id; } cases[] = {
        {" 550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"},
        {most, most}, {more, ""}, {"", ""}, {"  ", ""}, {"two words", ""}, {"\xff", ""},
    };
    for (auto &c : cases) {
        Parsed p = parse(random, bench::text(("GET /healthz HTTP/1.1\r\nX-Request-ID:" + c.value + "\r\nHost: a\r\n\r\n").c_str()), 7);
        check(!p.broken && id(p) == c.id, "the id of '" + c.value + "' is '" + id(p) + "'");
    }
}

TEST(nonsense_never_hangs) {
    Random random(seed());
    for (int i = 0; i < 3000; i++) {
        Bytes text = bench::text(kGood[random.below(7)]);
        for (unsigned n = 1 + random.below(4); n; n--) text[random.below(static_cast<uint32_t>(text.size()))] = static_cast<uint8_t>(random.next());
        parse(random, text, 30);
    }
}

TEST(endless_heads_are_too_big) {
    Random random(seed());
    for (const char *s : {"GET /", "GET /healthz HTTP/1.1\r\nA: ", "GET /healthz HTTP/1.1\r\nContent-Length: 0", "POST /function/sobel?width=", "GETGET"}) {
        Bytes text = bench::text(s);
        text.resize(20000, '0');
        Parsed p = parse(random, text, 100);
        check(p.too_big, std::string("goes on for ever: ") + s);
    }
}

BENCH_MAIN()
