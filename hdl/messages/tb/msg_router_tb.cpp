// The router with all its ports at once, as on a board of sixteen kernels: no packet is lost, and
// every output has line rate.
#include "clocked.hpp"

#include <algorithm>
#include <array>
#include <deque>

using namespace bench;

namespace {

constexpr int kPorts = 17, kNet = 16;
constexpr unsigned kBeats = 182;  // an envelope and 1,448 bytes

struct Packet {
    unsigned from, to, serial, beats;
};

class Router : public Clocked {
public:
    unsigned idle = 0, stall = 0;
    std::array<std::deque<Packet>, kPorts> in;
    std::array<std::vector<Packet>, kPorts> out;
    std::array<uint64_t, kPorts> first{}, last{}, beats{};

    Router() {
        auto &d = *this;
        d->s_valid = 0, d->m_ready = 0;
        reset();
        d->put = 1;
        for (unsigned r = 0; r < 256; r++) d->put_rank = static_cast<uint8_t>(r), settle(), rise();
        d->put = 0;
    }
    // The first beat has destination, sender, number and length; the others count.
    static uint64_t beat(const Packet &p, unsigned at) {
        return at == 0 ? p.to | uint64_t(p.from) << 8 | uint64_t(p.serial) << 16 | uint64_t(p.beats) << 48 : uint64_t(p.serial) << 16 | at;
    }
    void step() {
        auto &d = *this;
        for (int i = 0; i < kPorts; i++) {
            const uint32_t bit = 1u << i;
            if (!shown_[i]) shown_[i] = !in[i].empty() && !random.percent(idle);
            d->s_valid = shown_[i] ? d->s_valid | bit : d->s_valid & ~bit;
            if (!in[i].empty()) {
                d->s_data[i] = beat(in[i].front(), at_[i]);
                d->s_last = at_[i] + 1 == in[i].front().beats ? d->s_last | bit : d->s_last & ~bit;
            }
            d->m_ready = random.percent(stall) ? d->m_ready & ~bit : d->m_ready | bit;
        }
        settle();
        for (int i = 0; i < kPorts; i++) {
            if (d->s_valid >> i & d->s_ready >> i & 1) {
                shown_[i] = false;
                if (++at_[i] == in[i].front().beats) in[i].pop_front(), at_[i] = 0;
            }
            if (d->m_valid >> i & d->m_ready >> i & 1) {
                const uint64_t data = d->m_data[i];
                if (first[i] == 0) first[i] = cycles;
                last[i] = cycles, beats[i]++;
                Packet &p = now_[i];
                if (got_[i] == 0) p = {unsigned(data >> 8 & 0xff), unsigned(data & 0xff), unsigned(data >> 16 & 0xffffffff), unsigned(data >> 48)};
                check(data == beat(p, got_[i]), "a beat of another packet");
                got_[i]++;
                const bool end = d->m_last >> i & 1;
                check(end == (got_[i] == p.beats), "a packet of another length");
                if (end) out[i].push_back(p), got_[i] = 0;
            }
        }
        rise();
    }
    void run() {
        for (int quiet = 0, i = 0; quiet < 50; i++) {
            check(i < 2000000, "hangs");
            step();
            bool still = true;
            for (auto &q : in) still &= q.empty();
            quiet = still ? quiet + 1 : 0;
        }
    }

private:
    std::array<bool, kPorts> shown_{};
    std::array<unsigned, kPorts> at_{}, got_{};
    std::array<Packet, kPorts> now_{};
};

}  // namespace

