// Frames through the port, in both directions at once, between clocks of any ratio: beats of the
// shell are full except the last, a frame leaves without a pause, all bytes are correct and in
// order; a core that is too slow drops whole frames, all counted;
// no part of a frame remains after a reset.
#include "clocks.hpp"

#include <deque>

using namespace bench;

namespace {

using Rate = Clocks::Rate;

constexpr size_t kFrame = 192 * 8;  // bytes of the longest

struct Port : Clocks {
    // The line: words of frames that come, with the given number of idle words between frames, and
    // a percentage of idle words within them.
    std::deque<Bytes> coming, came;
    size_t at = 0, gap = 0, gap_least = 6;
    unsigned pauses = 0;
    bool counts = false;
    // The shell's beats of the frame that it is receiving.
    Bytes given;
    size_t got = 0, lost = 0;
    bool may_lose = false;
    // The shell sends these, with idle beats in them; the MAC accepts them, not ready at a
    // percentage between frames and within them.
    std::deque<Bytes> sending, sent;
    size_t send_at = 0;
    unsigned idle = 0, unready = 0;
    bool inside = false, ready = false;
    Bytes taken;
    size_t left = 0;

    Port(Rate port, Rate core) {
        auto &d = *this;
        d->rst = 1, d->port_rx_valid = 0, d->tx_valid = 0, d->port_tx_ready = 0;
        add(d->port_clk, port, [this] { line(); });
        add(d->clk, core, [this] { shell(); });
        reset();
    }
    void reset() {
        auto &d = *this;
        d->rst = 1;
        const uint64_t p = cycles(0), c = cycles(1);
        while (cycles(0) < p + 10 || cycles(1) < c + 10) edge();
        d->rst = 0;
        given.clear(), taken.clear();
        inside = false;
        run(40);  // the port's follows
    }

    void line() {
        auto &d = *this;
        d->port_rx_valid = 0;
        if (gap) gap--;
        else if (!coming.empty() && !random.percent(pauses)) {
            const Bytes &f = coming.front();
            const size_t n = std::min<size_t>(4, f.size() - at);
            uint32_t data = static_cast<uint32_t>(random.next());
            for (size_t i = 0; i < n; i++) data = (data & ~(0xffu << (8 * i))) | static_cast<uint32_t>(f[at + i]) << (8 * i);
            d->port_rx_valid = 1, d->port_rx_data = data, d->port_rx_keep = static_cast<uint8_t>((1u << n) - 1);
            d->port_rx_last = at + n == f.size();
            // Frames received during reset must not appear.
            const bool reset = d->rst || d->port_rst;
            if (at == 0) came.push_back(f), counts = true;
            if (reset && counts) came.pop_back(), counts = false;
            at += n;
            if (at == f.size()) {
                coming.pop_front();
                at = 0, gap = gap_least;
            }
        }
        d->port_tx_ready = ready = !random.percent(unready);
        settle();
        if (d->port_rst || d->rst) return;
        check(!inside || d->port_tx_valid, "a pause in a frame");
        if (!d->port_tx_valid || !ready) return;
        const unsigned keep = d->port_tx_keep;
        check(keep && (keep & (keep + 1)) == 0 && (keep == 15 || d->port_tx_last), "keep of a word is wrong");
        for (size_t i = 0; i < 4; i++)
            if (keep >> i & 1) taken.push_back(static_cast<uint8_t>(d->port_tx_data >> (8 * i)));
        inside = !d->port_tx_last;
        if (inside) return;
        check(!sent.empty(), "a frame that was not sent arrives");
        expect(taken, sent.front(), "frame " + std::to_string(left) + " out");
        sent.pop_front(), taken.clear();
        left++;
    }

    void shell() {
        auto &d = *this;
        if (d->tx_valid && shell_took) d->tx_valid = 0;
        if (!d->tx_valid && !sending.empty() && !random.percent(idle)) {
            const Bytes &f = sending.front();
            const size_t n = std::min<size_t>(8, f.size() - send_at);
            uint64_t data = random.next();
            for (size_t i = 0; i < n; i++) data = (data & ~(0xffull << (8 * i))) | static_cast<uint64_t>(f[send_at + i]) << (8 * i);
            d->tx_valid = 1, d->tx_data = data, d->tx_keep = static_cast<uint8_t>((1u << n) - 1);
            d->tx_last = send_at + n == f.size();
            send_at += n;
            if (d->tx_last) {
                sent.push_back(f);
                sending.pop_front();
                send_at = 0;
            }
        }
        settle();
        shell_took = d->tx_ready && !d->rst;
        if (d->rst || !d->rx_valid) return;
        const unsigned keep = d->rx_keep;
        check(keep && (keep & (keep + 1)) == 0 && (keep == 255 || d->rx_last), "a beat that is not the last is not full");
        for (size_t i = 0; i < 8; i++)
            if (keep >> i & 1) given.push_back(static_cast<uint8_t>(d->rx_data >> (8 * i)));
        if (!d->rx_last) return;
        while (may_lose && !came.empty() && came.front() != given) came.pop_front(), lost++;
        check(!came.empty(), "a frame that did not come, or a part of one");
        Bytes want = came.front();
        if (want.size() > kFrame) want.resize(kFrame);
        expect(given, want, "frame " + std::to_string(got) + " in");
        came.pop_front(), given.clear();
        got++;
    }
    bool shell_took = false;

