// The message fabric of two boards over raw Ethernet (W 0), TCP (W 1) and UDP (W 2): the protocol
// between kernels of one board and of two, the effect of faults, and cycles.
#include "msg_fabric_boards.hpp"

using namespace bench;

namespace {

#if W != 1
void set(Frame &f, size_t at, std::initializer_list<unsigned> bytes) {
    for (unsigned byte : bytes) {
        f.beats[at / 8] = (f.beats[at / 8] & ~(0xffull << 8 * (at % 8))) | uint64_t(byte & 0xff) << 8 * (at % 8);
        at++;
    }
}

uint8_t byte(const Frame &f, size_t at) { return static_cast<uint8_t>(f.beats[at / 8] >> 8 * (at % 8)); }

// The checksum of an IPv4 header after the hardware addresses, as in RFC 1071.
unsigned ip_sum(const Frame &f) {
    uint32_t sum = 0;
    for (size_t i = 14; i < 34; i += 2) sum += static_cast<uint32_t>(byte(f, i) << 8 | byte(f, i + 1));
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

// A packet of only an envelope, from board 1 to board 0, number 0.
Frame to_board_0(uint64_t envelope) {
    Frame f;
    f.beats.resize(8);
    set(f, 0, {2, 0, 0, 0, 0, 0x10, 2, 0, 0, 0, 0, 0x11});
    if (W == 0) set(f, 12, {0x74, 0x00});
    else {
        set(f, 12, {8, 0, 0x45, 0, 0, 42, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 0x11, 10, 0, 0, 0x10, 0x23, 0x28, 0x23, 0x28, 0, 22});
        const unsigned sum = ~ip_sum(f);
        set(f, 24, {sum >> 8, sum});
    }
    f.beats[kHead] = envelope;
    return f;
}
#endif

const std::string kName = W == 0 ? "Ethernet" : W == 1 ? "TCP" : "UDP";

void number(const char *name, double value) { std::printf("cycles %s %g\n", name, value); }

}  // namespace

TEST(messages_of_every_size_arrive_on_a_board_and_between_two) {
    for (unsigned to : {1u, 5u})
        for (bool eager : {false, true}) {
            Boards b;
            for (size_t size : {0, 1, 7, 8, 9, 1447, 1448, 1449, 2896, 2897, 5000}) {
                b.idle = b.stall = size % 2 ? 30 : 0;
                Send s{to, 7, b.random.bytes(size), eager};
                Receive r{0, 7, 5000};
                b.go(to, r);
                b.go(0, s);
                b.run();
                got(r, s, 0);
            }
        }
}

TEST(any_traffic_between_all_ranks_arrives_once_and_in_order) {
    Boards b;
    b.idle = b.stall = 20;
    std::deque<Send> sends;
    std::deque<Receive> receives;
    std::vector<std::pair<Receive *, std::pair<Send *, int>>> pairs;
    // Rounds in which rank r sends to r + shift, so that none waits for a message after another.
    for (int round = 0; round < 40; round++) {
        const int shift = 1 + static_cast<int>(b.random.below(7));
        for (int r = 0; r < kRanks; r++) {
            const unsigned to = static_cast<unsigned>((r + shift) % kRanks), tag = b.random.below(3);
            sends.push_back({to, tag, b.random.bytes(b.random.below(3000))});
            receives.push_back({r, static_cast<int>(tag), 3000});
            pairs.push_back({&receives.back(), {&sends.back(), r}});
            b.go(r, sends.back());
            b.go(static_cast<int>(to), receives.back());
        }
    }
    b.run(2000000);
    for (auto &[r, s] : pairs) got(*r, *s.first, static_cast<unsigned>(s.second));
}

TEST(a_receive_from_any_rank_takes_present_and_later_messages) {
    Boards b;
    Send s5{0, 1, b.random.bytes(100)}, s2{0, 2, b.random.bytes(50)}, late{0, 3, b.random.bytes(10)};
    b.go(5, s5);
    b.go(2, s2);
    for (int i = 0; i < 200; i++) b.step();
    Receive first{-1, -1, 200}, second{-1, 1, 200}, third{-1, -1, 200};
    b.go(0, first);
    b.go(0, second);
    b.go(0, third);
    for (int i = 0; i < 2000; i++) b.step();
    got(first, s2, 2);
    got(second, s5, 5);
    check(!third.done, "a message out of nothing");
    b.go(7, late);
    b.run();
    got(third, late, 7);
}

TEST(a_receive_that_may_not_wait_takes_a_present_message) {
    Boards b;
    Send announced{0, 1, b.random.bytes(3000)}, eager{0, 2, b.random.bytes(100), true};
    Receive nothing{-1, -1, 4000, 0, true}, other{5, 2, 4000, 0, true}, first{5, 1, 4000, 0, true}, second{-1, 2, 4000, 0, true};
    b.go(0, nothing);
    b.run();
    check(nothing.done && nothing.fault == 255, "something out of nothing");
    b.go(5, announced);
    b.go(6, eager);
    for (int i = 0; i < 2000; i++) b.step();
    b.go(0, other);
    b.go(0, first);
    b.go(0, second);
    b.run();
    check(other.done && other.fault == 255 && other.data.empty(), "a message of another tag");
    got(first, announced, 5);
    got(second, eager, 6);
}

TEST(eager_messages_wait_and_are_taken_by_tag) {
    Boards b;
    Send one{1, 1, b.random.bytes(64), true}, two{1, 2, b.random.bytes(1448), true}, other{1, 9, b.random.bytes(8), true};
    b.go(0, one);
    b.go(0, two);
    b.go(6, other);
    b.run();
    check(one.done && two.done && other.done, "an eager message waits for its receiver");
    Receive r2{0, 2, 2000}, r9{-1, 9, 2000}, r1{0, -1, 2000};
    b.go(1, r2);
    b.go(1, r9);
    b.go(1, r1);
    b.run();
    got(r2, two, 0);
    got(r9, other, 6);
    got(r1, one, 0);
    // The slots are free again, in any order.
    for (int i = 0; i < 12; i++) {
        Send s{1, 4, b.random.bytes(300), true};
        Receive r{0, 4, 300};
        b.go(0, s);
        b.go(1, r);
        b.run();
        got(r, s, 0);
    }
}

TEST(a_full_receive_queue_is_reported_to_the_sender) {
    Boards b;
    std::deque<Send> sends;
    for (unsigned i = 0; i < 5; i++) {
        sends.push_back({1, i, b.random.bytes(16), true});
        b.go(0, sends.back());
    }
    b.run();
    // The fifth was refused; the next command reports this, and the one after it is carried out.
    Send reported{1, 6, b.random.bytes(16)}, next{1, 7, b.random.bytes(16)};
    b.go(0, reported);
    b.run();
    check(reported.done && reported.fault == kFull, "the fault is not reported");
    Receive r{0, 7, 16};
    b.go(0, next);
    b.go(1, r);
    b.run();
    got(r, next, 0);
    for (unsigned i = 0; i < 4; i++) {
        Receive q{0, static_cast<int>(i), 16};
        b.go(1, q);
        b.run();
        got(q, sends[i], 0);
    }
}

TEST(truncated_mistyped_and_no_such_rank_are_faults_on_both_sides) {
    for (unsigned to : {1u, 5u}) {
        Boards b;
        Send longer{to, 1, b.random.bytes(100)}, typed{to, 1, b.random.bytes(8), false, 6}, right{to, 1, b.random.bytes(8), false, 6};
        Receive shorter{0, 1, 99}, other{0, 1, 8, 10}, same{0, 1, 8, 6};
        b.go(0, longer), b.go(to, shorter);
        b.run();
        check(longer.fault == kTruncate && shorter.fault == kTruncate && shorter.size == 100, "truncated");
        b.go(0, typed), b.go(to, other);
        b.run();
        check(typed.fault == kType && other.fault == kType, "mistyped");
        b.go(0, right), b.go(to, same);
        b.run();
        got(same, right, 0);
        Send nobody{200, 1, {}}, self{0, 1, {}};
        b.go(0, nobody);
        b.run();
        b.go(0, self);
        b.run();
        check(nobody.fault == kRank && self.fault == kRank, "no such rank");
        Send eager{to, 3, b.random.bytes(2000), true};
        Receive small{0, 3, 1600};
        b.go(0, eager), b.go(to, small);
        b.run();
        check(small.fault == kTruncate && small.size == 2000, "a truncated eager message");
    }
}

#if W != 1
TEST(a_lost_frame_is_a_fault_and_a_repeated_one_is_ignored) {
    for (unsigned gone = 0; gone < 4; gone++) {
        Boards b;
        unsigned n = 0;
        b.carry = [&](int to, Frame f) {
            if (to == 1 && n++ == gone) return;
            b.wire[to].push_back(f);
            b.wire[to].push_back(f);  // twice
        };
        std::deque<Send> sends;
        std::deque<Receive> receives;
        for (int i = 0; i < 4; i++) {
            sends.push_back({5, 1, b.random.bytes(3000), true});
            receives.push_back({0, 1, 3000});
            b.go(0, sends.back());
            b.go(5, receives.back());
        }
        for (int i = 0; i < 20000; i++) b.step();
        check(b->lost[1] == 1, "lost: " + std::to_string(b->lost[1]));
        check(b->repeated[1] > 0, "none was repeated");
        bool fault_reported = false;
        for (auto &r : receives) {
            if (!r.done) break;
            fault_reported |= r.fault == kLost;
            if (!fault_reported && r.fault == 0) expect(r.data, sends[static_cast<size_t>(&r - &receives[0])].data, "payload before the loss");
        }
        check(fault_reported, "a lost frame of " + std::to_string(gone) + " is reported to no kernel");
    }
}

TEST(reordered_frames_are_a_fault) {
    Boards b;
    Frame kept;
    unsigned n = 0;
    b.carry = [&](int to, Frame f) {
        if (to == 1 && n++ == 1) kept = f;
        else {
            b.wire[to].push_back(f);
            if (to == 1 && n == 3) b.wire[to].push_back(kept);
        }
    };
    Send s{5, 1, b.random.bytes(5000), true};
    Receive r{0, 1, 5000};
    b.go(0, s), b.go(5, r);
    for (int i = 0; i < 5000; i++) b.step();
    check(r.done && r.fault == kLost, "not noticed");
    check(b->lost[1] == 1 && b->repeated[1] == 1, "not counted");
}

TEST(foreign_and_broken_frames_are_ignored) {
    Boards b;
    Frame good;
    b.carry = [&](int to, Frame f) {
        if (to == 1 && good.beats.empty()) good = f;
        b.wire[to].push_back(f);
    };
    Send s{5, 1, b.random.bytes(20)};
    Receive r{0, 1, 20};
    b.go(0, s), b.go(5, r);
    b.run();
    got(r, s, 0);
    for (int i = 0; i < 300; i++) {
        Frame f = good;
        for (auto &x : f.beats)
            if (b.random.percent(30)) x = b.random.next();
        if (i % 3 == 0) f.beats[kHead] = (b.random.next() & ~0xffffull) | 0x0005 | (b.random.below(256) << 8);  // to rank 5
        if (i % 3 == 1) f.beats[0] = b.random.next();
        f.beats.resize(1 + b.random.below(12), b.random.next());
        b.wire[1].push_back(f);
    }
    // The boards must still work; rank 6 was not affected.
    b.run();
    for (unsigned to : {6u}) {
        Send again{to, 1, b.random.bytes(2000)};
        Receive q{1, 1, 2000};
        b.go(1, again), b.go(static_cast<int>(to), q);
        b.run();
        got(q, again, 1);
    }
}

TEST(a_query_of_a_pair_gets_its_counts) {
    Boards b;
    std::vector<Frame> answers;
    Send s{5, 1, b.random.bytes(20)};
    Receive r{0, 1, 20};
    b.go(0, s), b.go(5, r);
    b.run();
    b.carry = [&](int to, Frame f) {
        if (to == 1) answers.push_back(f);
    };
    // From rank 5 to rank 0, on board 0: two packets were received (clear, done),
    // two were sent (envelope, data).
    Frame ask = to_board_0(0x00'00'000000'08'05'00ull);
    b.wire[0].push_back(ask);
    b.wire[0].push_back(ask);  // one after another
    for (int i = 0; i < 200; i++) b.step();
    check(answers.size() == 2, "answers: " + std::to_string(answers.size()));
    const auto &a = answers[0].beats;
    check((a[kHead] & 0xffffff) == 0x090005, "not a STATE from 0 to 5: " + std::to_string(a[kHead]));
    const uint64_t counts = a[kHead + 1];
    check((counts & 0xffff) == 2 && (counts >> 16 & 0xffff) == 2 && (counts >> 32 & 3) == 0, "counts are wrong");
}

#if W == 2
TEST(datagrams_are_standard_and_damaged_ones_are_ignored) {
    Boards b;
    std::vector<Frame> sent;
    b.carry = [&](int to, Frame f) {
        if (to == 1) sent.push_back(f);
        b.wire[to].push_back(f);
    };
    for (size_t size : {0, 3, 8, 60, 1448, 3000}) {
        Send s{5, 1, b.random.bytes(size), size > 60};
        Receive r{0, 1, 3000};
        b.go(5, r), b.go(0, s);
        b.run();
        got(r, s, 0);
    }
    for (const Frame &f : sent) {
        check(ip_sum(f) == 0xffff, "the checksum is wrong");
        const unsigned total = byte(f, 16) << 8 | byte(f, 17), datagram = byte(f, 38) << 8 | byte(f, 39);
        const uint64_t head = f.beats[kHead];
        const unsigned kind = head >> 16 & 0xf, size = kind == 2 || kind == 3 ? head >> 24 & 0xffffff : 0;
        check(datagram == 22 + (size + 7) / 8 * 8 && total == datagram + 20 && total <= 1500, "a wrong length: " + std::to_string(total));
        check(f.beats.size() == std::max<size_t>(8, (14 + total + 7) / 8), "a frame of another length");
        const std::vector<unsigned> same{2, 0, 0, 0, 0, 0x11, 2, 0, 0, 0, 0, 0x10, 8, 0, 0x45, 0};
        for (size_t i = 0; i < same.size(); i++) check(byte(f, i) == same[i], "byte " + std::to_string(i));
        check(byte(f, 20) == 0x40 && byte(f, 23) == 17 && byte(f, 29) == 0x10 && byte(f, 33) == 0x11, "the header is wrong");
        check((byte(f, 34) << 8 | byte(f, 35)) == 9000 && (byte(f, 36) << 8 | byte(f, 37)) == 9000 && byte(f, 40) == 0 && byte(f, 41) == 0, "ports");
    }
    // Each checked bit of the header: protocol, addresses, port, fragments,
    // and the checksum for the rest.
    const auto before = b->strange[0];
    std::vector<Frame> answers;
    b.carry = [&](int, Frame f) { answers.push_back(f); };
    const Frame ask = to_board_0(0x00'00'000000'08'05'00ull);
    for (size_t bit = 12 * 8; bit < 38 * 8; bit++) {
        // Service and sender.
        if ((bit >= 15 * 8 && bit < 16 * 8) || (bit >= 34 * 8 && bit < 36 * 8)) continue;
        Frame f = ask;
        f.beats[bit / 64] ^= 1ull << bit % 64;
        b.wire[0].push_back(f);
    }
    b.run();
    check(answers.empty(), std::to_string(answers.size()) + " damaged frames were taken");
    check(b->strange[0] > before, "not counted");
    b.wire[0].push_back(ask);
    b.run();
    check(answers.size() == 1, "a whole one was left");
}
#endif

#else
TEST(packets_lost_repeated_or_reordered_arrive_once_and_in_order) {
    for (int kind = 0; kind < 3; kind++) {
        Boards b;
        b.millisecond = 100;
        Frame kept;
        uint64_t n = 0;
        b.carry = [&](int to, Frame f) {
            const bool hit = ++n % 7 == 0;
            if (hit && kind == 0) return;
            if (hit && kind == 1) b.wire[to].push_back(f);
            if (hit && kind == 2 && to == 1 && kept.beats.empty()) {
                kept = f;
                return;
            }
            b.wire[to].push_back(f);
            if (kind == 2 && to == 1 && !kept.beats.empty()) b.wire[1].push_back(kept), kept.beats.clear();
        };
        std::deque<Send> sends;
        std::deque<Receive> receives;
        for (unsigned i = 0; i < 12; i++) {
            sends.push_back({5, i, b.random.bytes(b.random.below(6000))});
            receives.push_back({0, static_cast<int>(i), 6000});
            b.go(0, sends.back());
            b.go(5, receives.back());
        }
        b.run(3000000);
        for (size_t i = 0; i < 12; i++) got(receives[i], sends[i], 0);
        if (kind == 0) check(b->segments_repeated[0] + b->segments_repeated[1] > 0, "nothing was lost");
    }
}

TEST(a_reset_of_a_session_is_reported) {
    Boards b;
    Frame last;
    b.carry = [&](int to, Frame f) {
        if (to == 1) last = f;
        b.wire[to].push_back(f);
    };
    Send s{5, 1, b.random.bytes(20)};
    Receive r{0, 1, 20};
    b.go(0, s), b.go(5, r);
    b.run();
    got(r, s, 0);
    // Board 0's last segment, an acknowledgment of all data,
    // as a reset at its next sequence number.
    b.run();
    Frame f = last;
    auto byte = [&](size_t i) { return static_cast<uint8_t>(f.beats[i / 8] >> 8 * (i % 8)); };
    auto set = [&](size_t i, unsigned v) { f.beats[i / 8] = (f.beats[i / 8] & ~(0xffull << 8 * (i % 8))) | uint64_t(v & 0xff) << 8 * (i % 8); };
    const size_t payload = (byte(16) << 8 | byte(17)) - 40u;
    uint32_t seq = 0;
    for (size_t i = 0; i < 4; i++) seq = seq << 8 | byte(38 + i);
    seq += static_cast<uint32_t>(payload);
    for (size_t i = 0; i < 4; i++) set(38 + i, seq >> (24 - 8 * i));
    set(47, 0x04);
    set(16, 0), set(17, 40);
    f.beats.resize(8), f.keep = 0x0f;
    auto sum = [&](size_t from, size_t to, uint32_t start) {
        for (size_t i = from; i < to; i += 2) start += static_cast<uint32_t>(byte(i) << 8 | byte(i + 1));
        while (start >> 16) start = (start & 0xffff) + (start >> 16);
        return ~start;
    };
    set(24, 0), set(25, 0);
    const uint32_t ip = sum(14, 34, 0);
    set(24, ip >> 8), set(25, ip);
    set(50, 0), set(51, 0);
    const uint32_t tcp = sum(26, 54, 6 + 20);
    set(50, tcp >> 8), set(51, tcp);
    b.wire[1].push_back(f);
    bool fault_reported = false;
    for (int i = 0; i < 2000; i++) b.step(), fault_reported |= b->failed[1];
    check(fault_reported, "the fault is not reported");
}
#endif

TEST(cycles_and_throughput) {
    {
        Boards b;
        Send s{1, 1, {}};
        Receive r{0, 1, 0};
        b.go(1, r);
        for (int i = 0; i < 20; i++) b.step();
        b.go(0, s);
        b.run();
        got(r, s, 0);
        const double four = static_cast<double>(s.ended - s.began);
        number("same board, no payload, four packets", four);
        check(four <= 24, "four packets take " + std::to_string(four));
        Send e{1, 2, {}, true};
        Receive q{0, 2, 0};
        b.go(1, q);
        for (int i = 0; i < 20; i++) b.step();
        b.go(0, e);
        b.run();
        const double eager = static_cast<double>(q.ended - e.began);
        number("same board, no payload, eager", eager);
        check(eager <= 8, "an eager message takes " + std::to_string(eager));
    }
    {
        Boards b;
        Send s{5, 1, {}};
        Receive r{0, 1, 0};
        b.go(5, r);
        for (int i = 0; i < 20; i++) b.step();
        // No timer expires meanwhile, as at 156.25 MHz.
        b.millisecond = 156250;
        for (int i = 0; i < 200; i++) b.step();
        b.go(0, s);
        b.run();
        const uint64_t out = b.first_out - b.first_in, in = b.first_packet - b.first_frame, all = s.ended - s.began;
        number(("two boards, " + kName + ", no payload, four packets (the wire takes each frame whole)").c_str(), static_cast<double>(all));
        number((kName + " bridge, out").c_str(), static_cast<double>(out));
        number((kName + " bridge, in").c_str(), static_cast<double>(in));
        check(std::max(out, in) <= (W == 0 ? 6 : W == 1 ? 40 : 10), "the network bridge is slow");
        // 0.7 and 2.5 µs at 156.25 MHz.
        check(all <= (W == 1 ? 390 : 109), "a message between two boards takes " + std::to_string(all) + " cycles");
    }
    // Messages one after another: payload beats relative to beats at line rate,
    // without the packets' envelopes.
    for (bool eager : {false, true})
        for (size_t size : {size_t(4) << 10, size_t(16) << 10, size_t(128) << 10}) {
            Boards b;
            std::deque<Send> sends;
            std::deque<Receive> receives;
            for (int i = 0; i < 4; i++) {
                sends.push_back({1, 1, b.random.bytes(size), eager});
                receives.push_back({0, 1, unsigned(size)});
                b.go(0, sends.back());
                b.go(1, receives.back());
            }
            b.run(1000000);
            for (int i = 0; i < 4; i++) got(receives[i], sends[i], 0);
            // From the end of the first to that of the last, so that overlap counts as in a stream.
            const double cycles = static_cast<double>(receives[3].ended - receives[0].ended) / 3;
            const double payload = static_cast<double>(size) / 8, heads = static_cast<double>((size + 1447) / 1448);
            const double share = (payload + heads) / cycles;
            number((std::string(eager ? "eager" : "four packets") + ", share of line rate in percent at " + std::to_string(size)).c_str(), 100 * share);
            if (eager ? size >= 4096 : size >= 131072) check(share >= 0.99, "throughput is " + std::to_string(share));
        }
}

// Messages one after another from one kernel of a board to one of the other, or from four to four,
// each with its own: percent of what the frames' heads and gaps and the envelopes leave of the
// line.
double share_between_boards(bool cable, bool eager, int kernels, size_t size) {
    // Beats of 1,448 bytes of payload on the wire.
    const double frame = W == 0 ? 24 + 16 + 8 + 1448 : W == 1 ? 1538.0 / 1460 * (8 + 1448) : 24 + 48 + 8 + 1448;
    Boards b;
    b.millisecond = 156250;
    b.cable = cable;
    std::deque<Send> sends;
    std::deque<Receive> receives;
    // Enough that the start of a TCP session, about 850 cycles once, does not matter.
    const int count = static_cast<int>(std::max<size_t>(4, (size_t(1) << 21) / size));
    for (int k = 0; k < kernels; k++)
        for (int i = 0; i < count; i++) {
            sends.push_back({unsigned(4 + k), 1, b.random.bytes(size), eager});
            receives.push_back({k, 1, unsigned(size)});
            b.go(k, sends.back());
            b.go(4 + k, receives.back());
        }
    // While all are active: from the time at which each has received a message to the first end.
    auto arrived = [&] {
        size_t bytes = 0;
        for (const Receive &r : receives) bytes += r.data.size();
        return bytes;
    };
    auto until = [&](auto &&yes) {
        while (!yes()) b.step();
        return std::pair{b.cycles, arrived()};
    };
    const auto each = [&](int i) {
        int done = 0;
        for (int k = 0; k < kernels; k++) done += receives[k * count + i].done;
        return done;
    };
    const auto began = until([&] { return each(0) == kernels; });
    const auto ended = until([&] { return each(count - 1) > 0; });
    b.run(20000000);
    for (int i = 0; i < kernels * count; i++) got(receives[i], sends[i], static_cast<unsigned>(i / count));
    const double bytes = static_cast<double>(ended.second - began.second), taken = static_cast<double>(ended.first - began.first);
    return bytes / 1448 * frame / 8 / taken;
}

TEST(throughput_between_boards) {
    for (bool cable : {true, false})
        for (bool eager : {false, true})
            for (int kernels : {1, 4})
                for (size_t size : eager ? std::array<size_t, 2>{4096, 32768} : std::array<size_t, 2>{131072, 1048576}) {
                    const double share = share_between_boards(cable, eager, kernels, size);
                    number((std::string(cable ? "cable " : "switch ") + kName + ", " + (eager ? "eager" : "four packets") + ", " + std::to_string(kernels) +
                            (kernels == 1 ? " kernel" : " kernels") + ", percent of its ceiling at " + std::to_string(size)).c_str(), 100 * share);
                    // A message of four packets waits for replies. A switch stores these and the
                    // last frame completely; with TCP, both ends store the last segment,
                    // for its checksum.
                    const bool waits = !eager && size == 131072 && (W == 1 || (!cable && kernels == 1));
                    if (!waits) check(share >= 0.99, "throughput is " + std::to_string(share));
                }
}

// The paper's figures 11 and 12: four messages of each size one after another, in percent of 10
// Gb/s (8 bytes a cycle): to a kernel on the same board and to one on the other.
TEST(curves) {
    for (unsigned to : {1u, 5u})
        for (size_t size = 64; size <= size_t(1) << 20; size *= 4) {
            Boards b;
            b.millisecond = 156250;
            std::deque<Send> sends;
            std::deque<Receive> receives;
            const int count = size > 65536 ? 2 : 4;
            for (int i = 0; i < count; i++) {
                sends.push_back({to, 1, b.random.bytes(size)});
                receives.push_back({0, 1, unsigned(size)});
                b.go(0, sends.back());
                b.go(static_cast<int>(to), receives.back());
            }
            b.run(2000000);
            for (int i = 0; i < count; i++) got(receives[i], sends[i], 0);
            const double cycles = static_cast<double>(receives[count - 1].ended - receives[0].ended) / (count - 1);
            const std::string where = to == 1 ? "same board" : "two boards, " + kName;
            number(("curve " + where + ", percent of 10 Gb/s at " + std::to_string(size)).c_str(), 100 * static_cast<double>(size) / 8 / cycles);
        }
}

BENCH_MAIN()
