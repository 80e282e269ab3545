// The message port of a region's boundary: what a kernel does, well-formed or not, and when its run
// ends, against a model of the packets that the router, and the kernel, may receive.
#include <deque>
#include <vector>

#include "clocked.hpp"

using namespace bench;

namespace {

using Packet = std::vector<uint64_t>;

constexpr unsigned kMost = 1448, kRank = 77;
enum Kind { Envelope = 0, Clear = 1, Data = 2, Eager = 3, Error = 4, Stream = 10 };  // hum_envelope_pkg

uint64_t envelope(unsigned kind, unsigned size, unsigned source) {
    return uint64_t(kind) << 16 | uint64_t(size) << 24 | uint64_t(source) << 8 | 5;
}
unsigned kind_of(uint64_t head) { return head >> 16 & 15; }
unsigned size_of(uint64_t head) { return head >> 24 & 0xffffff; }
bool carries(unsigned kind) { return kind == Data || kind == Eager || kind == Stream; }
size_t beats_after(uint64_t head) { return carries(kind_of(head)) ? (size_of(head) + 7) / 8 : 0; }

class Boundary : public Clocked {
public:
    std::deque<uint64_t> wide;          // beats of the kernel that wait; `last` beside
    std::deque<bool> wide_last;
    std::vector<Packet> sent;           // what the router has received
    std::vector<Packet> arrived;        // what the kernel has received
    std::deque<Packet> incoming;        // packets of the router
    unsigned patience = 60;             // percent of cycles in which a receiver is ready

