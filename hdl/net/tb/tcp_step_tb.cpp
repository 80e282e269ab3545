// Events of any session, compared with the rules of RFC 9293 (acknowledgments, windows, resets), RFC 5961 (blind resets)
// and RFC 6298 (round trips and the retransmission timer).
#include <cmath>

#include "clocked.hpp"

using namespace bench;

namespace {

// As in tcp_pkg and net_pkg.
enum State { Dead, Open, TimeWait, SynSent, SynReceived };
enum Kind { Segment, App, Tick };
enum Flags { Fin = 1, Syn = 2, Rst = 4, Ack = 16 };
constexpr uint32_t kPositions = 1u << 23, kRing = 1u << 21;
constexpr unsigned kRtoMost = 60000, kRetries = 7, kIdleMs = 60000, kLingerMs = 5000, kTimeWaitMs = 500;

// Idle time is counted in 64 ms.
unsigned slow(unsigned ms) { return (ms + 63) / 64; }

struct Session : Clocked {
    int32_t flight = 0;  // bytes that were sent and not acknowledged

    Session() {
        (*this)->begins = 0;
        reset();
    }

    // A session with data in flight, of which a part may be due to be sent again.
    void any(State state) {
        auto &dut = *this;
        auto &r = random;
        flight = static_cast<int32_t>(r.percent(20) ? 0 : r.below(r.percent(50) ? 20000 : kRing));
        dut->state = state;
        dut->una = static_cast<uint32_t>(r.next());
        dut->max = dut->una + static_cast<uint32_t>(flight);
        dut->nxt = r.percent(70) ? dut->max : dut->una + r.below(static_cast<uint32_t>(flight) + 1);
        dut->written_to = (dut->max + r.below(1000)) % kPositions;
        dut->wl1 = static_cast<uint32_t>(r.next());
        dut->window = static_cast<uint16_t>(r.percent(20) ? 0 : r.next());
        dut->closing = dut->finish = dut->working = dut->crowded = dut->tick_slow = 0;
        dut->timing = r.percent(50);
        dut->timed = (dut->una + r.below(static_cast<uint32_t>(flight) + 1)) % kPositions;
        dut->now = static_cast<uint16_t>(r.next());
        dut->timed_from = static_cast<uint16_t>(dut->now - r.below(r.percent(80) ? 300 : 20000));
        dut->measured = r.percent(70);
        dut->srtt = r.below(8 * 2000);
        dut->rttvar = r.below(4 * 1000);
        dut->rto = static_cast<uint16_t>(200 + r.below(kRtoMost - 200));
        dut->timer = 0;
        dut->retries = static_cast<uint8_t>(r.below(kRetries));
        dut->unacked = 0;
        dut->ack_wait = 0;
        dut->idle = static_cast<uint16_t>(r.below(5));
        dut->seq = static_cast<uint32_t>(r.next());
        dut->ack = static_cast<uint32_t>(r.next());
        dut->window_in = static_cast<uint16_t>(r.next());
        dut->length = 0;
        dut->flags = Ack;
        dut->nearby = dut->exact = dut->in_window = 1;
    }

    void happens(Kind kind) {
        auto &dut = *this;
        dut->kind = kind;
        dut->begins = 1;
        for (int i = 0; i < 3; i++) {
            settle();
            rise();
            dut->begins = 0;
        }
        settle();
        check(dut->max_after == dut->max, "an event sends nothing by itself");
    }
};

int32_t distance(uint32_t from, uint32_t to) { return static_cast<int32_t>(to - from); }

}  // namespace

