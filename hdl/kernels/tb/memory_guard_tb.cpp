// The guard of a kernel's memory: an access leaves it exactly if it is inside of its buffer and
// allowed, for any table and any sequence of accesses; and its report of the first fault.
#include <algorithm>

#include "clocked.hpp"

using namespace bench;

namespace {

struct Entry {
    uint32_t address = 0, bytes = 0;
    bool writable = false;
};

class Guard : public Clocked {
public:
    Entry table[16];

    explicit Guard(uint64_t seed = bench::seed()) : Clocked(seed) {
        auto &d = *this;
        d->mem_valid = 0;
        d->set_valid = 0;
        d->checked_ready = 0;
        d->read_fault = 0;
        reset();
    }
    void set(unsigned buffer, Entry entry) {
        auto &d = *this;
        d->set_valid = 1;
        d->set_buffer = buffer;
        d->set_address = entry.address;
        d->set_bytes = entry.bytes;
        d->set_writable = entry.writable;
        settle();
        rise();
        d->set_valid = 0;
        table[buffer] = entry;
    }
    // An access, which the memory accepts after some cycles; whether it left the guard.
    bool access(uint32_t address, uint8_t strobe, unsigned wait = 0) {
        auto &d = *this;
        d->mem_valid = 1;
        d->mem_address = address;
        d->mem_strobe = strobe;
        for (unsigned i = 0; i <= wait; i++) {
            d->checked_ready = i == wait;
            settle();
            const bool left = d->checked_valid;
            check(d->mem_ready == (left && i == wait), "the kernel's access is accepted without the memory");
            if (left) {
                const Entry &entry = table[address >> 28];
                check(d->checked_address == entry.address + (address & 0xfffffff), "the address differs");
            }
            rise();
            if (!left) {
                d->mem_valid = 0;
                return false;
            }
        }
        d->mem_valid = 0;
        return true;
    }
    bool allowed(uint32_t address, uint8_t strobe) const {
        const Entry &entry = table[address >> 28];
        uint64_t last = address & 0xfffffff;
        if (strobe != 0) {
            last &= ~7ull;
            for (unsigned i = 0; i < 8; i++)
                if (strobe >> i & 1) last = (address & 0xffffff8) + i;
        }
        return last < entry.bytes && (strobe == 0 || entry.writable);
    }
};

TEST(accesses_leave_exactly_if_they_are_inside_of_a_buffer) {
    Random random(bench::seed());
    for (int round = 0; round < 300; round++) {
        Guard guard(random.next());
        for (unsigned buffer = 1; buffer < 16; buffer++) {
            if (random.percent(20)) continue;
            const uint32_t large = random.percent(20) ? 1u << 28 : 200;
            guard.set(buffer, {static_cast<uint32_t>(random.next()) & ~7u, static_cast<uint32_t>(random.below(large + 1)), random.percent(60)});
        }
        for (int i = 0; i < 200; i++) {
            const uint32_t buffer = random.below(16), bytes = guard.table[buffer].bytes;
            // Mostly near the end.
            const int64_t offset = random.percent(70) ? static_cast<int64_t>(bytes) + random.below(24) - 20 : random.below(1u << 28);
            const uint32_t address = buffer << 28 | (static_cast<uint32_t>(offset) & 0xfffffff);
            const uint8_t strobe = random.percent(50) ? static_cast<uint8_t>(random.next()) : 0;
            const bool left = guard.access(address, strobe, random.below(4));
            check(left == guard.allowed(address, strobe), "an access is checked wrongly");
            check(guard->fault == !left, "the fault differs");
            if (left) continue;
            check(guard->fault_buffer == buffer && guard->fault_write == (strobe != 0) && guard->fault_offset == (address & 0xfffffff),
                  "the fault's report differs");
            break;
        }
    }
}

TEST(nothing_leaves_after_a_fault) {
    Guard guard;
    guard.set(1, {64, 32, true});
    check(guard.access(1u << 28, 0xff), "an access to the buffer is refused");
    check(!guard.access((1u << 28) + 32, 0x01), "an access behind the buffer leaves");
    check(!guard.access(1u << 28, 0xff), "an access leaves after a fault");
    check(guard->fault_offset == 32, "the report is not that of the first fault");
    guard.reset();
    check(!guard.access(1u << 28, 0), "a buffer remains after reset");
}

TEST(lines_end_with_their_buffer) {
    Random random(bench::seed());
    for (int round = 0; round < 200; round++) {
        Guard guard(random.next());
        auto &d = guard;
        const uint32_t bytes = random.below(3) == 0 ? random.below(1u << 28) + 1 : random.below(600) + 1;
        const uint32_t address = (static_cast<uint32_t>(random.next()) & 0xfffffff8) >> 1;
        guard.set(5, {address & ~7u, bytes, random.percent(50)});
        const uint32_t base = guard.table[5].address, skew = base % 128;
        for (int i = 0; i < 50; i++) {
            // Mostly near the end.
            const uint32_t line = random.percent(70) ? (bytes + skew) / 128 + random.below(4) - 2 : random.below(1 << 22);
            d->fetch_buffer = 5;
            d->fetch_line = line & 0x3fffff;
            guard.settle();
            const int64_t end = int64_t(bytes) + skew - 128 * int64_t(d->fetch_line);
            check(d->fetch_bytes == std::clamp<int64_t>(end, 0, 128), "the bytes of a line differ");
            check(end <= 0 || d->fetch_address == base - skew + 128 * d->fetch_line, "a line's address differs");
            check((d->fetch_skews >> 20 & 15) == skew / 8, "the place of a buffer in its line differs");
        }
        d->fetch_buffer = 6;
        guard.settle();
        check(d->fetch_bytes == 0, "a line without a buffer has bytes");
        d->read_fault = 1;
        d->read_address = 5u << 28 | 7777;
        guard.settle();
        guard.rise();
        d->read_fault = 0;
        check(d->fault && d->fault_buffer == 5 && d->fault_offset == 7777 && !d->fault_write, "the report of a read differs");
        check(!guard.access(5u << 28, 0), "an access leaves after a fault");
    }
}

TEST(buffers_without_an_entry_have_no_bytes) {
    for (uint32_t buffer = 0; buffer < 16; buffer++) {
        Guard guard;
        check(!guard.access(buffer << 28, 0), "a read without a buffer leaves");
    }
}

TEST(read_only_buffers_are_only_read) {
    Guard guard;
    guard.set(3, {128, 8, false});
    check(guard.access(3u << 28 | 7, 0), "a read is refused");
    check(!guard.access(3u << 28, 0x80), "a write leaves");
    check(guard->fault_write, "the report is of a read");
}

}  // namespace

BENCH_MAIN()
