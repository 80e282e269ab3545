// Between clocks of any ratio, with jitter, idle cycles and back-pressure, no entry is lost,
// duplicated or reordered, an offered entry stays,
// and the writer's level is never below the actual level.
#include "clocks.hpp"

#include <deque>

using namespace bench;

namespace {

using Rate = Clocks::Rate;

constexpr size_t kDepth = 16;

struct Fifo : Clocks {
    std::deque<uint8_t> inside;
    size_t put = 0, got = 0, most = 0, limit = 0;
    unsigned idle = 0, stall = 0;
    bool held = false;
    uint8_t held_value = 0;
    uint64_t first_put = 0, first_valid = 0;
    std::deque<size_t> levels;  // entries inside, at the writer's last edges

    Fifo(Rate s, Rate m) {
        auto &d = *this;
        d->s_rst = d->m_rst = 1, d->s_valid = 0, d->m_ready = 0;
        add(d->s_clk, s, [this] { write(); });
        add(d->m_clk, m, [this] { read(); });
        reset();
    }
    void reset() {
        auto &d = *this;
        const uint64_t s = cycles(0), m = cycles(1);
        d->s_rst = d->m_rst = 1;
        inside.clear(), levels.clear();
        put = got = most = limit = 0;
        held = false;
        // The sides' resets end at different times, in either order.
        while (cycles(0) < s + 4 || cycles(1) < m + 4) edge();
        const bool first = random.percent(50);
        (first ? d->s_rst : d->m_rst) = 0;
        for (uint32_t i = random.below(12); i > 0; i--) edge();
        d->s_rst = d->m_rst = 0;
    }
    void write() {
        auto &d = *this;
        d->s_valid = !d->s_rst && put < limit && !random.percent(idle);
        d->s_payload = static_cast<uint8_t>(random.next());
        settle();
        if (d->s_rst) return;
        // Without the entries of the last two cycles.
        check(levels.size() < 3 || d->s_level >= std::min({inside.size(), levels[0], levels[1], levels[2]}),
              "a level of " + std::to_string(d->s_level) + " where " + std::to_string(inside.size()) + " are inside");
        levels.push_front(inside.size() ? inside.size() - d->m_valid : 0);
        if (levels.size() > 3) levels.pop_back();
        if (d->s_valid && d->s_ready) {
            if (!put++) first_put = cycles(1);
            inside.push_back(d->s_payload);
            most = std::max(most, inside.size());
        }
    }
    void read() {
        auto &d = *this;
        d->m_ready = !random.percent(stall);
        settle();
        if (d->m_rst) return;
        if (d->m_valid && !first_valid) first_valid = cycles(1);
        if (held) check(d->m_valid && d->m_payload == held_value, "an offered word has changed");
        held = d->m_valid && !d->m_ready;
        held_value = d->m_payload;
        if (d->m_valid && d->m_ready) {
            check(!inside.empty() && inside.front() == d->m_payload, "entry " + std::to_string(got) + " is wrong");
            inside.pop_front();
            got++;
        }
    }
    // Passes this number of entries; returns the edges of either clock.
    void through(size_t count, unsigned idle_percent, unsigned stall_percent) {
        idle = idle_percent, stall = stall_percent;
        limit = put + count;
        for (uint64_t edges = 0; got < limit; edges++) {
            check(edges < 400 * count + 1000, "hangs");
            edge();
        }
    }
};

// Periods in ns: alike, twice either way, 125 to 90 MHz, and far apart.
const std::pair<double, double> kPeriods[] = {{8, 8}, {8, 16}, {16, 8}, {8, 11.111}, {11.111, 8}, {8, 8.0008}, {3, 41}, {41, 3}};

}  // namespace

TEST(keeps_order_between_any_clocks_under_any_traffic) {
    for (auto [s, m] : kPeriods)
        for (double jitter : {0.0, 0.05, 0.45}) {
            Fifo fifo({s, jitter}, {m, jitter});
            for (unsigned idle : {0, 30, 90})
                for (unsigned stall : {0, 30, 90}) fifo.through(700, idle, stall);
        }
}

TEST(keeps_order_while_the_clocks_change) {
    Fifo fifo({8, 0.1}, {8, 0.1});
    for (int i = 0; i < 200; i++) {
        fifo.rate(0, {1.0 + fifo.random.below(200) / 10.0, 0.1});
        fifo.rate(1, {1.0 + fifo.random.below(200) / 10.0, 0.1});
        fifo.through(100, fifo.random.below(60), fifo.random.below(60));
    }
}

TEST(holds_all_of_its_depth) {
    for (auto [s, m] : kPeriods) {
        Fifo fifo({s, 0.05}, {m, 0.05});
        fifo.stall = 100;
        fifo.limit = 1000;
        for (int i = 0; i < 3000; i++) fifo.edge();
        check(fifo.inside.size() == kDepth + 1, "held " + std::to_string(fifo.inside.size()));
        fifo.limit = fifo.put;
        fifo.through(0, 0, 0);
    }
}

TEST(is_empty_after_a_reset_in_the_middle) {
    for (auto [s, m] : kPeriods) {
        Fifo fifo({s, 0.1}, {m, 0.1});
        for (int i = 0; i < 30; i++) {
            fifo.idle = fifo.random.below(50), fifo.stall = fifo.random.below(100);
            fifo.limit = fifo.put + 100;
            for (uint32_t n = fifo.random.below(300); n > 0; n--) fifo.edge();
            fifo.reset();
            fifo.through(40, 20, 20);
        }
    }
}

TEST(an_entry_a_cycle_of_the_slower_clock_and_five_cycles_late) {
    for (auto [s, m] : kPeriods) {
        Fifo fifo({s, 0}, {m, 0});
        fifo.through(1, 0, 0);
        const uint64_t late = fifo.first_valid - fifo.first_put;
        check(late >= 4 && late <= 5, "is " + std::to_string(late) + " cycles late");
        fifo.through(50, 0, 0);
        const uint64_t from[2] = {fifo.cycles(0), fifo.cycles(1)};
        fifo.through(5000, 0, 0);
        const uint64_t took = s >= m ? fifo.cycles(0) - from[0] : fifo.cycles(1) - from[1];
        check(took <= 5000 + 40, "5,000 entries take " + std::to_string(took) + " cycles");
    }
}

BENCH_MAIN()
