#include "clocked.hpp"

#include <vector>

using namespace bench;

struct Note {
    bool gap;
    uint32_t at, sample;
};

// Inputs of the core, one sample per cycle, and its records.
struct Shown : Clocked {
    std::vector<uint32_t> samples;
    std::vector<Note> notes;

    Shown() {
        (*this)->sample = 0, (*this)->m_ready = 0, (*this)->now = 0;
        reset();
    }
    void step(uint32_t sample, bool ready) {
        auto &d = *this;
        d->sample = sample, d->m_ready = ready, d->now = static_cast<uint32_t>(samples.size());
        samples.push_back(sample);
        settle();
        if (d->m_valid && ready) notes.push_back({bool(d->m_gap), d->m_at, d->m_sample});
        rise();
    }
    // Reads its records.
    void drain() {
        const uint32_t last = samples.back();
        for (int i = 0; i < 600; i++) step(last, true);
    }
    // The value of a record is valid until the next one; after a gap it is unknown until then.
    size_t compare() {
        size_t gaps = 0;
        for (size_t i = 0; i < notes.size(); i++) {
            const size_t end = i + 1 < notes.size() ? notes[i + 1].at : notes[i].at + 1;
            gaps += notes[i].gap;
            check(samples.at(notes[i].at) == notes[i].sample, "note " + std::to_string(i) + " is wrong");
            if (i + 1 < notes.size() && notes[i + 1].gap) continue;
            for (size_t at = notes[i].at; at < end; at++)
                check(samples[at] == notes[i].sample, "clock " + std::to_string(at) + " is not recorded");
        }
        return gaps;
    }
};

TEST(every_clock_is_recorded_when_notes_are_taken_at_once) {
    Shown core;
    for (int i = 0; i < 5000; i++) core.step(core.random.percent(30) || i == 0 ? core.random.below(4) : core.samples.back(), true);
    core.drain();
    check(core.notes.front().at == 0, "the first clock is not recorded");
    check(core.compare() == 0, "a gap where none was");
    size_t changes = 1;
    for (size_t i = 1; i < core.samples.size(); i++) changes += core.samples[i] != core.samples[i - 1];
    check(core.notes.size() == changes, std::to_string(core.notes.size()) + " notes of " + std::to_string(changes) + " changes");
}

TEST(losses_are_marked_and_later_changes_are_recorded) {
    Shown core;
    for (uint32_t i = 0; i < 700; i++) core.step(i, false);  // more than the 513 that it holds
    for (uint32_t i = 0; i < 20; i++) core.step(699, true);  // no change, but earlier changes were
                                                             // lost
    for (uint32_t i = 0; i < 700; i++) core.step(1000 + i, true);
    core.drain();
    check(core.compare() == 1, "not one gap");
    size_t at = 0;
    while (!core.notes[at].gap) at++;
    check(at == 513, std::to_string(at) + " notes before the gap");
    check(core.notes[at].sample == 699 && core.notes[at].at >= 700, "the gap is noted late");
    check(core.notes.back().sample == 1699, "the end is not recorded");
}

TEST(any_reader_gets_nothing_wrong) {
    Shown core;
    for (unsigned stall : {0, 50, 95})
        for (int i = 0; i < 4000; i++) core.step(core.random.percent(60) || i == 0 ? core.random.below(1u << 30) : core.samples.back(), !core.random.percent(stall));
    core.drain();
    check(core.compare() > 0, "the slow reader has lost nothing");
}

BENCH_MAIN()
