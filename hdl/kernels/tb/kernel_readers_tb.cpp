// The loads of a kernel that have ports of their own: each returns the memory's word for any sequence
// of addresses; no line without bytes of a buffer is read; a read outside of its buffer ends in a
// fault; and the cycles of streams.
#include <deque>
#include <set>

#include "clocked.hpp"

using namespace bench;

namespace {

constexpr unsigned kPorts = 3;
constexpr uint32_t kLine = 128;

struct Entry {
    uint32_t address = 0, bytes = 0;
};

// The memory's contents.
uint64_t word_at(uint32_t address, uint64_t version) {
    uint64_t x = (address / 8 + 1) * 0x9e3779b97f4a7c15ull + version * 0xbf58476d1ce4e5b9ull;
    return x ^ x >> 29;
}

struct Access {
    bool active = false;
    uint32_t address = 0;
};

class Readers : public Clocked {
public:
    Entry table[16];
    uint64_t version = 0;
    unsigned latency = 20, jitter = 0, pause = 0;
    std::set<uint32_t> lines;  // that have been read

    explicit Readers(uint64_t seed = bench::seed()) : Clocked(seed) {
        auto &d = *this;
        d->start = d->step = d->port_reads = d->set_valid = 0;
        d->arready = d->rvalid = d->rlast = 0;
        reset();
    }
    void set(unsigned buffer, Entry entry) {
        auto &d = *this;
        d->set_valid = 1;
        d->set_buffer = buffer;
        d->set_address = entry.address;
        d->set_bytes = entry.bytes;
        d->set_writable = 0;
        cycle(false);
        d->set_valid = 0;
        table[buffer] = entry;
    }
    // The reset of the ports before a launch, when no line is on its way.
    void start() {
        auto &d = *this;
        d->port_reads = 0;
        for (unsigned waited = 0; waited == 0 || !d->idle; waited++) {
            check(waited < 4000, "lines do not arrive");
            cycle(false);
        }
        d->start = 1;
        cycle(false);
        d->start = 0;
        for (auto &step : before_)
            for (auto &before : step) before.active = false;
    }
    // A step with an access of each port, which ends when all words of the second step before are
    // there; whether it ended before a fault.
    bool step(const Access (&accesses)[kPorts]) {
        auto &d = *this;
        d->port_reads = 0;
        for (unsigned i = 0; i < kPorts; i++) {
            if (accesses[i].active) d->port_reads |= 1u << i;
            d->port_addresses[i] = accesses[i].address;
        }
        for (unsigned waited = 0;; waited++) {
            check(waited < 4000, "a step has no end");
            if (random.percent(pause)) {
                cycle(false);
                continue;
            }
            if (cycle(true)) break;
            if (d->fault) return false;
        }
        std::copy(std::begin(before_[1]), std::end(before_[1]), before_[0]);
        std::copy(std::begin(accesses), std::end(accesses), before_[1]);
        return true;
    }
    // The steps in which the words of the last accesses are there.
    bool drain() { return step({}) && step({}); }
    uint64_t expected(uint32_t address) const {
        return word_at((table[address >> 28].address + (address & 0xffffff8)), version);
    }
    bool inside(uint32_t address) const { return (address & 0xfffffff) < table[address >> 28].bytes; }

private:
    // A cycle; whether the kernel proceeds.
    bool cycle(bool may_step) {
        auto &d = *this;
        memory();
        d->step = 0;
        settle();
        const bool go = may_step && d->readers_ready;
        d->step = go;
        settle();
        if (go)
            for (unsigned i = 0; i < kPorts; i++) {
                if (!before_[0][i].active) continue;
                const uint64_t word = static_cast<uint64_t>(d->port_words[2 * i + 1]) << 32 | d->port_words[2 * i];
                check(word == expected(before_[0][i].address), "a word differs from the memory's");
            }
        const bool requests = d->arvalid && d->arready;
        const uint32_t address = d->araddr;
        rise();
        if (requests) {
            check(address % kLine == 0, "a line is not aligned");
            bool own = false;
            for (const Entry &entry : table)
                own = own || (entry.bytes != 0 && address + kLine > entry.address && address < entry.address + entry.bytes);
            check(own, "a line without bytes of a buffer is read");
            lines.insert(address);
            reads_.push_back({address, cycles + latency + (jitter ? random.below(jitter) : 0), version});
        }
        return go;
    }
    void memory() {
        auto &d = *this;
        if (d->rvalid && d->rlast) {
            reads_.pop_front();
            beat_ = 0;
        } else if (d->rvalid) beat_++;
        d->rvalid = !reads_.empty() && cycles >= reads_.front().due && !random.percent(jitter ? 20 : 0);
        d->rlast = d->rvalid && beat_ == 15;
        if (d->rvalid) d->rdata = word_at(reads_.front().address + 8 * beat_, reads_.front().version);
        d->arready = !random.percent(jitter ? 30 : 0);
    }

