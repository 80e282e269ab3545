// Frames of messages among those of a MAC: each is passed on whole, or dropped and counted; others
// are ignored.
#include <deque>
#include <vector>

#include "clocked.hpp"

using namespace bench;

namespace {

using Frame = std::vector<uint8_t>;
constexpr size_t kMost = 192 * 8;

class Frames : public Clocked {
public:
    std::vector<Frame> out;
    unsigned patience = 100;

    Frames() {
        (*this)->rx_valid = (*this)->m_ready = 0;
        reset();
    }
    Frame frame(unsigned type, size_t bytes) {
        Frame made(bytes);
        for (auto &byte : made) byte = static_cast<uint8_t>(random.next());
        made[12] = static_cast<uint8_t>(type >> 8);
        made[13] = static_cast<uint8_t>(type);
        return made;
    }
    // True: the frame was not dropped.
    bool send(const Frame &frame) {
        auto &d = *this;
        const unsigned before = d->dropped;
        for (size_t at = 0; at < frame.size(); at += 8) {
            const size_t count = std::min<size_t>(8, frame.size() - at);
            d->rx_valid = 1;
            d->rx_data = random.next();
            for (size_t i = 0; i < count; i++) d->rx_data = (d->rx_data & ~(0xffull << 8 * i)) | uint64_t(frame[at + i]) << 8 * i;
            d->rx_keep = static_cast<uint8_t>((1u << count) - 1);
            d->rx_last = at + count == frame.size();
            step();
            d->rx_valid = 0;
            if (random.percent(20)) step();
        }
        settle();
        return d->dropped == before;
    }
    void gap(unsigned cycles) {
        (*this)->rx_valid = 0;
        for (unsigned i = 0; i < cycles; i++) step();
    }
    bool pauses() {
        settle();
        return (*this)->pause;
    }

private:
    void step() {
        auto &d = *this;
        d->m_ready = random.percent(patience);
        settle();
        if (d->m_valid && d->m_ready) {
            for (int i = 0; i < 8; i++) part_.push_back(static_cast<uint8_t>(d->m_data >> 8 * i));
            if (d->m_last) out.push_back(std::move(part_)), part_.clear();
        }
        rise();
    }
    Frame part_;
};

Frame padded(Frame frame) {
    frame.resize((std::min(frame.size(), kMost) + 7) / 8 * 8);
    return frame;
}

TEST(frames_of_messages_pass_whole_and_others_do_not) {
    Frames frames;
    frames.patience = 90;
    std::vector<Frame> expected;
    for (int i = 0; i < 500; i++) {
        static const unsigned types[] = {0x7400, 0x7400, 0x7400, 0x0800, 0x0806, 0x7401, 0x0074, 0x86dd};
        const size_t bytes = frames.random.percent(20) ? 14 + frames.random.below(60) : frames.random.percent(10) ? 1500 + frames.random.below(7500) : 60 + frames.random.below(1459);
        const Frame frame = frames.frame(types[frames.random.below(8)], bytes);
        const bool kept = frames.send(frame);
        if (frame[12] == 0x74 && frame[13] == 0x00 && kept) expected.push_back(padded(frame));
        frames.gap(3 + frames.random.below(20));
    }
    frames.patience = 100;
    frames.gap(1200);
    check(frames.out == expected, "other frames came out");
    check(expected.size() > 100, "too few frames were kept");
}

TEST(a_frame_without_space_is_dropped_whole_and_announced) {
    Frames frames;
    for (int turn = 0; turn < 20; turn++) {
        frames.out.clear();
        frames.patience = 0;
        std::vector<Frame> expected;
        unsigned dropped = 0;
        for (int i = 0; i < 12; i++) {
            const Frame frame = frames.frame(0x7400, 64 + 8 * frames.random.below(175));
            const bool announced = frames.pauses();
            const bool kept = frames.send(frame);
            check(announced == !kept, "a pause and a drop differ");
            if (kept) expected.push_back(frame);
            else dropped++;
            frames.gap(3);
        }
        check(dropped > 0, "all frames had space");
        frames.patience = 100;
        frames.gap(1200);
        check(frames.out == expected, "a frame is not whole");
    }
}

}  // namespace

BENCH_MAIN()
