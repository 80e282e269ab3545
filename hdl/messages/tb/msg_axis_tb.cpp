// A kernel without engines: its streams arrive as packets, and received packets are streamed, for
// every sender and kind of send.
#include "clocked.hpp"

#include <array>
#include <deque>
#include <map>

using namespace bench;

namespace {

enum : uint8_t { kEnvelope, kClear, kData, kEager, kError, kDone, kStream = 10 };
enum : uint8_t { kFull = 3, kLost = 4, kRank = 5, kMore = 2, kCollective = 4 };
constexpr unsigned kOwn = 3, kRanks = 9, kPacket = 1448;

uint64_t envelope(unsigned dest, unsigned src, uint8_t kind, size_t size, unsigned tag, uint8_t flag) {
    return dest | uint64_t(src) << 8 | uint64_t(kind) << 16 | uint64_t(size) << 24 | uint64_t(tag & 0xff) << 48 | uint64_t(tag >> 8) << 20 |
           uint64_t(flag) << 60;
}

struct Beat {
    uint64_t data;
    bool last;
};

struct Message {
    unsigned peer, tag;
    Bytes data;
    bool operator==(const Message &o) const { return peer == o.peer && tag == o.tag && data == o.data; }
};

uint64_t word(const Bytes &data, size_t at) {
    uint64_t word = 0;
    for (size_t i = 8; i-- > 0;) word = word << 8 | (at + i < data.size() ? data[at + i] : 0);
    return word;
}

void take(Bytes &data, uint64_t word, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) data.push_back(static_cast<uint8_t>(word >> 8 * i));
}

class Axis : public Clocked {
public:
    unsigned idle = 0, stall = 0;  // percent
    std::deque<Message> to_send;   // by the kernel
    std::deque<Beat> to_kernel;    // from the router
    std::deque<Message> sent;      // as assembled by receivers
    std::map<unsigned, Message> coming;
    std::deque<Message> came;      // as assembled by the kernel
    std::deque<uint64_t> answers;
    uint64_t ended = 0, first = 0, last = 0;

    Axis() {
        auto &d = *this;
        d->own = kOwn;
        d->ranks = kRanks;
        d->out_tvalid = d->s_valid = 0;
        reset();
    }

    void step() {
        auto &d = *this;
        if (!out_shown_) d->out_tvalid = !to_send.empty() && !random.percent(idle);
        if (!to_send.empty()) {
            const Message &m = to_send.front();
            const size_t left = m.data.size() - at_;
            d->out_tdata = word(m.data, at_);
            d->out_tlast = left <= 8;
            d->out_tkeep = static_cast<uint8_t>(left >= 8 ? 0xff : (1u << left) - 1);
            d->out_tdest = static_cast<uint8_t>(m.peer);
            d->out_tuser = static_cast<uint16_t>(m.tag);
        }
        if (!s_shown_) d->s_valid = !to_kernel.empty() && !random.percent(idle);
        if (!to_kernel.empty()) d->s_data = to_kernel.front().data, d->s_last = to_kernel.front().last;
        d->in_tready = !random.percent(stall);
        d->m_ready = !random.percent(stall);
        settle();
        out_shown_ = d->out_tvalid && !d->out_tready;
        s_shown_ = d->s_valid && !d->s_ready;
        if (d->out_tvalid && d->out_tready) {
            at_ += 8;
            if (d->out_tlast) to_send.pop_front(), at_ = 0, ended = cycles;
        }
        if (d->s_valid && d->s_ready) to_kernel.pop_front();
        if (d->m_valid && d->m_ready) packet(d->m_data, d->m_last);
        if (d->in_tvalid && d->in_tready) streamed();
        rise();
    }

    void run(unsigned clocks = 200000) {
        unsigned quiet = 0;
        for (unsigned i = 0; i < clocks && quiet < 50; i++) {
            step();
            quiet = to_send.empty() && to_kernel.empty() && (*this)->idle ? quiet + 1 : 0;
        }
        check(quiet == 50, "it does not come to an end");
    }

