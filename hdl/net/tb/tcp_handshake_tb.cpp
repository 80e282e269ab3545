// Segments without a session: connections that open, cookies that are old, changed or of another peer, and resets.
#include "clocked.hpp"

using namespace bench;

namespace {

constexpr uint8_t kFin = 1, kSyn = 2, kRst = 4, kPsh = 8, kAck = 16;
constexpr uint16_t kSegments[] = {256, 536, 1024, 1220, 1360, 1440, 1460, 1460};  // of the cookie's MSS

struct Host {
    Clocked dut;
    bool accepted = false, replied = false, same_peer = false, with_mss = false, with_scale = false;
    unsigned flags = 0, scaling = 0, mss = 0, window = 0;
    uint32_t seq = 0, ack = 0;
    int cycles = 0;

    Host() {
        dut->begin_segment = dut->begin_connect = 0;
        dut->secret = dut.random.next(), dut->listen_port = 80, dut->epoch = 5;
        dut->length = dut->mss_in = dut->scaled = dut->scale = 0;
        dut.reset();
    }
    void peer(uint32_t ip, uint16_t port) {
        dut->mac = 0x020000000000 | ip, dut->ip = ip, dut->port = port, dut->own_port = 80;
    }
    // A segment, and everything that follows from it.
    void segment(uint8_t with, uint32_t seq_in, uint32_t ack_in) {
        dut->flags_in = with, dut->seq_in = seq_in, dut->ack_in = ack_in;
        dut->begin_segment = 1;
        accepted = replied = false;
        for (cycles = 0; cycles < 60; cycles++) {
            dut.settle();
            if (cycles > 1 && dut->idle) break;
            if (dut->accepted) accepted = true, scaling = dut->scaling, mss = dut->mss;
            if (dut->plain_valid) {
                check(!replied, "two replies");
                replied = true, same_peer = dut->same_peer;
                seq = dut->seq, ack = dut->ack, window = dut->window, flags = dut->flags;
                with_mss = dut->with_mss, with_scale = dut->with_scale;
                check(same_peer, "the reply is for another peer");
            }
            dut.rise();
            dut->begin_segment = 0;
        }
        check(cycles < 60, "the segment is not over");
    }
};

}  // namespace

TEST(connections_open_with_their_cookies) {
    Host h;
    int kinds[8] = {}, shifts[4] = {};
    for (int i = 0; i < 4000; i++) {
        auto &r = h.dut.random;
        h.peer(r.below(1u << 31), static_cast<uint16_t>(1 + r.below(65535)));
        h.dut->epoch = static_cast<uint16_t>(r.below(65536));
        const uint16_t offered = static_cast<uint16_t>(r.percent(20) ? 0 : r.percent(50) ? 200 + r.below(1500) : r.below(65536));
        const bool scaled = r.percent(70);
        const unsigned shift = r.below(15);
        h.dut->mss_in = offered, h.dut->scaled = scaled, h.dut->scale = static_cast<uint8_t>(shift);
        const uint32_t first = static_cast<uint32_t>(r.next());
        h.segment(kSyn, first, 0);
        check(h.replied && h.flags == (kSyn | kAck) && h.ack == first + 1 && !h.accepted, "no SYN with a cookie");
        check(h.with_mss && h.with_scale == scaled && h.window == 0xffff, "other options than the peer's");
        // The peer's ACK has no options; data may come with it, up to 32 s later.
        const uint32_t cookie = h.seq;
        h.dut->mss_in = h.dut->scaled = h.dut->scale = 0;
        h.dut->epoch = static_cast<uint16_t>(h.dut->epoch + r.below(5));
        h.segment(r.percent(50) ? kAck : kAck | kPsh, first + 1, cookie + 1);
        check(h.accepted && !h.replied, "a valid cookie is refused");
        check(kSegments[h.mss] <= (offered ? std::max<unsigned>(offered, 256) : 536) && (offered != 0 || kSegments[h.mss] == 536),
              "segments are longer than the peer accepts");
        check(h.mss == 7 || offered == 0 || kSegments[h.mss + 1] > offered || kSegments[h.mss + 1] == kSegments[h.mss], "segments are shorter than necessary");
        // The shift is rounded down: 0, 4 or 7.
        check(h.scaling == (!scaled ? 0 : shift >= 7 ? 3 : shift >= 4 ? 2 : 1), "another window scale");
        kinds[h.mss]++, shifts[h.scaling]++;
        // Anything else about it makes the cookie invalid.
        const unsigned change = r.below(6);
        if (change == 0) h.dut->ip ^= 1u << r.below(32);
        if (change == 1) h.dut->port ^= static_cast<uint16_t>(1u << r.below(16));
        const uint32_t other_seq = change == 2 ? first + 1 + (1u << r.below(32)) : first + 1;
        const uint32_t other_ack = change == 3 ? cookie + 1 + (1u << r.below(24)) : change == 4 ? cookie + 1 + (1u << (24 + r.below(5))) : cookie + 1;
        if (change == 5) h.dut->secret ^= 1ull << r.below(64);
        h.segment(kAck, other_seq, other_ack);
        check(!h.accepted, "a cookie counts although it was changed (" + std::to_string(change) + ")");
    }
    for (int k = 0; k < 6; k++) check(kinds[k] > 10, "no peer has MSS " + std::to_string(k));
    check(kinds[6] + kinds[7] > 10, "no peer has the full MSS");
    for (int s : shifts) check(s > 100, "too few window scales");
}

