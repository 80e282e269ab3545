// Two boards with message fabrics, joined by wires that a test can damage, and the messages of their
// kernels.
#pragma once
#include "clocked.hpp"

#include <array>
#include <cstring>
#include <deque>

namespace {

using namespace bench;

enum : uint8_t { kTruncate = 1, kType = 2, kFull = 3, kLost = 4, kRank = 5 };
constexpr int kRanks = 8;
// Additional bytes of a frame on the wire: preamble, check sequence and gap.
constexpr uint64_t kGap = 24;
// Beats before the envelope of raw Ethernet's frames and UDP's.
constexpr size_t kHead = W == 2 ? 6 : 2;

struct Send {
    unsigned dest, tag;
    Bytes data;
    bool eager = false;
    unsigned dtype = 0;
    bool done = false;
    uint8_t fault = 0;
    uint64_t began = 0, ended = 0;
};

struct Receive {
    int source;  // -1: any
    int tag;     // -1: any
    unsigned room;
    unsigned dtype = 0;
    bool once = false;
    Bytes data = {};
    bool done = false;
    uint8_t fault = 0;
    unsigned from = 0, got_tag = 0, size = 0;
    uint64_t began = 0, ended = 0;
};

struct Frame {
    std::vector<uint64_t> beats;
    uint8_t keep = 0xff;  // of the last one
    bool whole = true;
    uint64_t bytes() const { return 8 * beats.size() - 8 + static_cast<uint64_t>(__builtin_popcount(keep)); }
};

class Boards : public Clocked {
public:
    uint64_t millisecond = 400;    // in cycles: short, so that time-outs do not take long
    unsigned idle = 0, stall = 0;  // percent: late payload, waiting payload and frames
    std::array<std::deque<Send *>, kRanks> sends;
    std::array<std::deque<Receive *>, kRanks> receives;
    std::array<std::deque<Frame>, 2> wire;  // to each board
    std::function<void(int, Frame)> carry;  // to a board
    // The boards are connected by a cable: beats come out as they go in, at the line's rate, and a
    // frame must have no gap. Otherwise by a store-and-forward switch.
    bool cable = false;
    uint64_t frames = 0, first_in = 0, first_out = 0, first_frame = 0, first_packet = 0;

    Boards() {
        carry = [this](int to, Frame f) { wire[to].push_back(std::move(f)); };
        auto &d = *this;
        d->ranks = kRanks;
        d->station_put = d->tick = 0;
        for (int b = 0; b < 2; b++) d->rx_valid[b] = 0;
        reset();
        d->put = 1;
        for (int r = 0; r < 256; r++) {
            d->put_rank = static_cast<uint8_t>(r);
            settle();
            rise();
        }
        d->put = 0;
        for (int i = 0; i < 4200; i++) step();  // the counters' memories are being cleared
        d->station_put = 1;
        step();
        d->station_put = 0;
        for (int i = 0; i < 8; i++) step();
        for (int i = 0; d->owed[0] || d->owed[1]; i++) {
            check(i < 20000, "the boards do not find each other");
            step();
        }
        first_in = first_out = first_frame = first_packet = 0;
    }