    // The packets of a message, by kind of sender.
    std::deque<std::deque<Beat>> packets(const Message &m, uint8_t kind, uint8_t flag = 0) {
        std::deque<std::deque<Beat>> all;
        size_t at = 0;
        do {
            const size_t piece = std::min<size_t>(kPacket, m.data.size() - at);
            const bool more = at + piece < m.data.size();
            std::deque<Beat> packet;
            packet.push_back({envelope(kOwn, m.peer, kind, piece, kind == kData ? 0 : m.tag, flag | (more ? kMore : 0)), piece == 0});
            for (size_t i = 0; i < piece; i += 8) packet.push_back({word(m.data, at + i), i + 8 >= piece});
            all.push_back(packet);
            at += piece;
        } while (at < m.data.size());
        return all;
    }
    void put(const std::deque<Beat> &packet) { to_kernel.insert(to_kernel.end(), packet.begin(), packet.end()); }
    void put(uint64_t head) { to_kernel.push_back({head, true}); }

private:
    size_t at_ = 0, left_ = 0;
    bool out_shown_ = false, s_shown_ = false, within_ = false;
    uint64_t head_ = 0;

    void packet(uint64_t data, bool is_last) {
        if (!within_) {
            head_ = data;
            const uint8_t kind = data >> 16 & 0xf;
            if (kind != kStream) {
                check(is_last, "an answer has one beat");
                answers.push_back(data);
                return;
            }
            if (first == 0) first = cycles;
            left_ = data >> 24 & 0xffffff;
            check((data >> 8 & 0xff) == kOwn, "a packet of somebody else's");
            check(left_ <= kPacket, "a packet is too long");
            Message &m = coming[data & 0xff];
            if (m.data.empty()) m = {unsigned(data & 0xff), unsigned((data >> 48 & 0xff) | (data >> 20 & 0xf) << 8), {}};
            within_ = true;
            check(is_last == (left_ == 0), "a packet's end");
        } else {
            const size_t n = std::min<size_t>(8, left_);
            take(coming[head_ & 0xff].data, data, n);
            left_ -= n;
            check(is_last == (left_ == 0), "a packet's end");
        }
        last = cycles;
        if (!is_last) return;
        within_ = false;
        if (head_ >> 60 & kMore) return;
        sent.push_back(coming[head_ & 0xff]);
        coming.erase(head_ & 0xff);
    }

    std::map<unsigned, Message> pieces_;
    void streamed() {
        auto &d = *this;
        Message &m = pieces_[d->in_tid];
        m.peer = d->in_tid;
        if (m.data.empty()) m.tag = d->in_tuser;
        check(m.tag == d->in_tuser, "a message's tag changes");
        const uint8_t keep = d->in_tkeep;
        check((keep & (keep + 1)) == 0, "bytes that are not from the lowest on");
        check(d->in_tlast || keep == 0xff, "a beat in the middle is not full");
        for (int i = 0; i < 8; i++)
            if (keep >> i & 1) m.data.push_back(static_cast<uint8_t>(d->in_tdata >> 8 * i));
        if (!d->in_tlast) return;
        came.push_back(m);
        pieces_.erase(d->in_tid);
    }
};

Message any(Axis &axis, size_t most) {
    unsigned peer = unsigned(axis.random.below(kRanks - 1));
    return {peer + (peer >= kOwn), unsigned(axis.random.below(4096)), axis.random.bytes(axis.random.below(most))};
}

TEST(packets_of_a_stream_arrive_whole_in_order_and_where_they_are_to_go) {
    for (unsigned wait : {0, 30}) {
        Axis axis;
        axis.idle = axis.stall = wait;
        std::deque<Message> all;
        for (size_t bytes : {0, 1, 7, 8, 9, 1440, 1447, 1448, 1449, 1456, 2895, 2896, 2897}) {
            all.push_back(any(axis, 1));
            all.back().data = axis.random.bytes(bytes);
        }
        for (int i = 0; i < 200; i++) all.push_back(any(axis, i % 4 == 0 ? 5000 : 64));
        axis.to_send = all;
        axis.run();
        check(axis.sent == all, "the packets differ from the stream");
        check(axis->fault == 0, "a fault");
    }
}

