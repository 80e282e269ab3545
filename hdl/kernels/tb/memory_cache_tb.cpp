// The cache of a kernel's memory port: each read returns the last written word, for any sequence of
// requests and pauses; a flush; and its cycles.
#include <deque>

#include "clocked.hpp"

using namespace bench;

namespace {

constexpr uint32_t kBytes = 1 << 16, kLine = 64, kCache = 8 * kLine;

struct Request {
    uint32_t address = 0;
    uint8_t strobe = 0;
    uint64_t data = 0;
};

class Cache : public Clocked {
public:
    unsigned pause = 0;  // percent of cycles in which the kernel waits

    Cache() {
        auto &d = *this;
        d->mem_valid = d->mem_go = d->flush = 0;
        reset();
        // The memory's contents are random at first, because all of them are written.
        for (uint32_t at = 0; at < kBytes; at += 8) ask({at, 0xff, random.next()});
        run();
    }
    void ask(Request request) { requests_.push_back(request); }
    // Executes all requests, and compares the words that are read; returns the cycles.
    uint64_t run() {
        const uint64_t begin = cycles;
        for (unsigned idle = 0; !requests_.empty() || loading_; idle++) {
            check(idle < 2000, "a request has no end");
            if (step()) idle = 0;
        }
        return cycles - begin;
    }
    void flush() {
        auto &d = *this;
        d->mem_valid = d->mem_go = 0;
        d->flush = 1;
        settle();
        for (int i = 0; !d->flushed; i++) {
            check(i < 4000, "the flush has no end");
            rise();
            settle();
        }
        rise();
        d->flush = 0;
        settle();
        rise();
    }

private:
    // A cycle; whether the kernel proceeds.
    bool step() {
        auto &d = *this;
        const bool asks = !requests_.empty() && !random.percent(pause / 2);
        Request request;
        if (asks) request = requests_.front();
        d->mem_valid = asks;
        d->mem_address = request.address;
        d->mem_strobe = request.strobe;
        d->mem_data = request.data;
        d->mem_go = 0;
        settle();
        const bool go = (!asks || d->mem_ready) && (!loading_ || d->mem_answer) && !random.percent(pause);
        d->mem_go = go;
        settle();
        if (go && loading_) check(d->mem_word == expected_, "a word differs from the written one");
        rise();
        if (!go) return false;
        loading_ = asks && request.strobe == 0;
        if (!asks) return true;
        requests_.pop_front();
        uint64_t &word = right_[request.address / 8];
        for (int i = 0; i < 8; i++) {
            const uint64_t mask = 0xffull << 8 * i;
            if (request.strobe >> i & 1) word = (word & ~mask) | (request.data & mask);
        }
        expected_ = word;
        return true;
    }

    std::deque<Request> requests_;
    std::vector<uint64_t> right_ = std::vector<uint64_t>(kBytes / 8);
    uint64_t expected_ = 0;
    bool loading_ = false;
};

TEST(words_have_the_last_written_value) {
    Cache cache;
    for (unsigned pause : {0u, 30u, 80u}) {
        cache.pause = pause;
        for (uint32_t range : {24u, kCache / 2, 4 * kCache, kBytes}) {
            for (int i = 0; i < 4000; i++) {
                const bool write = cache.random.percent(50);
                cache.ask({static_cast<uint32_t>(cache.random.below(range)), static_cast<uint8_t>(write ? cache.random.next() : 0), cache.random.next()});
            }
            cache.run();
        }
    }
    for (uint32_t at = 0; at < kBytes; at += 8) cache.ask({at});
    cache.run();
    check(!cache->refused, "the memory refused");
}

TEST(a_flush_writes_changed_lines_back_and_empties_the_cache) {
    Cache cache;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 100; i++)
            cache.ask({static_cast<uint32_t>(cache.random.below(2 * kCache)), static_cast<uint8_t>(cache.random.next()), cache.random.next()});
        cache.run();
        cache.flush();
        for (uint32_t at = 0; at < kCache; at += kLine) {
            cache.ask({at});
            check(cache.run() > 40, "a line is in the cache after the flush");
        }
    }
    for (uint32_t at = 0; at < kBytes; at += 8) cache.ask({at});
    cache.run();
}

TEST(an_evicted_line_returns_unchanged) {
    Cache cache;
    // Two lines with the same place, written alternately without pause: each fetch follows the
    // other's eviction.
    for (int i = 0; i < 500; i++) {
        const uint32_t at = cache.random.below(kLine) + (i % 2) * kCache;
        cache.ask({at, 0xff, cache.random.next()});
        cache.ask({at ^ kCache});
    }
    cache.run();
}

#if W == 0
TEST(clocks_are_as_documented) {
    Cache cache;
    cache.flush();
    for (int i = 0; i < 8; i++) cache.ask({0});
    cache.run();
    for (int i = 0; i < 100; i++) cache.ask({8u * (i % 8)});
    const uint64_t hits = cache.run();
    check(hits == 101, "a hundred hits take " + std::to_string(hits));
    cache.ask({kCache});
    const uint64_t clean = cache.run();
    cache.ask({kCache, 0xff, 1});
    cache.run();
    cache.ask({0});
    const uint64_t changed = cache.run();
    std::printf("  clocks: 100 hits %u, miss %u, miss in a written line's place %u, of them the memory's 40\n", unsigned(hits),
                unsigned(clean), unsigned(changed));
    check(clean <= 40 + 8 + 6, "a miss takes " + std::to_string(clean));
    check(changed <= clean + 10, "one in a written line's place takes " + std::to_string(changed));
}
#endif

}  // namespace

BENCH_MAIN()
