// Segments of every length from every position of the ring: headers, checksums and payload are
// correct at any pace of the wire.
#include "frames.hpp"
#include "ring_words.hpp"

using namespace bench;
using namespace frames;

namespace {

constexpr int kLatency = 4;
constexpr uint32_t kRing = 1u << 21;

uint8_t content(uint32_t session, uint32_t seq) {
    return static_cast<uint8_t>((seq % kRing) * 7 + (seq % kRing) / 251 + session * 13);
}

struct Transmitter {
    Clocked dut;
    RingWords words{kLatency};
    Bytes frame;
    std::vector<Bytes> frames;
    unsigned pace = 100, reads = 100;  // percentage of cycles

    Transmitter() {
        dut->own_mac = kOwnMac;
        dut->own_ip = kOwnIp;
        dut->s_valid = 0;
        dut->m_ready = 0;
        dut->word_valid = 0;
        dut->read_ready = 1;
        dut.reset();
    }
    void step() {
        dut->m_ready = dut.random.percent(pace);
        dut->read_ready = dut.random.percent(reads);
        dut.settle();
        if (dut->m_valid && dut->m_ready) {
            uint64_t low = dut->m[0] | static_cast<uint64_t>(dut->m[1]) << 32;
            uint64_t data = low >> 9 | static_cast<uint64_t>(dut->m[2]) << 55;
            for (int i = 0; i < 8; i++)
                if (low >> (1 + i) & 1) frame.push_back(static_cast<uint8_t>(data >> (8 * i)));
            if (low & 1) frames.push_back(frame), frame.clear();
        }
        if (dut->read) {
            uint64_t word = 0;
            for (unsigned i = 0; i < 8; i++)
                word |= static_cast<uint64_t>(content(dut->read_address >> 18, (dut->read_address & 0x3ffff) * 8 + i)) << (8 * i);
            words.read(word, 0, dut.random);
        }
        dut.rise();
        const RingWords::Word came = words.next();
        dut->word_valid = came.valid, dut->word_data = came.data;
    }
    // segment_t: mac, ip, port, own_port, seq, ack, window, flags, with_mss, with_scale,
    // length from the top.
    void order(uint32_t session, uint32_t seq, uint32_t length, uint8_t flags, bool mss, bool scale) {
        Bytes bits;  // one byte per bit, lowest first
        auto put = [&](uint64_t v, int n) {
            for (int i = 0; i < n; i++) bits.push_back(v >> i & 1);
        };
        put(length, 16), put(scale, 1), put(mss, 1), put(flags, 8), put(0x1234, 16), put(0xcafe0000 + seq, 32), put(seq, 32);
        put(80, 16), put(40000, 16), put(kPeerIp, 32), put(kPeerMac, 48);
        for (size_t w = 0; w < (bits.size() + 31) / 32; w++) {
            uint32_t word = 0;
            for (size_t i = 0; i < 32 && w * 32 + i < bits.size(); i++) word |= static_cast<uint32_t>(bits[w * 32 + i]) << i;
            dut->s_segment[w] = word;
        }
        dut->s_session = static_cast<uint8_t>(session);
        dut->s_valid = 1;
        for (dut.settle(); !dut->s_ready; dut.settle()) step();
        step();
        dut->s_valid = 0;
    }
};

void verify(const Bytes &f, uint32_t session, uint32_t seq, uint32_t length, uint8_t flags, bool mss, bool scale) {
    const size_t head = scale ? 62 : mss ? 58 : 54;
    const std::string what = std::to_string(length) + " bytes at " + std::to_string(seq % 8) + ": ";
    check(f.size() == head + length, what + "the frame has " + std::to_string(f.size()));
    check(checksum(f, 14, 34) == 0, what + "IPv4 checksum");
    check(checksum(f, 26, f.size(), 6 + static_cast<uint32_t>(f.size()) - 34) == 0, what + "TCP checksum");
    check(get16(f, 16) == f.size() - 14 && get32(f, 26) == kOwnIp && get32(f, 30) == kPeerIp, what + "IPv4 header");
    check(get16(f, 34) == 80 && get16(f, 36) == 40000 && get32(f, 38) == seq && get32(f, 42) == 0xcafe0000 + seq, what + "TCP header");
    check(f[46] == (scale ? 0x70 : mss ? 0x60 : 0x50) && f[47] == flags && get16(f, 48) == 0x1234, what + "TCP flags and window");
    if (mss) check(get32(f, 54) == (0x02040000 | 1460), what + "MSS option");
    if (scale) check(get32(f, 58) == 0x01030306, what + "window scale option");
    for (uint32_t i = 0; i < length; i++) check(f[head + i] == content(session, seq + i), what + "byte " + std::to_string(i));
}

}  // namespace

TEST(every_length_and_place) {
    for (unsigned pace : {100u, 60u}) {
        Transmitter t;
        t.pace = pace;
        if (W) t.reads = 60, t.words.jitter = 30;
        struct Order { uint32_t session, seq, length; uint8_t flags; bool mss, scale; };
        std::vector<Order> orders;
        for (uint32_t place = 0; place < 8; place++)
            for (uint32_t length = 0; length < 70; length++) orders.push_back({place, 0xfffffff8u + place, length, 0x18, false, false});
        for (int i = 0; i < 100; i++)
            orders.push_back({t.dut.random.below(16), static_cast<uint32_t>(t.dut.random.next()), t.dut.random.below(1461), 0x10, false, false});
        orders.push_back({0, 77, 0, 0x12, true, false});
        orders.push_back({0, 77, 0, 0x12, true, true});
        orders.push_back({1, 78, 1460, 0x19, false, false});
        orders.push_back({2, 79, 0, 0x04, false, false});
        size_t done = 0;
        for (auto &o : orders) {
            t.order(o.session, o.seq, o.length, o.flags, o.mss, o.scale);
            for (unsigned i = t.dut.random.below(30); i; i--) t.step();
        }
        for (int i = 0; i < 2000 && t.frames.size() < orders.size(); i++) t.step();
        check(t.frames.size() == orders.size(), "frames are missing");
        for (auto &o : orders) verify(t.frames[done++], o.session, o.seq, o.length, o.flags, o.mss, o.scale);
    }
}

TEST(full_segments_at_line_rate) {
    Transmitter t;
    for (int i = 0; i < 4; i++) t.order(0, static_cast<uint32_t>(1460 * i), 1460, 0x10, false, false);
    uint64_t start = t.dut.cycles;
    for (uint32_t i = 4; i < 54; i++) t.order(0, 1460 * i, 1460, 0x10, false, false);
    // 1514 bytes are 190 beats; the line takes three more between frames.
    check((t.dut.cycles - start) / 50 <= 193, "a segment takes " + std::to_string((t.dut.cycles - start) / 50) + " cycles");
}

BENCH_MAIN()
