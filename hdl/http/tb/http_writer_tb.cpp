// Streams of beats of any length, from any position, with flushes in between, of several sources in
// turn: the memory holds them.
#include <map>

#include "clocked.hpp"

using namespace bench;

namespace {

constexpr unsigned kSources = 3;
constexpr uint32_t kRing = 1u << 21, kPositions = 1u << 23;

struct Source {
    uint32_t from = 0, session = 0;
    Bytes all;
};

}  // namespace

TEST(bytes_at_any_position) {
    Clocked dut;
    dut->start = dut->valid = dut->flush = 0;
    dut.reset();
    for (int run = 0; run < 300; run++) {
        std::map<uint64_t, uint8_t> memory;
        Source sources[kSources];
        auto step = [&] {
            dut.settle();
            dut.rise();
            dut->start = dut->valid = dut->flush = 0;
            dut.settle();
            if (!dut->write) return;
            check(dut->writes && !(dut->writes & (dut->writes - 1)), "two write at once");
            unsigned who = static_cast<unsigned>(__builtin_ctz(dut->writes));
            check(dut->write_address >> 18 == sources[who].session, "another source's ring");
            for (unsigned i = 0; i < 8; i++)
                if (dut->write_keep >> i & 1) memory[dut->write_address * 8ull + i] = static_cast<uint8_t>(dut->write_data >> (8 * i));
        };
        for (unsigned s = 0; s < kSources; s++) {
            sources[s].from = static_cast<uint32_t>(dut.random.next()) % kPositions;
            sources[s].session = run % 2 ? s : 5 * s;
            dut->session[s] = static_cast<uint8_t>(sources[s].session);
            dut->from[s] = sources[s].from;
            dut->start = static_cast<uint8_t>(1u << s);
            step();
        }
        auto end_of = [&](unsigned s) { return (sources[s].from + sources[s].all.size()) % kPositions; };
        for (int beat = 0; beat < 120; beat++) {
            unsigned s = dut.random.below(kSources);
            if (dut.random.percent(10)) {
                dut->flush = static_cast<uint8_t>(1u << s);
                step();
                // It continues at another position, which no other source uses.
                if (!dut.random.percent(30)) continue;
                step();
                check(dut->position[s] == end_of(s), "ends elsewhere");
                for (size_t i = 0; i < sources[s].all.size(); i++) {
                    uint64_t at = static_cast<uint64_t>(sources[s].session) * kRing + (sources[s].from + i) % kRing;
                    check(memory.count(at) && memory[at] == sources[s].all[i], "byte " + std::to_string(i) + " is wrong");
                    memory.erase(at);
                }
                sources[s].all.clear();
                sources[s].from = static_cast<uint32_t>(dut.random.next()) % kPositions;
                // In the same cycle as the next flush.
                dut->flush = static_cast<uint8_t>(1u << s);
                step();
                dut->from[s] = sources[s].from;
                dut->start = static_cast<uint8_t>(1u << s);
                step();
                continue;
            }
            Bytes part = dut.random.bytes(dut.random.below(9));
            dut->valid = static_cast<uint8_t>(1u << s);
            for (unsigned other = 0; other < kSources; other++) dut->data[other] = dut.random.next();
            for (size_t i = 0; i < part.size(); i++)
                dut->data[s] = (dut->data[s] & ~(0xffull << (8 * i))) | static_cast<uint64_t>(part[i]) << (8 * i);
            dut->length[s] = static_cast<uint8_t>(part.size());
            step();
            sources[s].all.insert(sources[s].all.end(), part.begin(), part.end());
        }
        for (unsigned s = 0; s < kSources; s++) {
            dut->flush = static_cast<uint8_t>(1u << s);
            step();
        }
        step();
        step();
        size_t bytes = 0;
        for (unsigned s = 0; s < kSources; s++) {
            bytes += sources[s].all.size();
            check(dut->position[s] == end_of(s), "ends elsewhere");
            for (size_t i = 0; i < sources[s].all.size(); i++) {
                uint64_t at = static_cast<uint64_t>(sources[s].session) * kRing + (sources[s].from + i) % kRing;
                check(memory.count(at) && memory[at] == sources[s].all[i], "byte " + std::to_string(i) + " is wrong");
            }
        }
        check(memory.size() == bytes, "other bytes than those given were written");
    }
}

BENCH_MAIN()
