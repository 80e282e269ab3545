// A kernel's access to memory: each read returns the last written word, for any sequence of
// requests; nothing outside of the kernel's memory is reached; and its cycles.
#include "clocked.hpp"

using namespace bench;

namespace {

// The kernel has the second half of the memory.
constexpr uint32_t kBytes = 1 << 15, kAt = 1 << 15, kLine = 128, kCache = 8 * kLine;

class Memory : public Clocked {
public:
    static constexpr uint64_t kOthers = 0x0123456789abcdef;
    Bytes right = Bytes(kBytes);
    unsigned faults = 0;

    Memory() {
        auto &d = *this;
        d->mem_valid = 0;
        place(0, 2 * kBytes);
        // Initial memory content is random, because all of it is written.
        for (uint32_t at = 0; at < kBytes; at += 8) write(at, 0xff, kOthers);
        // The cache is emptied by other lines.
        for (uint32_t at = 0; at < kCache; at += 8) read(kBytes + at);
        place(kAt, kBytes);
        for (uint32_t at = 0; at < kBytes; at += 8) write(at, 0xff, random.next());
    }
    // Gives the kernel this memory, and resets it.
    void place(uint32_t address, uint32_t bytes) {
        auto &d = *this;
        d->memory_address = address;
        d->memory_bytes = bytes;
        reset();
    }
    uint64_t read(uint32_t address) { return ask(address, 0, 0); }
    // A request that is not permitted.
    void refused(uint32_t address, uint8_t strobe) {
        auto &d = *this;
        d->mem_valid = 1;
        d->mem_address = address;
        d->mem_strobe = strobe;
        d->mem_data = 0;
        for (unsigned i = 0; i < 200; i++) {
            settle();
            check(!d->mem_ready, "a request outside of the memory completed");
            step();
        }
        check(d->mem_fault, "no fault at " + std::to_string(address));
        d->mem_valid = 0;
    }
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

TEST(requests_outside_of_the_memory_are_faults_and_change_nothing) {
    Memory memory;
    for (uint32_t address : {kBytes, kBytes + 128, 0x0ffffff8u, 0x10000000u, 0xfffffff8u})
        for (uint8_t strobe : {0x00, 0x01, 0xff}) {
            // A reset empties the cache: what it held is written back before.
            for (uint32_t at = 0; at < kCache; at += 8) memory.read(at + kCache);
            memory.idle(300);
            memory.refused(address, strobe);
            memory.place(kAt, kBytes);
        }
    for (uint32_t at = 0; at < kBytes; at += 8) compare(memory, at);
    memory.place(0, 2 * kBytes);
    for (uint32_t at = 0; at < kAt; at += 8) check(memory.read(at) == Memory::kOthers, "the memory of others has changed");
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
    check(clean == 40 + 16 + 4, "a miss takes " + std::to_string(clean));
    check(memory.took == clean + 17, "one in a written line's place takes " + std::to_string(memory.took));
}
#endif

}  // namespace

BENCH_MAIN()
