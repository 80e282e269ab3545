// 96 kernels on six boards, all of them sending and receiving at once: the share of line rate of
// each, on the boards and between them over raw Ethernet. Six models of one board; a
// store-and-forward switch between them.
#include "clocked.hpp"

#include <algorithm>
#include <array>
#include <deque>

using namespace bench;

namespace {

constexpr unsigned kBoards = 6, kKernels = 16, kPacket = 1448;
constexpr unsigned kGap = 3;   // beats of a frame's check sequence, preamble and gap
constexpr unsigned kHead = 2;  // beats of addresses, type and count

struct Board : Clocked {
    std::deque<std::vector<uint64_t>> in;
    std::vector<uint64_t> out;
    size_t at = 0;
    unsigned in_gap = 0, out_gap = 0;
    std::array<uint64_t, kKernels> first{}, last{};
    std::array<unsigned, kKernels> received{};
    uint64_t first_frame = 0, carried = 0;  // of packets with payload: beats of the line

    bool shown() const { return in_gap == 0 && !in.empty(); }
};

class Cluster {
public:
    std::vector<std::unique_ptr<Board>> boards;
    uint64_t cycles = 0;

    Cluster(bool away, bool eager, unsigned messages, unsigned size) : messages_(messages), size_(size) {
        for (unsigned b = 0; b < kBoards; b++) {
            boards.push_back(std::make_unique<Board>());
            Board &d = *boards.back();
            d->board = static_cast<uint8_t>(b), d->away = away, d->eager = eager, d->go = 0;
            d->messages = static_cast<uint16_t>(messages), d->size = size;
            d->rx_valid = 0, d->tx_ready = 0, d->put = 0;
            d.reset();
            d->put = 1;
            for (unsigned r = 0; r < 256; r++) d->put_rank = static_cast<uint8_t>(r), d.settle(), d.rise();
            d->put = 0;
            for (unsigned i = 0; i < 4200; i++) d.settle(), d.rise();  // until memories are cleared
            d->go = 1;
        }
    }
    void step() {
        for (auto &board : boards) {
            Board &d = *board;
            d->rx_valid = d.shown();
            if (d.shown()) d->rx_data = d.in.front()[d.at], d->rx_last = d.at + 1 == d.in.front().size();
            d->tx_ready = d.out_gap == 0;
            d.settle();
            if (d.in_gap > 0) d.in_gap--;
            if (d.out_gap > 0) d.out_gap--;
            if (d->rx_valid && d->rx_ready && ++d.at == d.in.front().size()) d.in.pop_front(), d.at = 0, d.in_gap = kGap;
            if (d->tx_valid && d->tx_ready) {
                if (d.first_frame == 0) d.first_frame = cycles;
                d.out.push_back(d->tx_data);
                if (d->tx_last) {
                    d.out_gap = kGap;
                    const unsigned kind = d.out[kHead] >> 16 & 0xf;
                    if (kind == 2 || kind == 3) d.carried += d.out.size() + kGap;
                    const unsigned to = d.out[0] >> 40 & 0xff;
                    check(to < kBoards, "a frame to an unknown board");
                    boards[to]->in.push_back(std::move(d.out));
                    d.out.clear();
                }
            }
            d.rise();
            for (unsigned k = 0; k < kKernels; k++) {
                if (d->received[k] == d.received[k]) continue;
                d.received[k] = d->received[k], d.last[k] = cycles;
                if (d.received[k] == 1) d.first[k] = cycles;
            }
            check(!d->wrong, "wrong payload, or a fault");
        }
        cycles++;
    }
    // The number of kernels that are done.
    unsigned done() const {
        unsigned n = 0;
        for (auto &d : boards) n += static_cast<unsigned>(std::count(d->received.begin(), d->received.end(), messages_));
        return n;
    }
    void run() {
        while (done() < kBoards * kKernels) {
            check(cycles < 100000, "hangs");
            step();
        }
        for (auto &d : boards) check((*d)->lost == 0 && (*d)->dropped == 0, "packets were lost");
    }
    // Beats of a message: payload and, `more` for each, its packets' heads.
    double beats(unsigned more) const { return size_ / 8.0 + more * ((size_ + kPacket - 1) / kPacket); }

private:
    unsigned messages_, size_;
};

// On the boards: from the end of each kernel's first message to that of its last,
// as in msg_fabric_tb.
double on_boards(bool eager, unsigned messages, unsigned size) {
    Cluster c(false, eager, messages, size);
    c.run();
    double least = 1;
    for (auto &d : c.boards)
        for (unsigned k = 0; k < kKernels; k++) least = std::min(least, (messages - 1) * c.beats(1) / static_cast<double>(d->last[k] - d->first[k]));
    return least;
}

// Between boards: the share of packets with payload and their heads of each board's line, while all
// kernels send, and for `most` cycles.
double between_boards(bool eager, unsigned messages, unsigned size, uint64_t most) {
    Cluster c(true, eager, messages, size);
    while (c.done() == 0 && c.cycles < most) c.step();
    double least = 1;
    for (auto &d : c.boards) least = std::min(least, static_cast<double>(d->carried) / static_cast<double>(c.cycles - d->first_frame));
    if (c.cycles < most) c.run();
    return least;
}

void say(const std::string &what, double share) {
    std::printf("cycles 96 kernels on six boards, %s, least share of line rate in percent %.2f\n", what.c_str(), 100 * share);
    check(share >= 0.99, what + ": " + std::to_string(share));
}

}  // namespace

TEST(kernels_of_a_board_have_line_rate_each_while_all_send) {
    say("each kernel on its board, four packets, 128 KB", on_boards(false, 2, 128 << 10));
    say("each kernel on its board, eager, 4 KB", on_boards(true, 8, 4 << 10));
}

TEST(the_lines_between_boards_are_full_while_all_send) {
    say("each line between boards, four packets, 128 KB", between_boards(false, 1, 128 << 10, 50000));
    say("each line between boards, eager, 4 KB", between_boards(true, 4, 4 << 10, 100000));
}

BENCH_MAIN()