TEST(acknowledgments) {
    Session dut;
    int advanced = 0, old = 0, unsent = 0, windows = 0;
    for (int i = 0; i < 100000; i++) {
        auto &r = dut.random;
        dut.any(Open);
        const uint32_t near = r.percent(50) ? static_cast<uint32_t>(dut.flight) : static_cast<uint32_t>(r.below(static_cast<uint32_t>(dut.flight) + 1));
        if (!r.percent(5)) dut->ack = dut->una + near + r.below(5) - 2;
        dut->seq = dut->wl1 + r.below(5) - 2;
        dut.happens(Segment);
        const int32_t acked = distance(dut->una, dut->ack);
        const bool counts = acked > 0 && acked <= dut.flight, some = acked >= 0 && acked <= dut.flight;
        const bool newer = distance(dut->wl1, dut->seq) >= 0 && some, opens = newer && dut->window == 0 && dut->window_in != 0;
        check(!dut->dies && !dut->resets, "an acknowledgment ends the session");
        check(dut->progress == counts && dut->wakes == counts, "progress without new data, or none");
        check(dut->una_after == (counts ? dut->ack : dut->una), "another oldest byte");
        const uint32_t next = counts && distance(dut->nxt, dut->ack) > 0 ? dut->ack : dut->nxt;
        // Data sent into a closed window is sent again.
        check(dut->nxt_after == (opens ? dut->una_after : next), "another next byte");
        check(dut->window_after == (newer ? dut->window_in : dut->window) && dut->wl1_after == (newer ? dut->seq : dut->wl1), "another window");
        // RFC 9293 section 3.10.7.4: an acknowledgment of what was not sent yet is answered.
        check(acked <= dut.flight || dut->acks, "data that was not sent is acknowledged without a reply");
        if (counts) check(dut->retries_after == 0, "retransmissions are counted on");
        advanced += counts, old += acked <= 0, unsent += acked > dut.flight, windows += newer;
    }
    check(advanced > 10000 && old > 5000 && unsent > 5000 && windows > 10000, "too few of some kind");
}

TEST(round_trips) {
    Session dut;
    int first = 0, later = 0;
    for (int i = 0; i < 50000; i++) {
        dut.any(Open);
        if (dut.flight == 0) continue;
        dut->ack = dut->una + 1 + dut.random.below(static_cast<uint32_t>(dut.flight));
        dut.happens(Segment);
        const bool sampled = dut->timing && distance(dut->timed << 9, (dut->ack % kPositions) << 9) >= 0;
        check(dut->timing_after == (dut->timing && !sampled), "a segment is timed on, or not");
        if (!sampled) {
            check(dut->srtt_after == dut->srtt && dut->rttvar_after == dut->rttvar, "estimates change only with a sample");
            continue;
        }
        const double took = static_cast<uint16_t>(dut->now - dut->timed_from), srtt = dut->srtt / 8.0, rttvar = dut->rttvar / 4.0;
        const double mean = dut->measured ? 7 * srtt / 8 + took / 8 : took;
        const double apart = dut->measured ? 3 * rttvar / 4 + std::abs(srtt - took) / 4 : took / 2;
        check(dut->measured_after, "a sample is not remembered");
        check(std::abs(dut->srtt_after / 8.0 - mean) <= 0.25 && std::abs(dut->rttvar_after / 4.0 - apart) <= 0.5, "another estimate");
        (dut->measured ? later : first)++;
    }
    check(first > 1000 && later > 1000, "too few samples");
}

TEST(segments_that_are_refused) {
    Session dut;
    for (int i = 0; i < 50000; i++) {
        auto &r = dut.random;
        const State state = r.percent(80) ? Open : TimeWait;
        dut.any(state);
        const unsigned what = r.below(3);
        dut->flags = static_cast<uint8_t>(what == 0 ? Rst | (r.percent(50) ? Ack : 0) : what == 1 ? Syn | (r.percent(50) ? Ack : 0) : Ack);
        dut->in_window = r.percent(50);
        dut->exact = dut->in_window && r.percent(50);
        dut->nearby = what != 2;
        dut->ack = dut->una + r.below(static_cast<uint32_t>(dut.flight) + 1);
        dut.happens(Segment);
        // RFC 5961 section 3: only the exact position resets, others in the window are challenged.
        const bool ends = what == 0 ? dut->exact : what == 1 && state == TimeWait;
        const bool challenged = what == 0 ? dut->in_window && !dut->exact : !ends;
        check(dut->dies == ends && !dut->resets, "the session ends, or does not");
        check(dut->acks == challenged, "a reply, or none");
        check(dut->una_after == dut->una && dut->nxt_after == dut->nxt && dut->window_after == dut->window && !dut->progress,
              "a refused segment changes the session");
    }
}