TEST(all_kinds_of_sends_are_streamed_and_answered) {
    for (unsigned wait : {0, 30}) {
        Axis axis;
        axis.idle = axis.stall = wait;
        for (int i = 0; i < 200; i++) {
            const uint8_t kind = std::array<uint8_t, 3>{kStream, kEager, kData}[axis.random.below(3)];
            const Message m = any(axis, i % 4 == 0 ? 5000 : 64);
            axis.came.clear();
            axis.answers.clear();
            if (kind == kData) {
                axis.put(envelope(kOwn, m.peer, kEnvelope, m.data.size(), m.tag, 0));
                axis.run();
                check(axis.answers.size() == 1 && axis.answers[0] == envelope(m.peer, kOwn, kClear, 0, 0, 0), "it is not cleared");
                axis.answers.clear();
            }
            for (const auto &packet : axis.packets(m, kind)) axis.put(packet);
            axis.run();
            check(axis.came.size() == 1 && axis.came[0] == m, "the stream differs from the message");
            check(axis.answers.size() == (kind == kData), "answers");
            if (kind == kData) check(axis.answers[0] == envelope(m.peer, kOwn, kDone, 0, 0, 0), "it is not done");
        }
    }
}

TEST(pieces_of_several_senders_alternate_and_are_distinguished) {
    Axis axis;
    axis.stall = 20;
    const Message a{1, 5, axis.random.bytes(6000)}, b{2, 6, axis.random.bytes(7000)};
    axis.put(envelope(kOwn, 2, kEnvelope, b.data.size(), b.tag, 0));
    auto p = axis.packets(a, kStream), q = axis.packets(b, kData);
    for (size_t i = 0; i < q.size(); i++) {
        if (i < p.size()) axis.put(p[i]);
        axis.put(q[i]);
    }
    axis.run();
    check(axis.came.size() == 2 && axis.came[0] == a && axis.came[1] == b, "they are mixed up");
}

TEST(a_stream_that_is_not_taken_waits_and_loses_nothing) {
    Axis axis;
    std::deque<Message> all;
    for (int i = 0; i < 20; i++) {
        all.push_back(any(axis, 3000));
        for (const auto &packet : axis.packets(all.back(), kStream)) axis.put(packet);
    }
    axis.stall = 100;
    for (int i = 0; i < 2000; i++) axis.step();
    check(axis.came.empty(), "who took it?");
    axis.stall = 0;
    axis.run();
    check(axis.came == all, "something is missing");
}

TEST(impossible_packets_are_refused_and_reported) {
    {
        Axis axis;
        axis.put(envelope(kOwn, 1, kEnvelope, 8, 0, kCollective));
        for (const auto &packet : axis.packets({1, 0, Bytes(20)}, kEager, kCollective)) axis.put(packet);
        axis.put({{envelope(kOwn, 1, kStream, 2000, 0, 0), false}, {0, false}, {0, true}});
        axis.run();
        const uint64_t refusal = envelope(1, kOwn, kError, 0, kRank, 0);
        check(axis.answers == std::deque<uint64_t>(3, refusal), "the refusal is missing");
        check(axis.came.empty() && axis->fault == 0, "it continues after the fault");
    }
    for (unsigned to : {kOwn, kRanks, 255u}) {
        Axis axis;
        axis.to_send.push_back({to, 0, Bytes(8)});
        axis.run();
        check(axis->fault == kRank, "no fault for a rank that is not there");
    }
    for (uint8_t fault : {kFull, kLost}) {
        Axis axis;
        axis.put(envelope(kOwn, 1, kError, 0, fault, 0));
        axis.run();
        check(axis->fault == fault, "a packet that went missing is not noted");
    }
}

TEST(clocks_are_as_documented) {
    Axis axis;
    axis.to_send.push_back({1, 0, Bytes(8)});
    axis.run();
    const uint64_t out = axis.first - axis.ended;
    Axis bulk;
    for (int i = 0; i < 100; i++) bulk.to_send.push_back({1, 0, Bytes(kPacket)});
    bulk.run();
    const uint64_t clocks = bulk.last - bulk.first + 1;
    std::printf("  clocks: a packet's last beat to its envelope %lu; 100 packets of %u bytes %lu\n", (unsigned long)out, kPacket,
                (unsigned long)clocks);
    check(out == 2, "a packet takes " + std::to_string(out));
    check(clocks == 100 * (kPacket / 8 + 1), "packets take " + std::to_string(clocks));
}

}  // namespace

BENCH_MAIN()