    // A burst, with the contents at the time of its request.
    struct Read {
        uint32_t address;
        uint64_t due, version;
    };

    std::deque<Read> reads_;
    unsigned beat_ = 0;
    Access before_[2][kPorts];  // of the second step before, and of the one before
};

// The next offset of a port whose accesses follow a pattern for a while.
class Walk {
public:
    Access next(Random &random, const Readers &readers) {
        if (left_ == 0) {
            left_ = 1 + random.below(120);
            buffer_ = 1 + random.below(4);
            const uint32_t bytes = readers.table[buffer_].bytes;
            at_ = random.below(bytes);
            const int64_t strides[] = {1, 4, 8, 4, 8, -4, 72, 128, 1024, 8192, -128, 0};
            stride_ = strides[random.below(12)];
            // Rows of a tile: bytes of a row, and from the start of one to the next.
            if (stride_ > 1024) at_ = random.below(2048);
            row_ = random.percent(30) ? 128 << random.below(3) : 0;
            pitch_ = row_ + 128 * random.below(8);
            passed_ = 0;
        }
        left_--;
        const uint32_t bytes = readers.table[buffer_].bytes;
        if (at_ < 0 || at_ >= bytes) at_ = random.below(bytes);
        const Access access = {!random.percent(20), buffer_ << 28 | static_cast<uint32_t>(at_)};
        at_ += stride_;
        passed_ += stride_;
        if (row_ != 0 && passed_ >= row_) {
            at_ += pitch_ - passed_;
            passed_ = 0;
        }
        return access;
    }

private:
    unsigned left_ = 0, buffer_ = 1;
    int64_t at_ = 0, stride_ = 0, row_ = 0, pitch_ = 0, passed_ = 0;
};

void place(Readers &readers, unsigned skew) {
    const uint32_t sizes[] = {40000, 9001, 128, 20};
    uint32_t at = 1024;
    for (unsigned buffer = 1; buffer <= 4; buffer++) {
        const uint32_t offset = skew * (8 * buffer + 40) % 128;
        readers.set(buffer, {at + offset, sizes[buffer - 1]});
        at += (offset + sizes[buffer - 1] + 127) / 128 * 128 + 256;
    }
}

TEST(words_are_those_of_the_memory) {
    for (unsigned round = 0; round < 12; round++) {
        Readers readers(bench::seed() + round);
        readers.jitter = round % 3 * 20;
        readers.pause = round % 2 * 30;
        place(readers, round / 4);
        Walk walks[kPorts];
        // Results of an execution before are not seen.
        for (int execution = 0; execution < 4; execution++) {
            readers.version = execution;
            readers.start();
            for (int i = 0; i < 1500; i++) {
                Access accesses[kPorts];
                const bool same = i / 50 % 3 == 0;
                for (unsigned p = 0; p < kPorts; p++)
                    accesses[p] = same && p > 0 ? accesses[0] : walks[p].next(readers.random, readers);
                check(readers.step(accesses), "a read inside of its buffer is a fault");
            }
            readers.drain();
        }
    }
}

TEST(reads_outside_of_a_buffer_are_faults) {
    for (uint32_t bytes : {4u, 8u, 100u, 128u, 256u, 1000u})
        for (uint32_t skew : {0u, 8u, 120u})
            for (uint32_t beyond : {0u, 1u, 28u, 127u, 128u, 100000u, (1u << 28) - 1 - 1000}) {
                Readers readers;
                readers.set(2, {4096 + skew, bytes});
                readers.set(3, {8192, 64});
                readers.start();
                // A stream until its end, with lines ahead, but no fault.
                for (uint32_t at = 0; at < bytes; at += 4) check(readers.step({{true, 2u << 28 | at}, {}, {true, 3u << 28}}), "a fault inside");
                for (int i = 0; i < 100; i++)
                    check(readers.step({{false, 2u << 28 | 0xfffffff}, {}, {}}), "faults only after a read");
                check(!readers->fault, "faults only after a read");
                const uint32_t at = 2u << 28 | (bytes + beyond);
                const bool first = readers.step({{}, {true, at}, {}});
                check(!(first && readers.drain()), "a read behind the buffer has a word");
                check(readers->fault && readers->fault_buffer == 2 && !readers->fault_write && readers->fault_offset == (at & 0xfffffff),
                      "the fault's report differs");
            }
    Readers readers;
    readers.start();
    check(!(readers.step({{true, 0}, {}, {}}) && readers.drain()), "a read through a null pointer has a word");
    check(readers.lines.empty(), "a line without a buffer is read");
}

TEST(ports_share_the_lines_of_a_stream) {
    Readers readers;
    readers.set(1, {0, 1 << 16});
    readers.start();
    // Neighboring elements, as in a filter.
    for (uint32_t at = 4; at < 8000; at += 4)
        check(readers.step({{true, 1u << 28 | (at - 4)}, {true, 1u << 28 | at}, {true, 1u << 28 | (at + 4)}}), "a fault");
    check(readers.cycles < 2000 + 200, "three ports of a stream take " + std::to_string(readers.cycles) + " cycles");
    std::printf("  clocks: 2,000 steps of three neighboring elements %u\n", unsigned(readers.cycles));
}

TEST(a_stream_is_as_fast_as_the_memory) {
    Readers readers;
    readers.set(1, {0, 1 << 16});
    readers.start();
    for (uint32_t at = 0; at < 16000; at += 8) readers.step({{true, 1u << 28 | at}, {}, {}});
    std::printf("  clocks: 2,000 words of a stream %u\n", unsigned(readers.cycles));
    check(readers.cycles < 2000 + 200, "a stream of words takes " + std::to_string(readers.cycles));
}

TEST(lines_behind_the_rows_of_a_tile_are_not_read) {
    for (uint32_t row : {128u, 256u, 512u, 1024u}) {
        Readers readers;
        readers.set(1, {0, 1 << 20});
        readers.start();
        for (uint32_t y = 0; y < 64; y++)
            for (uint32_t x = 0; x < row; x += 8) check(readers.step({{true, 1u << 28 | (4096 * y + x)}, {}, {}}), "a fault");
        // The rows have their length from the third one on.
        const size_t own = 64 * row / kLine;
        std::printf("  lines: 64 rows of %u bytes %u, %u clocks\n", row, unsigned(readers.lines.size()), unsigned(readers.cycles));
        check(readers.lines.size() <= own + 2 * 4, "rows of " + std::to_string(row) + " bytes read " + std::to_string(readers.lines.size()) + " lines");
        // Rows that become longer are streams again; with strides, after fifteen lines.
        const uint64_t before = readers.cycles;
        for (uint32_t at = 0; at < 16000; at += 8) readers.step({{true, 1u << 28 | (1u << 19 | at)}, {}, {}});
        check(readers.cycles - before < 2000 + 200 + 16 * 40 * W, "a stream of words after rows takes " + std::to_string(readers.cycles - before));
    }
}

#if W == 1
TEST(rows_of_several_work_items_do_not_replace_each_other) {
    for (uint32_t stride : {128u, 384u, 1152u, 4096u, 5120u, 1u << 15, 1u << 18, 3u << 14}) {
        Readers readers;
        readers.set(1, {0, 1 << 26});
        readers.start();
        unsigned missed = 0;
        for (uint32_t word = 0; word < 64; word++)
            for (uint32_t item = 0; item < 16; item++) {
                const uint64_t before = readers.cycles;
                check(readers.step({{true, 1u << 28 | (item * stride + 4 * word)}, {}, {}}), "a fault");
                missed += readers.cycles - before > 1;
            }
        readers.drain();
        std::printf("  misses: 64 words of 16 rows at %u bytes %u\n", stride, missed);
        // Each row has two lines; the distance is known after three misses.
        check(missed <= 2 * 16 + 20, "rows at " + std::to_string(stride) + " bytes miss " + std::to_string(missed) + " times");
    }
}
#endif

}  // namespace

BENCH_MAIN()
