// A kernel's access to memory: each read returns the last written word, for any sequence of
// requests; and its cycles.
#include "clocked.hpp"

using namespace bench;

namespace {

constexpr uint32_t kBytes = 1 << 16, kLine = 64, kCache = 8 * kLine;

class Memory : public Clocked {
public:
    Bytes right = Bytes(kBytes);
    unsigned faults = 0;

    Memory() {
        auto &d = *this;
        d->mem_valid = 0;
        reset();
        // Initial memory content is random, because all of it is written.
        for (uint32_t at = 0; at < kBytes; at += 8) write(at, 0xff, random.next());
    }
    uint64_t read(uint32_t address) { return ask(address, 0, 0); }
    void write(uint32_t address, uint8_t strobe, uint64_t data) {
        ask(address, strobe, data);
        for (int i = 0; i < 8; i++)
            if (strobe >> i & 1 && address < kBytes) right[(address & ~7u) + i] = static_cast<uint8_t>(data >> 8 * i);
    }
    uint64_t expected(uint32_t address) const {
        uint64_t word = 0;
        for (int i = 8; i-- > 0;) word = word << 8 | right[(address & ~7u) + i];
        return word;
    }
    void idle(unsigned clocks) {
        for (unsigned i = 0; i < clocks; i++) step();
    }
    unsigned took = 0;  // clocks of the last request

private:
    void step() {
        settle();
        faults += (*this)->mem_fault;
        rise();
    }
    uint64_t ask(uint32_t address, uint8_t strobe, uint64_t data) {
        auto &d = *this;
        d->mem_valid = 1;
        d->mem_address = address;
        d->mem_strobe = strobe;
        d->mem_data = data;
        settle();
        for (took = 1; !d->mem_ready; took++) {
            check(took < 2000, "no answer");
            step();
            settle();
        }
        const uint64_t word = d->mem_word;
        step();
        d->mem_valid = 0;
        return word;
    }
};

void compare(Memory &memory, uint32_t address) {
    check(memory.read(address) == memory.expected(address), "the word at " + std::to_string(address) + " differs from the written one");
}

TEST(words_have_the_last_written_value) {
    Memory memory;
    for (uint32_t range : {kCache / 2, 4 * kCache, kBytes}) {
        for (int i = 0; i < 6000; i++) {
            const uint32_t address = memory.random.below(range);
            if (memory.random.percent(50)) memory.write(address, static_cast<uint8_t>(memory.random.next()), memory.random.next());
            else compare(memory, address);
            if (memory.random.percent(10)) memory.idle(memory.random.below(100));
        }
    }
    for (uint32_t at = 0; at < kBytes; at += 8) compare(memory, at);
    check(memory.faults == 0, "the memory refused");
}

TEST(an_evicted_line_returns_unchanged) {
    Memory memory;
    // Two lines with the same place, written alternately without pause:
    // each fetch follows the other's eviction.
    for (int i = 0; i < 500; i++) {
        const uint32_t at = memory.random.below(kLine) + (i % 2) * kCache;
        memory.write(at, 0xff, memory.random.next());
        compare(memory, at ^ kCache);
    }
}

TEST(an_address_without_memory_is_a_fault_and_stops_nothing) {
    Memory memory;
    memory.read(kBytes + 128);
    check(memory.faults > 0, "no fault for a read");
    memory.faults = 0;
    memory.write(kBytes + 4096, 0xff, 1);
    for (uint32_t at = 0; at < 2 * kCache; at += 8) compare(memory, at);
    check(memory.faults > 0, "no fault for a write");
}

#if W == 0
TEST(clocks_are_as_documented) {
    Memory memory;
    memory.idle(200);
    memory.read(0);
    memory.read(8);
    check(memory.took == 2, "a hit takes " + std::to_string(memory.took));
    memory.read(kCache);
    const unsigned clean = memory.took;
    memory.write(kCache, 0xff, 1);
    memory.read(0);
    std::printf("  clocks: hit 2, miss %u, miss in a written line's place %u, of them the memory's 40\n", clean, memory.took);
    check(clean == 40 + 8 + 4, "a miss takes " + std::to_string(clean));
    check(memory.took == clean + 9, "one in a written line's place takes " + std::to_string(memory.took));
}
#endif

}  // namespace

BENCH_MAIN()
