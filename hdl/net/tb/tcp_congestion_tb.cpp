// A sender's window over whole connections: slow start, avoidance, fast retransmit, partial acknowledgments and timeouts,
// each step compared with the rules of RFC 5681, RFC 6582 and RFC 6298.
#include "clocked.hpp"

using namespace bench;

namespace {

constexpr uint32_t kMost = 0xffff;  // the ring, less one byte

struct Window {
    uint32_t cwnd, ssthresh = kMost, grown = 0, dups = 0, recover = 0;
    bool recovering = false, repeating = false, timing = false;
};

uint32_t capped(uint32_t v) { return std::min(v, kMost); }

struct Sender {
    Clocked dut;
    uint32_t mss;
    uint32_t una, max;  // oldest unacknowledged byte, and after the last one sent
    Window w;

    explicit Sender(uint32_t segment) : mss(segment), w{capped(10 * segment)} {
        una = max = static_cast<uint32_t>(dut.random.next());
        idle();
        dut.reset();
    }
    void idle() { dut->acked_new = dut->duplicate = dut->timed_out = 0; }
    uint32_t flight() const { return max - una; }

    // Applies an event to the module, and compares with the expected window.
    void event(const Window &expected, bool again, const char *what) {
        dut->mss = static_cast<uint16_t>(mss), dut->cwnd = w.cwnd, dut->ssthresh = w.ssthresh, dut->grown = w.grown;
        dut->dups = static_cast<uint8_t>(w.dups), dut->recovering = w.recovering, dut->repeating = w.repeating;
        dut->timing = w.timing, dut->max = max, dut->recover = w.recover, dut->flight = flight();
        dut.settle();
        const auto wrong = [&](const char *of) { return std::string(what) + ": another " + of; };
        check(dut->cwnd_after == expected.cwnd, wrong("window") + ", " + std::to_string(dut->cwnd_after) + " instead of " + std::to_string(expected.cwnd));
        check(dut->ssthresh_after == expected.ssthresh, wrong("threshold"));
        check(dut->grown_after == expected.grown, wrong("amount until it grows"));
        check(dut->dups_after == expected.dups, wrong("number of duplicates"));
        check(dut->recovering_after == expected.recovering, wrong("end of a recovery"));
        check(dut->repeating_after == expected.repeating, wrong("end of repetitions"));
        check(dut->recover_after == expected.recover, wrong("position to recover"));
        check(dut->timing_after == expected.timing, wrong("segment that is timed"));
        check(dut->again == again, wrong("retransmission"));
        dut.rise();
        idle();
        w = expected;
    }
    void nothing() { event(w, false, "no event"); }
    void acknowledge(uint32_t bytes) {
        Window e = w;
        bool again = false;
        const uint32_t ack = una + bytes;
        const bool before = static_cast<int32_t>(ack - w.recover) < 0, at = ack == w.recover;
        dut->acked_new = 1, dut->acked = bytes, dut->before_recover = before, dut->at_recover = at;
        e.dups = 0;
        e.repeating = w.repeating && (before || at);
        if (w.recovering) {
            if (before) again = true;  // a partial acknowledgment: the next loss
            else e.recovering = false;
        } else if (w.cwnd < w.ssthresh) {
            e.cwnd = capped(w.cwnd + (bytes > mss ? 2 * mss : bytes));  // RFC 3465: two segments at most
        } else if (static_cast<int64_t>(bytes & 0x1ffff) >= static_cast<int64_t>(w.cwnd) - w.grown) {
            e.cwnd = capped(w.cwnd + mss), e.grown = 0;
        } else {
            e.grown = w.grown + bytes;
        }
        event(e, again, "an acknowledgment");
        una = ack;
    }
    uint32_t half() const { return flight() / 2 > 2 * mss ? flight() / 2 : capped(2 * mss); }
    bool duplicate() {
        Window e = w;
        const bool loss = w.dups == 2 && !w.repeating;
        dut->duplicate = 1;
        e.dups = (w.dups + 1) % 4;
        if (loss) {
            e.dups = 0, e.recovering = e.repeating = true, e.recover = max, e.timing = false;
            e.cwnd = e.ssthresh = half();
        }
        event(e, loss, "a duplicate");
        return loss;
    }
    void timeout() {
        Window e = w;
        dut->timed_out = 1;
        e.ssthresh = half(), e.cwnd = mss, e.recovering = false, e.repeating = true, e.recover = max, e.dups = 0;
        event(e, false, "a timeout");
    }
    void send() {
        const uint32_t room = w.cwnd > flight() ? w.cwnd - flight() : 0;
        max += std::min(room, dut.random.below(8 * mss) + 1);
    }
};

}  // namespace

TEST(connections_of_any_course) {
    Random draw(seed());
    unsigned losses = 0, partial = 0, timeouts = 0, avoided = 0;
    for (int n = 0; n < 60; n++) {
        Sender s(n % 3 == 0 ? 256 : n % 3 == 1 ? 536 : 1460);
        for (int i = 0; i < 2000; i++) {
            s.send();
            s.w.timing |= draw.percent(10);
            const unsigned what = draw.below(100);
            if (what < 60 && s.flight()) {
                partial += s.w.recovering;
                avoided += s.w.cwnd >= s.w.ssthresh;
                s.acknowledge(std::min(s.flight(), draw.below(draw.percent(70) ? 3 * s.mss : 30 * s.mss) + 1));
            } else if (what < 75 && s.flight() && !s.w.recovering) {
                bool loss = false;
                for (unsigned k = 1 + draw.below(4); k && !loss; k--) loss = s.duplicate();
                losses += loss;
            } else if (what < 76 && s.flight()) {
                s.timeout(), timeouts++;
            } else {
                s.nothing();
            }
        }
    }
    check(losses > 500 && partial > 500 && timeouts > 200 && avoided > 5000,
          "too few events of a kind: " + std::to_string(losses) + ", " + std::to_string(partial) + ", " +
              std::to_string(timeouts) + ", " + std::to_string(avoided));
}

// In slow start the window doubles with each round trip, and after the threshold grows by a segment (RFC 5681 section 3.1).
TEST(growth_of_the_window) {
    Sender s(1000);
    s.w.cwnd = 2000, s.w.ssthresh = 16000;
    const auto round_trip = [&] {
        s.max = s.una + s.w.cwnd;
        for (uint32_t left = s.w.cwnd; left; left -= 1000) s.acknowledge(1000);
    };
    for (uint32_t expected : {4000u, 8000u, 16000u}) {
        round_trip();
        check(s.w.cwnd == expected, "slow start: " + std::to_string(s.w.cwnd));
    }
    for (uint32_t expected : {17000u, 18000u, 19000u}) {
        round_trip();
        check(s.w.cwnd == expected, "avoidance: " + std::to_string(s.w.cwnd));
    }
}

BENCH_MAIN()
