// Compares the lookup with a plain map: keys are added and removed, at any load up to all sessions,
// and every key is found at any time, also while others are moved.
#include <map>

#include "clocked.hpp"

using namespace bench;

namespace {

struct Lookup {
    Clocked dut;
    std::map<uint64_t, uint32_t> keys;

    Lookup() {
        dut->query = 0, dut->change_valid = 0;
        dut->secret = dut.random.next();
        dut.reset();
        // Queries wait until the tables are cleared.
    }
    // Queries a key while other operations run; true if it is found.
    void step(bool ask = false, uint64_t key = 0) {
        dut->query = ask;
        dut->query_key = key;
        dut.settle();
        dut.rise();
        dut->query = 0;
    }
    void find(uint64_t key) {
        step(true, key);
        step();
        dut.settle();
        auto it = keys.find(key);
        check(dut->hit == (it != keys.end()), it == keys.end() ? "a key is found that is not there" : "a key is not found");
        if (dut->hit) check(dut->index == it->second, "another session is found");
    }
    // Changes a key, and queries present keys meanwhile. True if the change was not refused.
    bool change(bool remove, uint64_t key, uint32_t index, bool querying) {
        dut->change_valid = 1, dut->change_remove = remove, dut->change_key = key, dut->change_index = index;
        std::vector<std::pair<uint64_t, uint32_t>> others;
        for (auto &k : keys) if (k.first != key) others.push_back(k);
        const std::pair<uint64_t, uint32_t> *one = nullptr, *two = nullptr;
        for (int i = 0; i < 5000; i++) {
            const auto *queried = querying && !others.empty() && dut.random.percent(30) ? &others[dut.random.below(static_cast<uint32_t>(others.size()))] : nullptr;
            dut->query = queried != nullptr;
            if (queried) dut->query_key = queried->first;
            dut.settle();
            if (two) check(dut->hit && dut->index == two->second, "a key is not found while another one comes or goes");
            two = one, one = queried;
            const bool done = dut->changed, refused = dut->refused;
            dut.rise();
            if (done) {
                dut->change_valid = 0;
                dut->query = 0;
                return !refused;
            }
        }
        throw Failure("a change does not end");
    }
};

}  // namespace

TEST(comes_and_goes) {
    for (int round = 0; round < 20; round++) {
        Lookup l;
        l.dut->secret = l.dut.random.next();
        std::vector<uint64_t> owner(W, 0);
        uint32_t refusals = 0, added = 0;
        for (int i = 0; i < 100 * (W > 64 ? 20 : 4); i++) {
            const bool fuller = l.dut.random.percent(i < W * 3 ? 90 : 50);
            uint32_t at = l.dut.random.below(W);
            if (fuller && l.keys.size() < W) {
                while (owner[at]) at = (at + 1) % W;
                // Mostly a peer with one address and consecutive ports.
                const uint64_t key = (0x0a630001ull << 32) | (uint64_t{32768 + l.dut.random.below(20000)} << 16) | 80;
                if (l.keys.count(key)) {
                    check(!l.change(false, key, at, true), "a key is taken twice");
                    continue;
                }
                added++;
                if (l.change(false, key, at, true)) l.keys[key] = at, owner[at] = key;
                else refusals++;
            } else if (owner[at]) {
                l.change(true, owner[at], at, true);
                l.keys.erase(owner[at]);
                l.find(owner[at]);
                owner[at] = 0;
            }
            if (i % 16 == 0) for (auto &k : l.keys) l.find(k.first);
            l.find(l.dut.random.next());
        }
        for (auto &k : l.keys) l.find(k.first);
        check(refusals * 100 <= added, std::to_string(refusals) + " of " + std::to_string(added) + " are refused");
    }
}

// With any secret: a host with consecutive ports, of which one after another is replaced.
TEST(consecutive_ports_have_places) {
    Random draw(seed());
    for (int round = 0; round < 100; round++) {
        Lookup l;
        l.dut->secret = draw.next();
        const uint64_t first = (draw.next() | 0x8000) & ~0x7fffull;
        const auto key = [&](uint64_t i) { return first + (i << 16); };
        for (uint64_t i = 0; i < 3 * W; i++) {
            if (i >= W) {
                l.change(true, key(i - W), static_cast<uint32_t>(i % W), false);
                l.keys.erase(key(i - W));
            }
            check(l.change(false, key(i), static_cast<uint32_t>(i % W), false),
                  "key " + std::to_string(i) + " is refused, round " + std::to_string(round));
            l.keys[key(i)] = static_cast<uint32_t>(i % W);
        }
        for (auto &k : l.keys) l.find(k.first);
    }
}

TEST(removing_an_absent_key_changes_nothing) {
    Lookup l;
    check(l.change(false, 5, 1, false), "refused");
    l.keys[5] = 1;
    l.change(true, 6, 0, false);
    l.find(5);
    l.find(6);
}

BENCH_MAIN()