TEST(timers) {
    Session dut;
    int timeouts = 0, ended = 0, probes = 0, closed = 0;
    for (int i = 0; i < 100000; i++) {
        auto &r = dut.random;
        const State state = r.percent(80) ? Open : TimeWait;
        dut.any(state);
        dut->timer = static_cast<uint16_t>(r.percent(50) ? r.below(4) : r.next());
        dut->retries = static_cast<uint8_t>(r.below(kRetries + 1));
        dut->closing = r.percent(30);
        dut->working = r.percent(20);
        dut->tick_slow = r.percent(30);
        dut->crowded = r.percent(10);
        const unsigned limits[] = {slow(kIdleMs), slow(kLingerMs), slow(kTimeWaitMs)};
        dut->idle = static_cast<uint16_t>(r.percent(50) ? limits[r.below(3)] + r.below(3) - 1 : r.below(1024));
        dut.happens(Tick);
        check(!dut->progress && dut->una_after == dut->una, "a tick acknowledges");
        const unsigned idle = dut->working ? 0 : dut->tick_slow ? std::min(1023u, dut->idle + 1u) : dut->idle;
        if (state == TimeWait) {
            check(dut->dies == (dut->crowded || dut->idle >= slow(kTimeWaitMs)) && !dut->resets, "the wait for late segments");
            continue;
        }
        const bool fires = dut->timer == 1, shut = dut->window == 0;
        const bool lingers = dut->closing && dut->idle >= slow(kLingerMs), gives_up = fires && dut->retries == kRetries;
        const bool closes = !dut->closing && dut->idle >= slow(kIdleMs) && !dut->working;
        check(dut->dies == (lingers || gives_up) && dut->resets == dut->dies, "the session ends, or does not");
        check(dut->closing_after == (dut->closing || closes), "an idle session closes, or does not");
        check(!closes || dut->fin_after == dut->written_to, "the stream ends elsewhere");
        check(closes || dut->idle_after == idle, "another idle time");
        if (fires) {
            // RFC 6298 sections 5.4 to 5.6, and Karn's algorithm: what is sent again is not timed.
            check(dut->rto_after == std::min<unsigned>(kRtoMost, 2u * dut->rto) && dut->timer_after == dut->rto_after, "another time-out");
            check(dut->retries_after == ((dut->retries + 1u) & 15) && !dut->timing_after, "a retransmission is not counted, or timed");
            check(dut->probes == shut && dut->nxt_after == (shut ? dut->nxt : dut->una), "another retransmission");
        } else {
            check(dut->timer_after == (dut->timer ? dut->timer - 1 : 0) && dut->rto_after == dut->rto, "the timer does not run");
            check(!dut->probes && dut->nxt_after == dut->nxt && dut->retries_after == dut->retries, "a retransmission before its time");
        }
        timeouts += fires, ended += dut->dies, probes += dut->probes, closed += closes;
    }
    check(timeouts > 5000 && ended > 1000 && probes > 500 && closed > 1000, "too few of some kind");
}

// RFC 9293 section 3.10.7.3: connections that the board opens.
TEST(opening) {
    Session dut;
    for (int i = 0; i < 20000; i++) {
        auto &r = dut.random;
        const bool sent = r.percent(50);
        dut.any(sent ? SynSent : SynReceived);
        dut->max = dut->nxt = dut->una + 1;
        const bool rst = r.percent(25), syn = r.percent(50), with_ack = r.percent(60), right = r.percent(70);
        dut->flags = static_cast<uint8_t>((rst ? Rst : 0) | (syn ? Syn : 0) | (with_ack ? Ack : 0));
        dut->ack = right ? dut->una + 1 : dut->una + 2 + r.below(1000);
        dut->exact = r.percent(50);
        // tcp_engine passes on only acknowledgments of the own SYN.
        if (sent && with_ack && !right) continue;
        dut.happens(Segment);
        const bool ends = rst && (sent ? with_ack : static_cast<bool>(dut->exact));
        const bool opens = !rst && with_ack && (sent ? syn : right);
        check(dut->dies == ends && !dut->resets, "the connection ends, or does not");
        check(dut->establishes == opens, "the connection opens, or does not");
        check((dut->state_after == Open) == opens, "another state");
        check(dut->begun == (sent && syn && !rst), "the peer's stream begins, or does not");
        check(dut->syns == (!rst && syn && !with_ack), "the own SYN is repeated, or is not");
        if (opens) check(dut->una_after == dut->ack && dut->acks, "the peer's SYN is not acknowledged");
    }
}

BENCH_MAIN()
