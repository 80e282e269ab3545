// UDP in both directions, through receiver and transmitter connected directly (net_udp_top): each
// datagram returns to its sender, like an echo, with any length and any pace of the wire.
#include <deque>

#include "frames.hpp"

using namespace bench;
using namespace frames;

namespace {

constexpr uint16_t kPort = 7, kPeerPort = 40001;

Bytes udp(const Bytes &payload, bool with_checksum = true, uint16_t port = kPort, int spoil = 0, int length = -1) {
    Bytes u(8);
    put16(u, 0, kPeerPort), put16(u, 2, port), put16(u, 4, static_cast<uint32_t>(length < 0 ? static_cast<int>(8 + payload.size()) : length));
    u.insert(u.end(), payload.begin(), payload.end());
    Bytes f = ipv4(17, u);
    if (with_checksum) {
        uint16_t sum = checksum(f, 26, f.size(), 17 + static_cast<uint32_t>(u.size()));
        put16(f, 40, (sum ? sum : 0xffff) ^ static_cast<uint32_t>(spoil));
    }
    if (f.size() < 60) f.resize(60, 0xa5);
    return f;
}

struct Echo {
    Clocked dut;
    std::deque<Bytes> in;
    size_t at = 0;
    int gap = 0;
    unsigned pace = 100, idle = 0;
    Bytes frame;
    std::vector<Bytes> out;

    Echo() {
        dut->own_mac = kOwnMac, dut->own_ip = kOwnIp, dut->port = kPort;
        dut->rx_valid = 0, dut->m_ready = 0;
        dut.reset();
    }
    void step() {
        dut->rx_valid = 0;
        if (gap > 0) gap--;
        else if (!in.empty() && !dut.random.percent(idle)) {
            const Bytes &f = in.front();
            uint64_t data = 0;
            unsigned n = 0;
            for (; n < 8 && at + n < f.size(); n++) data |= static_cast<uint64_t>(f[at + n]) << (8 * n);
            at += n;
            const uint64_t low = data << 9 | static_cast<uint64_t>((1u << n) - 1) << 1 | (at >= f.size());
            dut->rx[0] = static_cast<uint32_t>(low), dut->rx[1] = static_cast<uint32_t>(low >> 32), dut->rx[2] = static_cast<uint32_t>(data >> 55);
            dut->rx_valid = 1;
            if (at >= f.size()) in.pop_front(), at = 0, gap = 3;
        }
        dut->m_ready = dut.random.percent(pace);
        dut.settle();
        if (dut->m_valid && dut->m_ready) {
            const uint64_t low = dut->m[0] | static_cast<uint64_t>(dut->m[1]) << 32;
            const uint64_t data = low >> 9 | static_cast<uint64_t>(dut->m[2]) << 55;
            for (int i = 0; i < 8; i++)
                if (low >> (1 + i) & 1) frame.push_back(static_cast<uint8_t>(data >> (8 * i)));
            if (low & 1) out.push_back(frame), frame.clear();
        }
        dut.rise();
    }
    void run(int n) {
        while (n--) step();
    }
    // A datagram goes in and comes back.
    void echoed(const Bytes &payload, bool with_checksum) {
        const std::string what = std::to_string(payload.size()) + " bytes: ";
        out.clear();
        in.push_back(udp(payload, with_checksum));
        for (int i = 0; i < 4000 && out.empty(); i++) step();
        check(out.size() == 1, what + "no answer");
        const Bytes &f = out[0];
        check(f.size() == 42 + payload.size(), what + "a frame of " + std::to_string(f.size()));
        check(checksum(f, 14, 34) == 0, what + "IPv4 checksum");
        check(get16(f, 40) != 0 && checksum(f, 26, f.size(), 17 + static_cast<uint32_t>(f.size()) - 34) == 0, what + "UDP checksum");
        check(get32(f, 26) == kOwnIp && get32(f, 30) == kPeerIp && f[23] == 17 && get16(f, 16) == 28 + payload.size(), what + "IPv4 header");
        check(get16(f, 34) == kPort && get16(f, 36) == kPeerPort && get16(f, 38) == 8 + payload.size(), what + "UDP header");
        for (size_t i = 0; i < 6; i++) check(f[i] == static_cast<uint8_t>(kPeerMac >> (40 - 8 * i)), what + "hardware address");
        expect(Bytes(f.begin() + 42, f.end()), payload, what);
    }
};

}  // namespace

TEST(every_length) {
    Echo e;
    for (unsigned idle : {0u, 40u}) {
        e.idle = idle, e.pace = 100 - idle;
        for (size_t n = 0; n < 80; n++) e.echoed(e.dut.random.bytes(n), n % 3 != 0);
        for (size_t n : {1465u, 1471u, 1472u}) e.echoed(e.dut.random.bytes(n), true);
        for (int i = 0; i < 50; i++) e.echoed(e.dut.random.bytes(e.dut.random.below(1473)), true);
    }
}

TEST(checksums_that_look_like_none) {
    Echo e;
    // Both words sum to all ones: the checksum of the reply is sent as all ones, never as 0.
    for (uint32_t v = 0; v < 65536; v += 251) e.echoed(Bytes{static_cast<uint8_t>(v >> 8), static_cast<uint8_t>(v)}, true);
    Bytes f = udp(Bytes(2, 0));
    const uint32_t left = get16(f, 40);
    e.echoed(Bytes{static_cast<uint8_t>(left >> 8), static_cast<uint8_t>(left)}, true);
}

TEST(foreign_datagrams_are_ignored) {
    Echo e;
    const Bytes payload = e.dut.random.bytes(33);
    e.in.push_back(udp(payload, true, 8));       // another port
    e.in.push_back(udp(payload, true, kPort, 4));  // a damaged checksum
    e.in.push_back(udp(payload, true, kPort, 0, 40));  // lengths that differ
    e.in.push_back(udp(payload, true, kPort, 0, 7));
    e.in.push_back(tcp(1, 2, 0x10, {}, payload));
    e.in.push_back(icmp_echo(payload));
    Bytes longer = udp(e.dut.random.bytes(1480));  // more than fits
    e.in.push_back(longer);
    e.run(3000);
    check(e.out.empty(), "something is answered");
    for (size_t i = 0; i < 33; i++) {
        Bytes f = udp(payload);
        f[42 + i] ^= static_cast<uint8_t>(1u << (i % 8));
        e.in.push_back(f);
    }
    e.run(3000);
    check(e.out.empty(), "a damaged datagram is answered");
    e.echoed(payload, true);
    e.dut->port = 0;
    e.in.push_back(udp(payload, true, 0));
    e.in.push_back(udp(payload));
    e.run(500);
    check(e.out.size() == 1, "a closed port answers");
}

TEST(in_order_and_none_mixed) {
    Echo e;
    e.pace = 70;
    std::vector<Bytes> sent;
    for (int i = 0; i < 60; i++) {
        Bytes payload = e.dut.random.bytes(4 + e.dut.random.below(200));
        payload[0] = static_cast<uint8_t>(i);
        sent.push_back(payload);
        e.in.push_back(udp(payload));
        if (i % 5 == 0) e.in.push_back(icmp_echo(payload));
        e.run(30 + static_cast<int>(e.dut.random.below(150)));
    }
    e.run(2000);
    // Some may have been dropped; the received ones are complete.
    check(e.out.size() > 30, std::to_string(e.out.size()) + " came back");
    for (auto &f : e.out) expect(Bytes(f.begin() + 42, f.end()), sent.at(f.at(42)), "datagram " + std::to_string(f[42]));
}

BENCH_MAIN()
