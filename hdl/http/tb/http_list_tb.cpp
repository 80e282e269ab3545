// The list of functions is valid JSON for any content of the table.
#include <array>
#include <optional>

#include "clocked.hpp"

using namespace bench;

namespace {

constexpr size_t slots = 64;
using Names = std::array<std::optional<std::string>, slots>;

std::string listed(Clocked &dut, const Names &names) {
    std::string out;
    dut->start = 1;
    for (int cycle = 0;; cycle++) {
        check(cycle < 2000, "never ends");
        dut.settle();
        const auto &name = names[dut->slot];
        const bool used = name.has_value();
        uint64_t half = dut.random.next();  // of an unused slot: random
        if (used) {
            half = 0;
            for (size_t i = 0; i < 8 && 8 * dut->slot_word + i < name->size(); i++)
                half |= static_cast<uint64_t>(static_cast<uint8_t>((*name)[8 * dut->slot_word + i])) << (8 * i);
        }
        bool last = false;
        if (dut->valid) {
            check(dut->length >= 1 && dut->length <= 8, "a word of " + std::to_string(dut->length) + " bytes");
            for (int i = 0; i < dut->length; i++) out.push_back(static_cast<char>(dut->data >> (8 * i)));
            last = dut->last;
        }
        dut.rise();
        dut->start = 0;
        dut->slot_used = used;
        dut->slot_name = half;
        if (last) return out;
    }
}

std::string json(const Names &names) {
    std::string out;
    for (const auto &name : names)
        if (name) out += (out.empty() ? "[" : ",") + ("{\"name\":\"" + *name + "\"}");
    return (out.empty() ? "[" : out) + "]\n";
}

}  // namespace

TEST(any_table) {
    Clocked dut;
    dut->start = 0;
    dut.reset();
    for (unsigned full : {0, 3, 50, 100})
        for (int round = 0; round < 10; round++) {
            Names names;
            for (auto &name : names) {
                if (!dut.random.percent(full)) continue;
                name.emplace();
                for (size_t n = 1 + dut.random.below(15); n; n--) name->push_back(static_cast<char>('a' + dut.random.below(26)));
            }
            std::string want = json(names);
            for (int again = 0; again < 2; again++) {
                std::string got = listed(dut, names);
                check(got == want, got + " instead of " + want);
            }
        }
}

BENCH_MAIN()