    void step() {
        auto &d = *this;
        for (int r = 0; r < kRanks; r++) {
            auto &s = sends[r];
            d->send_valid[r] = !s.empty() && !sending_[r];
            if (!s.empty()) {
                const Send &c = *s.front();
                d->send_command[r] = uint64_t(c.eager) | uint64_t(c.data.size()) << 1 | uint64_t(c.dtype) << 25 | uint64_t(c.tag) << 29 |
                                     uint64_t(c.dest) << 42;
                if (d->send_valid[r] && c.began == 0) s.front()->began = cycles;
                if (!out_shown_[r]) d->out_valid[r] = sending_[r] && out_at_[r] < c.data.size() && !random.percent(idle);
                uint64_t beat = 0;
                size_t n = std::min<size_t>(8, c.data.size() - std::min(c.data.size(), out_at_[r]));
                std::memcpy(&beat, c.data.data() + out_at_[r], n);
                d->out_data[r] = beat;
            } else d->out_valid[r] = 0;
            auto &q = receives[r];
            d->receive_valid[r] = !q.empty() && !receiving_[r];
            if (!q.empty()) {
                const Receive &c = *q.front();
                d->receive_command[r] = uint64_t(c.room) | uint64_t(c.dtype) << 24 | uint64_t(c.tag < 0 ? 0 : c.tag) << 28 |
                                        uint64_t(c.tag < 0) << 40 | uint64_t(c.source < 0 ? 0 : c.source) << 42 |
                                        uint64_t(c.source < 0) << 50 | uint64_t(c.once) << 51;
                if (d->receive_valid[r] && c.began == 0) q.front()->began = cycles;
            }
            d->in_ready[r] = !random.percent(stall);
        }
        for (int b = 0; b < 2; b++) {
            d->tx_ready[b] = cable ? !out_[b].beats.empty() || free_[1 - b] <= 8 * cycles : !random.percent(stall);
            if (!rx_shown_[b]) d->rx_valid[b] = !wire[b].empty() && (cable || rx_at_[b] != 0 || free_[b] <= 8 * cycles) && !random.percent(idle);
            if (cable && d->rx_valid[b]) d->rx_valid[b] = wire[b].front().whole || rx_at_[b] + 1 < wire[b].front().beats.size();
            if (!cable && d->rx_valid[b] && rx_at_[b] == 0 && !rx_shown_[b]) taken_by_line(b, wire[b].front().bytes());
            if (!wire[b].empty()) {
                d->rx_data[b] = wire[b].front().beats[rx_at_[b]];
                d->rx_last[b] = wire[b].front().whole && rx_at_[b] + 1 == wire[b].front().beats.size();
                d->rx_keep[b] = d->rx_last[b] ? wire[b].front().keep : 0xff;
            }
        }
        d->tick = cycles % millisecond == 0;
        settle();
        if (d->bridge_in_tx && first_in == 0) first_in = cycles;
        if (d->tx_valid[0] && first_out == 0) first_out = cycles;
        if (d->rx_valid[1] && first_frame == 0) first_frame = cycles;
        if (d->bridge_out_rx && first_packet == 0) first_packet = cycles;
        std::array<bool, kRanks> sent{}, taken{};
        for (int r = 0; r < kRanks; r++) {
            if (d->send_valid[r] && d->send_ready[r]) sent[r] = true;
            if (d->receive_valid[r] && d->receive_ready[r]) taken[r] = true;
            out_shown_[r] = d->out_valid[r] && !d->out_ready[r];
            if (d->out_valid[r] && d->out_ready[r]) out_at_[r] += 8;
            if (d->in_valid[r] && d->in_ready[r]) {
                check(!receives[r].empty() && receiving_[r], "payload without a receive");
                for (int i = 0; i < 8; i++) receives[r].front()->data.push_back(static_cast<uint8_t>(d->in_data[r] >> 8 * i));
            }
        }
        for (int b = 0; b < 2; b++) {
            rx_shown_[b] = d->rx_valid[b] && !d->rx_ready[b];
            if (d->rx_valid[b] && d->rx_ready[b]) {
                if (d->rx_last[b]) wire[b].pop_front(), rx_at_[b] = 0;
                else rx_at_[b]++;
            }
            check(!cable || d->tx_valid[b] || out_[b].beats.empty(), "a frame has a hole");
            if (d->tx_valid[b] && d->tx_ready[b]) {
                out_[b].beats.push_back(d->tx_data[b]);
                if (cable) {
                    if (out_[b].beats.size() == 1) wire[1 - b].push_back({{}, 0xff, false});
                    wire[1 - b].back().beats.push_back(d->tx_data[b]);
                }
                if (d->tx_last[b]) {
                    frames++;
                    check(W == 1 || out_[b].beats.size() >= 8, "a frame is too short");
                    out_[b].keep = d->tx_keep[b];
                    // A MAC's padding.
                    if (out_[b].beats.size() < 8) out_[b].beats.resize(8), out_[b].keep = 0x0f;
                    if (cable) {
                        taken_by_line(1 - b, out_[b].bytes());
                        wire[1 - b].back() = std::move(out_[b]);
                    } else carry(1 - b, std::move(out_[b]));
                    out_[b] = {};
                }
            }
        }
        rise();
        for (int r = 0; r < kRanks; r++) {
            if (sent[r]) sending_[r] = true, out_at_[r] = 0;
            if (taken[r]) receiving_[r] = true;
            if (d->send_done[r]) {
                check(sending_[r], "a send ends that has not begun");
                Send &s = *sends[r].front();
                s.done = true, s.fault = d->send_fault[r], s.ended = cycles;
                sending_[r] = false, out_shown_[r] = false;
                sends[r].pop_front();
            }
            if (d->receive_done[r]) {
                check(receiving_[r], "a receive ends that has not begun");
                Receive &q = *receives[r].front();
                const uint64_t o = d->receive_outcome[r];
                q.done = true, q.size = o & 0xffffff, q.got_tag = o >> 24 & 0xfff, q.from = o >> 36 & 0xff;
                q.fault = static_cast<uint8_t>(o >> 44), q.ended = cycles;
                if (q.fault == 0) check(q.data.size() == (q.size + 7) / 8 * 8, "payload of another length"), q.data.resize(q.size);
                receiving_[r] = false;
                receives[r].pop_front();
            }
        }
    }
    bool quiet() const {
        for (int r = 0; r < kRanks; r++)
            if (!sends[r].empty() || !receives[r].empty()) return false;
        return wire[0].empty() && wire[1].empty();
    }
    void run(uint64_t most = 200000) {
        for (uint64_t i = 0; !quiet(); i++) {
            check(i < most, "hangs");
            step();
        }
        for (int i = 0; i < 300; i++) step();
        check(W != 1 || !(*this)->failed[0], "a session failed");
    }
    void go(int rank, Send &s) { sends[rank].push_back(&s); }
    void go(int rank, Receive &q) { receives[rank].push_back(&q); }

private:
    std::array<bool, kRanks> sending_{}, receiving_{}, out_shown_{};
    std::array<size_t, kRanks> out_at_{};
    std::array<bool, 2> rx_shown_{};
    std::array<size_t, 2> rx_at_{};
    std::array<uint64_t, 2> free_{};  // time from which the wire is free for a frame, in byte times
    std::array<Frame, 2> out_;

    // A frame occupies the line to a board: `cable`, its last beat has arrived;
    // otherwise its first.
    void taken_by_line(int to, uint64_t bytes) {
        const uint64_t now = cable ? 8 * cycles - std::min(8 * cycles, 8 * ((bytes + 7) / 8 - 1)) : 8 * cycles;
        free_[to] = std::max(free_[to] + 7, now) - 7 + bytes + kGap;
    }
};

void got(const Receive &r, const Send &s, unsigned from) {
    check(s.done && s.fault == 0, "the send failed with " + std::to_string(s.fault));
    check(r.done && r.fault == 0, "the receive failed with " + std::to_string(r.fault));
    check(r.from == from && r.got_tag == s.tag, "source or tag is wrong");
    expect(r.data, s.data, "payload");
}

}  // namespace