    void run(size_t edges) {
        for (; edges; edges--) edge();
    }
    void drain() {
        for (size_t n = 0; !coming.empty() || !sending.empty() || !sent.empty(); n++) {
            check(n < 4000000, "hangs");
            edge();
        }
        for (const uint64_t end = cycles(1) + 1200; cycles(1) < end;) edge();
        if (may_lose) lost += came.size(), came.clear();
        check(came.empty(), std::to_string(came.size()) + " frames are lost");
    }
    Bytes frame(size_t most = 1514) { return random.bytes(1 + random.below(static_cast<uint32_t>(random.percent(50) ? 80 : most))); }
};

// Periods in ns of port and core: half, 125 to 90 MHz, the same, a faster core,
// half minus the tolerance of crystals.
const std::pair<double, double> kPeriods[] = {{8, 16}, {8, 11.111}, {8, 8}, {8, 3}, {8, 16.003}};

}  // namespace

TEST(every_frame_at_line_rate_both_ways) {
    for (auto [port, core] : kPeriods)
        for (double jitter : {0.0, 0.05}) {
            Port p({port, jitter}, {core, jitter});
            for (int i = 0; i < 250; i++) p.coming.push_back(p.random.bytes(60 + p.random.below(1455))), p.sending.push_back(p.frame());
            p.drain();
            check(p.got == 250 && p.left == 250 && p->rx_dropped == 0, "frames are missing");
        }
}

TEST(any_frames_under_any_traffic) {
    for (auto [port, core] : kPeriods)
        for (unsigned percent : {0, 30, 80}) {
            Port p({port, 0.05}, {core, 0.05});
            p.idle = p.unready = p.pauses = percent;
            p.gap_least = percent ? 0 : 6;
            if (core > port && !percent) p.gap_least = 6;
            p.may_lose = !p.gap_least;
            for (int i = 0; i < 250; i++) p.coming.push_back(p.frame()), p.sending.push_back(p.frame(1536));
            p.drain();
            check(p.left == 250, "frames are missing");
            check(p.got + p.lost == 250 && p.lost == p->rx_dropped, "lost " + std::to_string(p.lost) + ", counted " + std::to_string(p->rx_dropped));
        }
}

TEST(a_core_too_slow_loses_whole_frames_and_counts_them) {
    for (double core : {16.6, 20.0, 40.0, 200.0}) {
        Port p({8, 0.05}, {core, 0.05});
        p.may_lose = true;
        for (int i = 0; i < 400; i++) p.coming.push_back(p.random.bytes(60 + p.random.below(1455)));
        p.drain();
        check(p.got + p.lost == 400 && p.lost == p->rx_dropped && p.got, "lost " + std::to_string(p.lost) + ", counted " + std::to_string(p->rx_dropped));
        check(core < 20 || p.lost, "nothing is lost");
    }
}

TEST(a_line_of_the_longest_frames_may_be_a_percent_faster) {
    Port p({8, 0}, {16 * 1.012, 0});
    for (int i = 0; i < 2000; i++) p.coming.push_back(p.random.bytes(1514));
    p.drain();
    check(p.got == 2000 && p->rx_dropped == 0, "frames are missing");
}

TEST(long_frames_are_cut) {
    Port p({8, 0.05}, {16, 0.05});
    for (int i = 0; i < 60; i++) p.coming.push_back(p.random.bytes(i % 3 == 1 ? 1540 + p.random.below(5000) : 60 + p.random.below(1000)));
    p.drain();
    check(p.got == 60, "frames are missing");
}

TEST(no_part_of_a_frame_is_left_of_a_reset) {
    for (auto [port, core] : kPeriods) {
        Port p({port, 0.05}, {core, 0.05});
        for (int i = 0; i < 60; i++) {
            for (int k = 0; k < 6; k++) p.coming.push_back(p.frame()), p.sending.push_back(p.frame());
            p.run(p.random.below(3000));
            // The line continues meanwhile; the shell restarts.
            p->rst = 1;
            p->tx_valid = 0, p.send_at = 0, p.sending.clear(), p.sent.clear();
            p.came.clear(), p.counts = false;
            p.reset();
            for (int k = 0; k < 6; k++) p.sending.push_back(p.frame());
            p.drain();
            check(p->rx_dropped == 0, "what the reset took is counted");
        }
    }
}

BENCH_MAIN()
