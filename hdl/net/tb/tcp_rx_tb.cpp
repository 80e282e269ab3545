// Segments directly after each other, sessions that begin in any cycle meanwhile,
// and damaged lengths.
#include "frames.hpp"

using namespace bench;
using namespace frames;

namespace {

struct Receiver {
    Clocked dut;
    uint32_t next[2] = {};  // as last notified
    unsigned kept = 0, writes = 0;

    Receiver() {
        dut->own_mac = kOwnMac, dut->own_ip = kOwnIp;
        dut->rx_valid = dut->open = dut->open_ended = dut->sent_write = dut->read_write = 0;
        dut->finds = 1, dut->finds_index = 0;
        dut.reset();
    }
    void step() {
        dut.settle();
        if (dut->rcv_notify && dut->rcv_notify_at < 2) next[dut->rcv_notify_at] = dut->rcv_notify_next;
        kept += dut->desc_valid && dut->desc_kept;
        writes += dut->write;
        dut.rise();
        dut->open = dut->sent_write = dut->read_write = dut->rx_valid = 0;
    }
    void read(unsigned session, uint32_t to) { dut->read_write = 1, dut->read_at = session, dut->read_to = to; }
    void open(unsigned session, uint32_t from) { dut->open = 1, dut->at = session, dut->open_next = from; }
    void begin(unsigned session, uint32_t from) {
        dut->sent_write = 1, dut->sent_at = session, dut->sent_to = 500;
        read(session, from);
        step();
        open(session, from);
        step();
    }
    void put(const Bytes &f, size_t at) {
        uint64_t data = 0;
        unsigned n = 0;
        for (; n < 8 && at + n < f.size(); n++) data |= static_cast<uint64_t>(f[at + n]) << (8 * n);
        const uint64_t low = data << 9 | ((1u << n) - 1) << 1 | (at + n >= f.size());
        dut->rx[0] = static_cast<uint32_t>(low), dut->rx[1] = static_cast<uint32_t>(low >> 32);
        dut->rx[2] = static_cast<uint32_t>(data >> 55);
        dut->rx_valid = 1;
    }
    // Frames without a gap; `other` begins at `from` in one cycle.
    void run(const std::vector<Bytes> &frames, unsigned cycle = ~0u, unsigned other = 0, uint32_t from = 0) {
        unsigned now = 0;
        auto tick = [&] {
            if (now + 1 == cycle) read(other, from);
            if (now == cycle) open(other, from);
            now++;
            step();
        };
        for (auto &f : frames)
            for (size_t at = 0; at < f.size(); at += 8) put(f, at), tick();
        for (int i = 0; i < 40; i++) tick();
    }
};

Bytes segment(uint32_t seq, size_t length) { return tcp(seq, 500, 0x10, {}, Bytes(length, 7)); }

}  // namespace

TEST(another_is_opened_while_frames_follow_each_other) {
    for (unsigned cycle = 1; cycle < 50; cycle++) {
        Receiver r;
        r.begin(0, 1000);
        r.run({segment(1000, 20), segment(1020, 20), segment(1040, 20)}, cycle, 1, 9000);
        check(r.next[0] == 1060 && r.kept == 3, "a segment was not seen to follow the one before");
        check(r.next[1] == 9000, "the other stream does not begin");
    }
}

TEST(a_stream_that_begins_anew_is_not_moved_by_the_one_before) {
    for (unsigned cycle = 1; cycle < 30; cycle++) {
        Receiver r;
        r.begin(0, 1000);
        r.run({segment(1000, 20)}, cycle, 0, 70000);
        check(r.next[0] == 70000, "the stream is not where it begins");
    }
}

// The position in the frame would wrap modulo 16 KB: header bytes would overwrite valid data.
TEST(a_damaged_length_writes_nothing) {
    for (uint32_t back = 16200; back < 16400; back++) {
        Receiver r;
        r.begin(0, 30000);
        Bytes f = segment(30000 - back, 100);
        put16(f, 16, 40 + 100 + 0x4000);
        r.run({f});
        check(r.writes == 0 && r.next[0] == 30000, "something was written");
    }
}

BENCH_MAIN()
