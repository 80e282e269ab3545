// Words that are written and read at any pace, alone and in runs: a read returns what was written
// before it, in the order of the reads, with its note; and consecutive words share bursts.
#include <deque>

#include "clocked.hpp"

using namespace bench;

namespace {

constexpr uint32_t kWords = 1024;
constexpr unsigned kLate = 24;  // words that a writer may still give

struct Read {
    uint32_t address;
    uint16_t note;
    size_t version;  // of its word, when it was requested
};

struct Rings : Clocked {
    std::vector<std::vector<uint64_t>> versions = std::vector<std::vector<uint64_t>>(kWords, {0});
    std::deque<Read> reads;
    unsigned writes_of = 50, reads_of = 50, run_of = 80;  // percentages
    uint64_t arrived = 0;

    Rings() {
        auto &dut = *this;
        dut->write_valid = dut->read_valid = 0;
        reset();
        // Memory begins with anything.
        writes_of = 100, run_of = 100;
        for (uint32_t at = 0; at < kWords;) {
            at_ = at;
            at += step(true, false);
        }
        settle_all();
        writes_of = 50, run_of = 80;
    }

    // A cycle. Returns whether a word was written.
    bool step(bool writes, bool asks) {
        auto &dut = *this;
        settle();
        if (dut->write_ready) late_ = kLate;
        const bool whole = versions_complete_ == kWords;
        dut->write_valid = writes && late_ != 0 && random.percent(writes_of);
        if (dut->write_valid) {
            late_ -= !dut->write_ready;
            if (whole) at_ = random.percent(run_of) ? (at_ + 1) % kWords : random.below(kWords);
            dut->write_address = at_;
            dut->write_data = random.next();
            dut->write_keep = whole ? 1 + random.below(255) : 0xff;
            uint64_t value = versions[at_].back();
            for (int i = 0; i < 8; i++)
                if (const uint64_t lane = 0xffull << (8 * i); dut->write_keep >> i & 1)
                    value = (value & ~lane) | (dut->write_data & lane);
            versions[at_].push_back(value);
            if (!whole) versions_complete_++;
        }
        const bool wrote = dut->write_valid;
        // The write of this cycle may or may not be seen.
        dut->read_valid = asks && may_read_ && random.percent(reads_of);
        if (dut->read_valid) {
            from_ = random.percent(run_of) ? (from_ + 1) % kWords : random.below(kWords);
            dut->read_address = from_;
            dut->read_note = random.below(4096);
            const bool now = wrote && at_ == from_;
            reads.push_back({from_, dut->read_note, versions[from_].size() - 1 - now});
        }
        settle();
        may_read_ = dut->read_ready;
        if (dut->word_valid) {
            check(!reads.empty(), "a word that nobody has requested");
            const Read read = reads.front();
            reads.pop_front();
            check(dut->word_note == read.note, "another read's note");
            bool found = false;
            const std::vector<uint64_t> &word = versions[read.address];
            for (size_t i = read.version; i < word.size(); i++) found |= word[i] == dut->word_data;
            check(found, "word " + std::to_string(read.address) + " is older than its read");
            arrived++;
        }
        rise();
        return wrote;
    }

    void settle_all() {
        for (int i = 0; i < 20000 && (i < 3000 || !reads.empty()); i++) step(false, false);
        check(reads.empty(), "a read is never answered");
        check(!(*this)->busy, "busy without work");
    }

private:
    uint32_t at_ = 0, from_ = 0;
    size_t versions_complete_ = 0;
    unsigned late_ = kLate;
    bool may_read_ = false;
};

}  // namespace

TEST(reads_return_what_was_written) {
    Rings dut;
    for (int run = 0; run < 60; run++) {
        dut.writes_of = dut.random.below(101);
        dut.reads_of = dut.random.below(101);
        dut.run_of = dut.random.below(101);
        for (int i = 0; i < 1500; i++) dut.step(true, true);
        if (dut.random.percent(20)) dut.settle_all();
    }
    dut.settle_all();
    check(dut.arrived > 1000, "only " + std::to_string(dut.arrived) + " words arrived");
}

TEST(a_reader_is_not_kept_waiting_by_writes_that_never_end) {
    Rings dut;
    dut.writes_of = 100, dut.reads_of = 20;
    for (int i = 0; i < 30000; i++) dut.step(true, true);
    check(dut.arrived > 1000, "only " + std::to_string(dut.arrived) + " words arrived");
}

TEST(consecutive_words_share_bursts) {
    Rings dut;
    const uint64_t before = dut->bursts, words = dut.arrived;
    dut.reads_of = dut.run_of = 100;
    for (int i = 0; i < 20000; i++) dut.step(false, true);
    dut.settle_all();
    const uint64_t bursts = dut->bursts - before;
    check(dut.arrived - words > 12 * bursts, std::to_string(bursts) + " bursts");
}

BENCH_MAIN()
