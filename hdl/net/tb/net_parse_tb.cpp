// Valid frames are classified; frames with a flipped bit in a protected field, or that end too
// early, are FRAME_OTHER.
#include "frames.hpp"

using namespace bench;
using namespace frames;

namespace {

enum Kind { Other, Arp, ArpReply, Icmp, Tcp, Udp };

struct Parser {
    Clocked dut;
    Parser() {
        dut->rx_valid = 0;
        dut->own_mac = kOwnMac;
        dut->own_ip = kOwnIp;
        dut.reset();
    }
    // The verdict on a frame, with idle cycles within it at that percentage.
    int verdict(const Bytes &f, unsigned idle = 0) {
        int found = -1;
        auto step = [&] {
            dut.settle();
            dut.rise();
            dut.settle();
            if (dut->done) {
                check(found < 0, "two verdicts on one frame");
                found = dut->verdict;
            }
        };
        for (size_t at = 0; at < f.size(); at += 8) {
            while (dut.random.percent(idle)) {
                dut->rx_valid = 0;
                step();
            }
            size_t n = std::min<size_t>(8, f.size() - at);
            uint64_t data = dut.random.next();
            for (size_t i = 0; i < n; i++) data = (data & ~(0xffull << (8 * i))) | static_cast<uint64_t>(f[at + i]) << (8 * i);
            // beat_t: data, keep, last from the top.
            bool last = at + 8 >= f.size();
            uint64_t low = data << 9 | static_cast<uint64_t>((1u << n) - 1) << 1 | last;
            dut->rx[0] = static_cast<uint32_t>(low);
            dut->rx[1] = static_cast<uint32_t>(low >> 32);
            dut->rx[2] = static_cast<uint32_t>(data >> 55);
            dut->rx_valid = 1;
            step();
        }
        dut->rx_valid = 0;
        for (int i = 0; i < 3; i++) step();
        check(found >= 0, "no verdict after three cycles");
        return found;
    }
};

// Padded to Ethernet's minimum, as a MAC does.
Bytes padded(Bytes f, uint8_t with = 0) {
    if (f.size() < 60) f.resize(60, with);
    return f;
}

}  // namespace

TEST(good_frames) {
    Parser p;
    for (unsigned idle : {0u, 50u}) {
        for (size_t n = 0; n < 120; n++) {
            check(p.verdict(padded(tcp(1, 2, 0x10, {}, p.dut.random.bytes(n))), idle) == Tcp, "TCP");
            check(p.verdict(tcp(1, 2, 2, {2, 4, 5, 0xb4, 1, 1, 1, 1}, p.dut.random.bytes(n)), idle) == Tcp, "TCP with options");
            check(p.verdict(icmp_echo(p.dut.random.bytes(n)), idle) == Icmp, "echo request");
        }
        check(p.verdict(tcp(1, 2, 0x10, {}, p.dut.random.bytes(1460)), idle) == Tcp, "a full segment");
        check(p.verdict(arp_request(), idle) == Arp, "ARP request");
        check(p.verdict(padded(tcp(1, 2, 0x10, {}, {}), 0xa5), idle) == Tcp, "padding that is not zeros");
        check(p.verdict(tcp(1, 2, 0x10, {}, {}), idle) == Other, "a frame that Ethernet does not allow");
    }
}

TEST(any_flipped_bit) {
    Parser p;
    Bytes good = tcp(1, 2, 0x10, {}, p.dut.random.bytes(40));
    for (size_t bit = 0; bit < 8 * good.size(); bit++) {
        if (bit >= 6 * 8 && bit < 12 * 8) continue;  // the sender's hardware address may be
                                                     // anything
        Bytes f = good;
        f[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        check(p.verdict(f) == Other, "bit " + std::to_string(bit) + " of a TCP frame");
    }
    good = icmp_echo(p.dut.random.bytes(30));
    for (size_t bit = 12 * 8; bit < 8 * good.size(); bit++) {
        Bytes f = good;
        f[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        check(p.verdict(f) == Other, "bit " + std::to_string(bit) + " of an echo request");
    }
    check(p.verdict(good) == Icmp, "a good frame after bad ones");
}

// head_t ends with mss, scaled, scale.
TEST(options) {
    Parser p;
    auto seen = [&](const Bytes &options) {
        check(p.verdict(padded(tcp(1, 2, 2, options, {}))) == Tcp, "a SYN");
        return p.dut->verdict_head[0] & 0x1fffff;
    };
    auto is = [](uint32_t mss, uint32_t scaled, uint32_t scale) { return mss << 5 | scaled << 4 | scale; };
    check(seen({}) == 0, "no options");
    check(seen({2, 4, 5, 0xb4}) == is(1460, 0, 0), "MSS");
    // Linux; BSD and macOS; Windows.
    check(seen({2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 3, 3, 9, 0, 0, 0, 0, 1, 3, 3, 7}) == is(1460, 1, 7), "MSS, SACK, timestamps, scale");
    check(seen({2, 4, 5, 0xb4, 1, 3, 3, 6, 1, 1, 8, 10, 2, 4, 9, 9, 0, 0, 0, 0, 4, 2, 0, 0}) == is(1460, 1, 6), "MSS, scale, timestamps, SACK");
    check(seen({2, 4, 0x23, 0, 1, 3, 3, 8, 1, 1, 4, 2}) == is(8960, 1, 8), "MSS, scale, SACK");
    check(seen({1, 3, 3, 0}) == is(0, 1, 0), "scale without a shift");
    check(seen({1, 3, 3, 200}) == is(0, 1, 14), "a shift that is too large");
    // An unknown option ends the parsing.
    check(seen({2, 4, 5, 0xb4, 99, 4, 0, 0, 1, 3, 3, 7}) == is(1460, 0, 0), "an unknown option");
    check(seen({2, 0, 5, 0xb4, 1, 3, 3, 7}) == 0, "option lacks its length");
    check(seen({0, 0, 0, 0, 1, 3, 3, 7}) == 0, "behind the end");
    check(seen({}) == 0, "nothing is left over from before");
}

TEST(truncated_frames) {
    Parser p;
    for (const Bytes &good : {tcp(1, 2, 0x18, {}, p.dut.random.bytes(64)), icmp_echo(p.dut.random.bytes(50)), arp_request()}) {
        for (size_t n = 1; n < good.size(); n++)
            check(p.verdict(Bytes(good.begin(), good.begin() + static_cast<long>(n))) == Other, std::to_string(n) + " bytes of a frame");
        check(p.verdict(good) > Other, "a good frame after bad ones");
    }
}

TEST(false_lengths) {
    Parser p;
    for (uint32_t length = 0; length < 65536; length += 7) {
        Bytes f = tcp(1, 2, 0x10, {}, p.dut.random.bytes(100));
        if (length == f.size() - 14) continue;
        put16(f, 16, length);
        put16(f, 24, 0);
        put16(f, 24, checksum(f, 14, 34));
        size_t end = std::min<size_t>(f.size(), 14 + length);
        put16(f, 50, 0);
        if (end > 54) put16(f, 50, checksum(f, 26, end, 6 + length - 20));
        bool whole = length >= 40 && length <= f.size() - 14;
        check((p.verdict(f) == Tcp) == whole, "length " + std::to_string(length));
    }
}

BENCH_MAIN()
