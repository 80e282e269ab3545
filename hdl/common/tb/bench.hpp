// Shared by all unit benches: tests with one line each, a seeded random source, and checks.
//
// A bench registers tests with TEST(name) { … } and ends with BENCH_MAIN(). `BENCH` (its name) and
// `W` (the stream's width) come from the Makefile; the seed from argv[1], so that a failure that
// prints its seed can be run again.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

using Bytes = std::vector<uint8_t>;

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void check(bool right, const std::string &what) {
    if (!right) throw Failure(what);
}

// xorshift64*: small, fast and the same everywhere.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
    uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1Dull;
    }
    uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) % bound); }
    bool percent(unsigned p) { return below(100) < p; }
    Bytes bytes(size_t count) {
        Bytes b(count);
        for (auto &x : b) x = static_cast<uint8_t>(next() >> 32);
        return b;
    }

private:
    uint64_t state_;
};

inline Bytes text(const std::string &s) { return Bytes(s.begin(), s.end()); }

inline std::string hex(const Bytes &b) {
    std::string s;
    char two[3];
    for (auto x : b) {
        std::snprintf(two, sizeof two, "%02x", x);
        s += two;
    }
    return s;
}

inline Bytes unhex(const std::string &s) {
    Bytes b;
    for (size_t i = 0; i + 1 < s.size(); i += 2) b.push_back(static_cast<uint8_t>(std::stoul(s.substr(i, 2), nullptr, 16)));
    return b;
}

inline void expect(const Bytes &got, const Bytes &want, const std::string &what) {
    if (got == want) return;
    size_t at = 0;
    while (at < got.size() && at < want.size() && got[at] == want[at]) at++;
    throw Failure(what + ": " + std::to_string(got.size()) + " bytes where " + std::to_string(want.size()) +
                  " are right, the first wrong one is " + std::to_string(at));
}

inline uint64_t &seed() {
    static uint64_t value = 1;
    return value;
}

struct Test {
    const char *name;
    void (*body)();
};

inline std::vector<Test> &tests() {
    static std::vector<Test> all;
    return all;
}

struct Registered {
    Registered(const char *name, void (*body)()) { tests().push_back({name, body}); }
};

inline int run_all(const char *bench, int argc, char **argv) {
    if (argc > 1) seed() = std::strtoull(argv[1], nullptr, 0);
    int failed = 0;
    for (auto &t : tests()) {
        std::string why;
        try {
            t.body();
        } catch (const std::exception &e) {
            why = e.what();
        }
        std::printf("test %s::%s ... %s\n", bench, t.name, why.empty() ? "ok" : "FAILED");
        if (!why.empty()) {
            std::printf("    %s (seed %llu)\n", why.c_str(), static_cast<unsigned long long>(seed()));
            failed++;
        }
        std::fflush(stdout);
    }
    return failed != 0;
}

}  // namespace bench

#define TEST(name)                                                   \
    static void test_##name();                                       \
    static const bench::Registered registered_##name(#name, test_##name); \
    static void test_##name()

#define BENCH_MAIN() \
    int main(int argc, char **argv) { return bench::run_all(BENCH, argc, argv); }

// Called for verilator's $time; benches count cycles themselves.
inline double sc_time_stamp() { return 0; }