TEST(packets_of_all_to_all_arrive_whole_and_in_order) {
    Router r;
    r.idle = r.stall = 20;
    std::array<std::array<std::vector<unsigned>, kPorts>, kPorts> sent;
    unsigned serial = 0, dropped = 0;
    for (int n = 0; n < 2000; n++) {
        const unsigned from = r.random.below(kPorts), to = r.random.below(60), port = to < 32 ? to % 16 : to < 48 ? kNet : 99;
        r.in[from].push_back({from, to, ++serial, 1 + r.random.below(20)});
        if (port == 99 || port == from) dropped++;
        else sent[from][port].push_back(serial);
    }
    r.run();
    for (unsigned port = 0; port < kPorts; port++) {
        std::array<size_t, kPorts> next{};
        for (const Packet &p : r.out[port]) {
            const auto &list = sent[p.from][port];
            check(next[p.from] < list.size() && list[next[p.from]++] == p.serial, "a packet twice, lost, or out of its order");
        }
        for (unsigned from = 0; from < kPorts; from++) check(next[from] == sent[from][port].size(), "a packet is missing");
    }
    check(r->dropped == dropped, "dropped: " + std::to_string(r->dropped) + " of " + std::to_string(dropped));
}

TEST(every_output_is_at_line_rate_while_all_are_busy) {
    Router r;
    // Kernels in a ring on the board, all at once; and the network's own.
    for (unsigned n = 0; n < 40; n++) {
        for (unsigned k = 0; k < 15; k++) r.in[k].push_back({k, (k + 1) % 16, n, kBeats});
        r.in[15].push_back({15, 40, n, kBeats});
        r.in[kNet].push_back({kNet, 0, n, kBeats});
    }
    r.run();
    for (int port = 0; port < kPorts; port++) {
        const double share = static_cast<double>(r.beats[port]) / static_cast<double>(r.last[port] - r.first[port] + 1);
        if (port == 1 || port == kNet) std::printf("cycles %s at line rate, percent, all ports busy %g\n", port == 1 ? "a kernel's output" : "the network's", 100 * share);
        check(share >= 0.99, "port " + std::to_string(port) + ": " + std::to_string(share));
    }
}

TEST(the_network_is_at_line_rate_for_sixteen_kernels_in_turn) {
    Router r;
    for (unsigned n = 0; n < 10; n++)
        for (unsigned k = 0; k < 16; k++) r.in[k].push_back({k, 32 + k, n, kBeats});
    r.run();
    const double share = static_cast<double>(r.beats[kNet]) / static_cast<double>(r.last[kNet] - r.first[kNet] + 1);
    std::printf("cycles the network's at line rate, percent, for sixteen kernels %g\n", 100 * share);
    check(share >= 0.99, std::to_string(share));
    check(r.out[kNet].size() == 160, "packets are missing");
    for (unsigned k = 0; k < 16; k++) check(r.out[kNet][k].from != r.out[kNet][(k + 1) % 16].from, "not in turn");
}

TEST(two_inputs_share_an_output_in_turn_under_any_traffic) {
    for (unsigned length = 1; length <= 12; length++)
        for (unsigned others = 0; others < 4; others++) {
            Router r;
            for (unsigned n = 0; n < 40; n++) {
                for (unsigned k : {1u, 5u}) r.in[k].push_back({k, 9, n, length});
                for (unsigned k : {0u, 8u, 11u})
                    if (k < 4 * others) r.in[k].push_back({k, k + 2, n, length});
            }
            r.run();
            check(r.out[9].size() == 80, "packets are missing");
            int ahead = 0;
            for (const Packet &p : r.out[9]) {
                ahead += p.from == 1 ? 1 : -1;
                check(std::abs(ahead) <= 1, "one before the other at length " + std::to_string(length) + ": " + std::to_string(ahead));
            }
        }
}

TEST(packets_of_one_beat_begin_one_a_cycle) {
    Router r;
    for (unsigned n = 0; n < 200; n++)
        for (unsigned k = 0; k < 16; k++) r.in[k].push_back({k, (k + 1) % 16, n, 1});
    r.run();
    const double cycles = static_cast<double>(*std::max_element(r.last.begin(), r.last.end()) - r.first[1] + 1);
    std::printf("cycles packets of one beat, of sixteen kernels, in a cycle %g\n", 16 * 200 / cycles);
    check(16 * 200 / cycles >= 0.99, "fewer than one a cycle");
}

BENCH_MAIN()
