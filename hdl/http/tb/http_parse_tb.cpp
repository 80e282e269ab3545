// A request is parsed the same for any number of visible bytes at each step.
#include <cstring>
#include <iostream>

#include "Vdut.h"
#include "bench.hpp"

using namespace bench;

namespace {

constexpr char kKey[] = "an-API-key";

// The purely combinational module has no clock; the request's state goes from `to` to `from`.
struct Parsed {
    std::vector<uint32_t> state;
    char id[64] = {};  // the memory for a request's id, and for an encoded name of a function,
    uint32_t values[4] = {};  // and that of its scalars
    bool broken = false, other_version = false, too_big = false, too_long = false;
    bool complete = false, expects = false, http10 = false;
    int refusal = 0, method = 0, route = 0, keys = 0;
    std::string name;
    uint32_t length = 0;
    size_t used = 0;
    Bytes body;
    int status() const { return too_big ? 431 : broken ? other_version ? 505 : 400 : complete ? refusal : 0; }
};

constexpr uint32_t kMost = 12 << 20;

// Parses a request, and with `bodies` the data after its head. `most`: bytes that arrive at once.
Parsed parse(Random &random, const Bytes &text, size_t most, bool bodies = false) {
    Vdut dut;
    Parsed p;
    const size_t words = sizeof(dut.from) / sizeof(uint32_t);
    p.state.assign(words, 0);
    size_t there = 0;
    bool at_chunk = false;
    uint32_t chunk = 0;
    auto keep = [&] {
        for (size_t w = 0; w < words; w++) p.state[w] = dut.to[w];
        at_chunk = dut.at_chunk;
        chunk = dut.chunk;
    };
    for (int still = 0; still < 3;) {
        size_t left = there - p.used, show = std::min<size_t>(16, left);
        for (size_t w = 0; w < words; w++) dut.from[w] = p.state[w];
        // Random after the valid bytes.
        for (int w = 0; w < 4; w++) dut.bytes[w] = static_cast<uint32_t>(random.next());
        for (size_t i = 0; i < show; i++) dut.bytes[i / 4] &= ~(0xffu << (8 * (i % 4)));
        for (size_t i = 0; i < show; i++) dut.bytes[i / 4] |= static_cast<uint32_t>(text[p.used + i]) << (8 * (i % 4));
        dut.count = static_cast<uint8_t>(show);
        dut.lane = static_cast<uint8_t>(random.below(8));
        for (int w = 0; w < 3; w++) dut.around[w] = static_cast<uint32_t>(random.next());
        for (int w = 0; w < 8; w++) dut.api_key[w] = 0;
        for (size_t i = 0; kKey[i]; i++) dut.api_key[i / 4] |= static_cast<uint32_t>(kKey[i]) << (8 * (i % 4));
        for (int k = 0; k < 4; k++) dut.values[k] = p.values[k];
        for (int w = 0; w < 4; w++) std::memcpy(&dut.stored[w], p.id + 4 * w, 4);
        dut.scalars[0] = 'h' | 'e' << 8 | 'x' << 16;  // the function's only scalar
        dut.begin_chunks = 0;
        dut.passing = at_chunk ? static_cast<uint8_t>(std::min<size_t>(show, chunk)) : 0;
        dut.eval();
        if (dut.passing) {
            p.body.insert(p.body.end(), text.begin() + static_cast<long>(p.used), text.begin() + static_cast<long>(p.used + dut.passing));
            p.used += dut.passing;
            keep();
            continue;
        }
        p.too_big = dut.too_big;
        if (dut.too_big) return p;
        p.other_version = dut.other_version;
        p.broken = dut.moved && dut.broken;
        if (dut.broken) {
            p.broken = true;
            return p;
        }
        check(dut.take <= show, "more taken than there is");
        if (dut.id_put) p.id[p.state[0] & 63] = static_cast<char>(dut.id_byte);
        if (dut.moved && dut.word_over) {
            p.name.clear();
            for (int i = 0; i < 16; i++)
                if (const char c = static_cast<char>(dut.word[i / 4] >> (8 * (i % 4)))) p.name += c;
        }
        if (dut.moved) {
            keep();
            for (int k = 0; k < 4; k++) p.values[k] = dut.values_now[k];
            p.used += dut.take;
            p.length = dut.length;
            p.too_long = dut.too_long;
            still = 0;
            if (bodies && dut.too_long && !dut.at_body) {  // of chunks: the engine refuses
                p.complete = true;
                p.refusal = 413;
                return p;
            }
            if (bodies && dut.at_body) {
                p.expects = dut.expect_100, p.http10 = dut.http10;
                p.refusal = dut.refusal, p.method = dut.method, p.route = dut.route, p.keys = dut.keys;
                if (dut.refusal || (dut.chunked && dut.together)) {
                    p.complete = true;
                    return p;
                }
                if (dut.chunked) {
                    for (size_t w = 0; w < words; w++) dut.from[w] = p.state[w];
                    dut.begin_chunks = 1;
                    dut.eval();
                    keep();
                } else {
                    check(dut.length <= kMost, "a body that is too long was not refused");
                    if (text.size() - p.used < dut.length) return p;
                    p.body.assign(text.begin() + static_cast<long>(p.used), text.begin() + static_cast<long>(p.used + dut.length));
                    p.used += dut.length;
                    p.complete = true;
                    return p;
                }
            }
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
    "POST /%66unction/che%63ks%75m?hex=7 HTTP/1.1\r\nHost:  [::1]:80 \t\r\nExpect: 100-continue \r\nContent-Length: 0\r\n\r\n",
    "GET http://a%2Db:80?x HTTP/1.1\r\nExpect: 100-continueXYZ\r\nConnection: \tclose ,a\r\nHost: a\r\n\r\n",
    "OPTIONS http://b HTTP/1.0\r\nExpect: \xff\r\n\r\n",
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
            check(pieces.name == whole.name, std::string("another name in pieces: ") + s);
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

// A length is parsed exactly, or too long, with any number of digits.
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

TEST(malformed_requests_never_hang) {
    Random random(seed());
    for (int i = 0; i < 3000; i++) {
        Bytes text = bench::text(kGood[random.below(10)]);
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
        check(p.too_big, std::string("accepts an endless head: ") + s);
    }
}

TEST(encoded_paths) {
    Random random(seed());
    struct { const char *path, *name; int route; } cases[] = {
        {"/function/%65cho", "echo", 1}, {"/%66unction/echo", "echo", 1}, {"/function%2Fecho", "", 0}, {"/function/echo%00", "", 0},
        {"/function/%65%63%68%6f", "echo", 1}, {"/function/fifteen-lett%65rs", "fifteen-letters", 1}, {"/function/sixteen--lett%65rs", "", 0}, {"/function/%2Dfourteen-lett", "-fourteen-lett", 1},
        {"/%68ealthz", "", 3}, {"/healthz%7a", "", 0}, {"/metric%73", "", 4}, {"/system/function%73", "", 5}, {"/%73ystem/functions", "", 5},
        {"/system/function%7", "", 0}, {"/healt%68", "", 0}, {"/%", "", 0}, {"/function/%zz", "", 0}, {"/function/e%cho", "", 0},
        {"http://h/function/%65cho", "echo", 1}, {"http://h/%", "", 0},
    };
    for (auto &c : cases)
        for (const char *query : {"", "?hex=5"})
            for (size_t most : {1u, 3u, 1000u}) {
                const std::string text = std::string("GET ") + c.path + query + " HTTP/1.1\r\nHost: a\r\nX-Request-Id: 7\r\n\r\n";
                Parsed p = parse(random, bench::text(text), most, true);
                check(p.complete && p.status() == 0, "refused: " + text);
                check(p.route == c.route && p.name == c.name, "taken for another path: " + text);
                check(id(p) == "7" && p.keys == (c.route == 1 && *query ? 1 : 0), "state of a path is left: " + text);
            }
}

// Each result follows RFC 9110 and RFC 9112.
TEST(refusals) {
    Random random(seed());
    const std::string host = "Host: b\r\n", post = "POST /function/echo HTTP/1.1\r\n" + host, chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
    struct { int status; std::string text; } cases[] = {
        {0, chunked + "3\r\nabc\r\n0\r\n\r\n"},
        {0, chunked + "3;x=\xff y\r\nabc\r\n0;\r\nA: b\r\n\r\n"},
        {400, chunked + "3 ;x=y\r\nabc\r\n0\r\n\r\n"},
        {400, chunked + "3zz\r\nabc\r\n0\r\n\r\n"},
        {400, chunked + "0x22\r\n\r\nGET /healthz HTTP/1.1\r\nHost: b\r\n\r\n\r\n0\r\n\r\n"},
        {400, chunked + "3,\r\nabc\r\n0\r\n\r\n"},
        {400, chunked + "3 \r\nabc\r\n0\r\n\r\n"},
        {400, chunked + "3 3\r\nabc\r\n0\r\n\r\n"},
        {400, chunked + ";x\r\nabc\r\n0\r\n\r\n"},
        {400, chunked + std::string("3;a\0b\r\nabc\r\n0\r\n\r\n", 20)},
        {400, chunked + "0\r\nno colon\r\n\r\n"},
        {400, chunked + "0\r\n: b\r\n\r\n"},
        {400, chunked + "0\r\nA: b\n\r\n"},
        {0, "POST http://b?/function/uppercase HTTP/1.1\r\n" + host + "\r\n"},
        {0, "GET http://b HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET http:///healthz HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET http://:80/healthz HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET http://u@b/healthz HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET ftp://b/healthz HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET * HTTP/1.1\r\n" + host + "\r\n"},
        {0, "OPTIONS * HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET healthz HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET /health#z HTTP/1.1\r\n" + host + "\r\n"},
        {417, post + "Content-Length: 3\r\nExpect: 100-continueXYZ\r\n\r\n"},
        {417, post + "Content-Length: 3\r\nExpect: 100-continue x\r\n\r\n"},
        {0, "POST /function/echo HTTP/1.0\r\nExpect: something\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\nHost: a b/c?@\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\nHost: a/c\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\nHost: a@b\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\nHost: \xff\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\n" + host + host + "\r\n"},
        {400, "GET /healthz HTTP/1.1\r\n" + host + std::string("X: a\0b\r\n\r\n", 10)},
        {400, "GET /healthz HTTP/1.1\r\n" + host + "X: a\x7f\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\n" + host + "X: a\rb\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\n" + host + "X-API-Key: a\1\r\n\r\n"},
        {400, "GET /healthz HTTP/1.1\r\n" + host + "Connection: \1\r\n\r\n"},
        {0, "GET /healthz HTTP/1.1\r\n" + host + "X: \xc3\xa4\r\n\r\n"},
        {400, "HEAD /healthz HTTP/1.1\r\n" + host + "Bad Header: x\r\n\r\n"},
        {400, "HEAD /healthz HTTP/1.1\r\n" + host + "Bad(Header): x\r\n\r\n"},
        {400, "HEAD /healthz HTTP/1.1\r\n" + host + "A-Header-That-Is-Long@: x\r\n\r\n"},
        {400, "G@T( /healthz HTTP/1.1\r\n" + host + "\r\n"},
        {400, " GET /healthz HTTP/1.1\r\n" + host + "\r\n"},
        {400, "\rGET /healthz HTTP/1.1\r\n" + host + "\r\n"},
        {501, "BREW /healthz HTTP/1.1\r\n" + host + "\r\n"},
        {501, "PRI-AND-A-LONG-METHOD-MORE /healthz HTTP/1.1\r\n" + host + "\r\n"},
        {0, "DELETE /healthz HTTP/1.1\r\n" + host + "\r\n"},
        {505, "GET /healthz HTTP/2.0\r\n" + host + "\r\n"},
        {505, "GET /healthz HTTP/0.9\r\n" + host + "\r\n"},
        {400, "GET /healthz HTTP/1.10\r\n" + host + "\r\n"},
        {400, "GET /healthz http/1.1\r\n" + host + "\r\n"},
    };
    for (auto &c : cases)
        for (size_t most : {1u, 3u, 1000u}) {
            Parsed p = parse(random, bench::text(c.text), most, true);
            check(p.status() == c.status && (p.status() || p.complete), std::to_string(p.status()) + " where " + std::to_string(c.status) + " is right: " + c.text);
        }
}

// For reference_test.py: a line for each request, bytes that come at once and the text in
// hexadecimal, with a line as the reply.
int serve() {
    Random random(1);
    std::string line;
    while (std::getline(std::cin, line)) {
        const size_t blank = line.find(' ');
        const Bytes text = unhex(line.substr(blank + 1));
        Parsed p = parse(random, text, std::stoul(line), true);
        std::cout << p.status() << ' ' << p.complete << ' ' << p.used << ' ' << p.method << ' ' << p.route << ' ' << p.http10 << ' ' << p.expects << ' '
                  << (p.keys & 1 ? std::to_string(p.values[0]) : "-") << " n" << hex(bench::text(p.name)) << " b" << hex(p.body) << std::endl;
    }
    return 0;
}

int main(int argc, char **argv) { return argc > 1 && std::string(argv[1]) == "serve" ? serve() : run_all(BENCH, argc, argv); }