// A cookie expires after 33 to 41 s, and is answered with a reset then.
TEST(old_cookies_are_reset) {
    Host h;
    for (unsigned age = 0; age < 8; age++) {
        h.peer(0x0a000001, 5000);
        h.dut->epoch = 100;
        h.segment(kSyn, 1000, 0);
        const uint32_t cookie = h.seq;
        h.dut->epoch = static_cast<uint16_t>(100 + age);
        h.segment(kAck, 1001, cookie + 1);
        check(h.accepted == (age < 5), "a cookie of age " + std::to_string(age));
        check(h.replied == (age >= 5), "an old cookie has no reply, or a valid one has");
        if (h.replied) check(h.flags == kRst && h.seq == cookie + 1, "no reset at the position that the peer expects");
        // The cookie's three bits are the same at this age, but not the hash.
        h.dut->epoch = static_cast<uint16_t>(108 + age);
        h.segment(kAck, 1001, cookie + 1);
        check(!h.accepted, "a cookie of age " + std::to_string(8 + age));
    }
}

// RFC 9293 section 3.10.7.1: segments that belong to nothing are reset, and resets are not answered.
TEST(segments_of_nothing_are_reset) {
    Host h;
    int resets = 0;
    for (int i = 0; i < 4000; i++) {
        auto &r = h.dut.random;
        h.peer(r.below(1u << 31), static_cast<uint16_t>(1 + r.below(65535)));
        const bool closed = r.percent(60);  // a port on which nothing listens
        if (closed) h.dut->own_port = static_cast<uint16_t>(81 + r.below(1000));
        const uint8_t flags = static_cast<uint8_t>(r.below(32));
        const unsigned length = r.percent(50) ? 0 : r.below(1461);
        const uint32_t seq = static_cast<uint32_t>(r.next()), ack = static_cast<uint32_t>(r.next());
        h.dut->length = static_cast<uint16_t>(length);
        const bool opens = !closed && !(flags & kRst) && ((flags & kSyn) != 0) != ((flags & kAck) != 0);
        h.segment(flags, seq, ack);
        check(!h.accepted, "a random cookie is valid");
        if (opens) continue;  // a SYN, or an ACK with a cookie
        check(h.replied == !(flags & kRst), "a reply to a reset, or none to another segment");
        if (!h.replied) continue;
        resets++;
        if (flags & kAck) check(h.flags == kRst && h.seq == ack, "another reset than at the acknowledged position");
        else
            check(h.flags == (kRst | kAck) && h.seq == 0 &&
                      h.ack == seq + length + ((flags & kSyn) != 0) + ((flags & kFin) != 0), "the reset does not acknowledge the segment");
    }
    check(resets > 1000, "too few resets");
}

// Ports and sequence numbers of the board's connections are those of RFC 6056 and RFC 6528: hashes of the addresses.
TEST(numbers_of_the_boards_connections) {
    Host h;
    const auto numbers = [&](uint32_t ip, uint16_t port) {
        h.peer(ip, port);
        h.dut->own_port = 0, h.dut->seq_in = 0, h.dut->begin_connect = 1;
        uint32_t chosen = 0, number = 0;
        for (int i = 0; i < 80 && !number; i++) {
            h.dut.settle();
            if (h.dut->port_chosen) chosen = h.dut->hash;
            if (h.dut->number_chosen) number = h.dut->hash;
            h.dut.rise();
            h.dut->begin_connect = 0;
        }
        check(chosen && number && chosen != number, "no port or no number is chosen");
        return std::make_pair(chosen, number);
    };
    const auto first = numbers(0x0a000001, 80);
    check(numbers(0x0a000001, 80) == first, "other numbers for the same address");
    check(numbers(0x0a000002, 80).first != first.first && numbers(0x0a000001, 81).second != first.second,
          "the same numbers for another address");
    h.dut->secret ^= 1;
    check(numbers(0x0a000001, 80).first != first.first, "the secret does not matter");
}

BENCH_MAIN()