    Boundary() {
        auto &d = *this;
        d->start = d->off = d->put = d->out_valid = d->m_valid = d->in_ready = d->k_ready = 0;
        reset();
        place();
    }
    void place() {
        (*this)->put = 1;
        (*this)->put_rank = kRank;
        step();
        (*this)->put = 0;
    }
    void start() {
        (*this)->start = 1;
        step();
        (*this)->start = 0;
    }
    void off() {
        (*this)->off = 1;
        step();
        (*this)->off = 0;
        // A kernel that is reset has no beats.
        wide.clear();
        wide_last.clear();
        if (!part_.empty()) cut_.push_back(std::move(part_));
        part_.clear();
    }
    void offer(const Packet &packet) {
        for (size_t i = 0; i < packet.size(); i++) {
            wide.push_back(packet[i]);
            wide_last.push_back(i + 1 == packet.size());
        }
    }
    void step() {
        auto &d = *this;
        d->out_valid = !wide.empty() && random.percent(80);
        if (!wide.empty()) d->out_data = wide.front(), d->out_last = wide_last.front();
        d->m_valid = !incoming.empty() && random.percent(80);
        if (!incoming.empty()) d->m_data = incoming.front()[at_], d->m_last = at_ + 1 == incoming.front().size();
        d->in_ready = random.percent(patience);
        d->k_ready = random.percent(patience);
        settle();
        if (d->out_valid && d->out_ready) wide.pop_front(), wide_last.pop_front();
        if (d->k_valid && d->k_ready) {
            router_.push_back(d->k_data);
            if (d->k_last) sent.push_back(std::move(router_)), router_.clear();
        }
        if (d->in_valid && d->in_ready) {
            part_.push_back(d->in_data);
            if (d->in_last) arrived.push_back(std::move(part_)), part_.clear();
        }
        if (d->m_valid && d->m_ready && ++at_ == incoming.front().size()) incoming.pop_front(), at_ = 0;
        rise();
    }
    void steps(unsigned count) {
        for (unsigned i = 0; i < count; i++) step();
    }
    void drain() {
        for (unsigned i = 0; i < 400000 && (!wide.empty() || !incoming.empty()); i++) step();
        check(wide.empty() && incoming.empty(), "beats are not accepted");
        steps(400);
        check(router_.empty(), "the router waits for the rest of a packet");
    }
    size_t cut() const { return cut_.size(); }

private:
    Packet router_, part_;
    std::vector<Packet> cut_;
    size_t at_ = 0;
};

// A packet as a kernel may send it: its length is that of its envelope, or not.
Packet random_packet(Random &random, bool honest) {
    static const Kind kinds[] = {Envelope, Clear, Data, Eager, Error, Stream};
    const unsigned size = honest || random.percent(80) ? random.below(random.percent(50) ? 40 : kMost + 1) : kMost + 1 + random.below(1 << 20);
    Packet packet = {envelope(kinds[random.below(6)], size, random.below(256))};
    size_t beats = size > kMost ? random.below(200) : beats_after(packet[0]);
    if (!honest && random.percent(40)) beats = random.below(300);
    for (size_t i = 0; i < beats; i++) packet.push_back(random.next() | 1);
    return packet;
}

// The packet that the router may receive of it.
bool expect(const Packet &from, Packet &to) {
    if (carries(kind_of(from[0])) && size_of(from[0]) > kMost) return false;
    to = from;
    to[0] = (from[0] & ~0xff00ull) | uint64_t(kRank) << 8;
    to.resize(1 + beats_after(from[0]));
    return true;
}

TEST(packets_of_any_form_leave_whole_and_from_their_rank) {
    Boundary boundary;
    boundary.start();
    std::vector<Packet> expected;
    for (int i = 0; i < 400; i++) {
        const Packet packet = random_packet(boundary.random, i < 100);
        Packet right;
        if (expect(packet, right)) expected.push_back(right);
        boundary.offer(packet);
        boundary.steps(boundary.random.below(50));
    }
    boundary.drain();
    check(boundary.sent == expected, "the router received other packets");
}

TEST(a_run_that_is_killed_leaves_a_whole_packet_and_takes_none) {
    Boundary boundary;
    for (int turn = 0; turn < 200; turn++) {
        boundary.start();
        boundary.sent.clear();
        boundary.arrived.clear();
        std::vector<Packet> offered, given;
        for (int i = 0; i < 5; i++) {
            offered.push_back(random_packet(boundary.random, true));
            boundary.offer(offered.back());
            given.push_back(random_packet(boundary.random, true));
            boundary.incoming.push_back(given.back());
        }
        boundary.steps(boundary.random.below(300));
        boundary.off();
        boundary.drain();
        // The router received the first packets, the last one of them perhaps with zeros at its end.
        check(boundary.sent.size() <= offered.size(), "the router received more than was sent");
        for (size_t i = 0; i < boundary.sent.size(); i++) {
            Packet right;
            expect(offered[i], right);
            const Packet &seen = boundary.sent[i];
            check(seen.size() == right.size(), "a packet has another length");
            size_t same = 0;
            while (same < seen.size() && seen[same] == right[same]) same++;
            const bool zeros = std::all_of(seen.begin() + same, seen.end(), [](uint64_t word) { return word == 0; });
            check(same == seen.size() || (zeros && i + 1 == boundary.sent.size()), "a packet has other beats");
        }
        // The kernel received the first packets whole.
        check(boundary.arrived.size() <= given.size(), "the kernel received more than was sent");
        for (size_t i = 0; i < boundary.arrived.size(); i++) check(boundary.arrived[i] == given[i], "a packet for the kernel differs");
    }
}

TEST(a_kernel_that_starts_in_the_middle_of_a_packet_receives_the_next_one) {
    Boundary boundary;
    for (int turn = 0; turn < 100; turn++) {
        boundary.start();
        boundary.off();
        boundary.arrived.clear();
        Packet first = {envelope(Eager, 800, 3)};
        first.resize(101, 9);
        const Packet second = {envelope(Clear, 0, 3)};
        boundary.incoming.push_back(first);
        boundary.incoming.push_back(second);
        boundary.steps(2 + boundary.random.below(60));
        boundary.start();
        boundary.drain();
        check(boundary.arrived.size() <= 2 && !boundary.arrived.empty() && boundary.arrived.back() == second, "the next packet is missing");
        if (boundary.arrived.size() == 2) check(boundary.arrived[0] == first, "a part of a packet arrived");
    }
}

TEST(packets_wait_for_the_start_of_a_rank) {
    Boundary boundary;
    for (int turn = 0; turn < 20; turn++) {
        std::vector<Packet> given;
        for (int i = 0; i < 4; i++) {
            given.push_back(random_packet(boundary.random, true));
            boundary.incoming.push_back(given.back());
        }
        // Its region is loaded meanwhile.
        boundary.steps(20);
        boundary.off();
        boundary.steps(20);
        check(boundary.incoming.size() == 4, "a packet was taken");
        boundary.start();
        boundary.drain();
        check(boundary.arrived == given, "other packets arrived");
        boundary.arrived.clear();
        boundary.off();
        boundary.place();
    }
}

TEST(beats_pass_at_line_rate) {
    Boundary boundary;
    boundary.patience = 100;
    boundary.start();
    auto &d = boundary;
    Packet packet = {envelope(Data, kMost, 1)};
    packet.resize(182, 7);
    // Without pauses of the kernel.
    unsigned cycles = 0, beats = 0;
    d->k_ready = 1;
    for (int i = 0; i < 10; i++)
        for (size_t at = 0; at < packet.size(); at++) {
            d->out_valid = 1;
            d->out_data = packet[at];
            d->out_last = at + 1 == packet.size();
            d.settle();
            check(d->out_ready, "the boundary pauses");
            beats += d->k_valid;
            d.rise();
            cycles++;
        }
    check(beats + 1 == cycles, "a beat is late");
}

}  // namespace

BENCH_MAIN()
