#include "clocked.hpp"

#include <map>

using namespace bench;

namespace {

constexpr size_t name_bytes = 32, entries = 64, probes = 4;

uint8_t forward(uint8_t c, uint8_t x) {
    c ^= x;
    for (int i = 0; i < 8; i++) c = static_cast<uint8_t>(c & 1 ? c >> 1 ^ 0xAB : c >> 1);
    return c;
}

uint8_t hash(const Bytes &name, size_t bytes = name_bytes) {
    uint8_t c = 0xff;
    for (size_t i = 0; i < bytes; i++) c = forward(c, name[i]);
    return c;
}

// Another name with the same hash: one of its bytes compensates for those before it,
// and the rest is equal.
Bytes collision(Random &random, const Bytes &name, size_t tail) {
    size_t last = name_bytes - tail - 1;
    Bytes other = random.bytes(name_bytes - tail);
    other[last] = static_cast<uint8_t>(hash(other, last) ^ hash(name, last) ^ name[last]);
    other.insert(other.end(), name.end() - static_cast<std::ptrdiff_t>(tail), name.end());
    check(hash(other) == hash(name), "the bench's collision is none");
    return other;
}

Bytes padded(const std::string &s) {
    Bytes b = text(s);
    b.resize(name_bytes);
    return b;
}

struct Found {
    bool hit;
    uint32_t function, entry;
    uint64_t cycles;
};

struct Table : Clocked {
    Table() {
        auto &dut = *this;
        dut->find_valid = dut->change_valid = 0;
        clear();
    }

    // Resets, and waits until the slots have been cleared.
    void clear() {
        auto &dut = *this;
        reset();
        for (int i = 0; i < 300 && !dut->find_ready; i++) {
            dut.rise();
            dut.settle();
        }
    }

    template <class P> void put(P &port, const Bytes &name) {
        for (size_t i = 0; i < name_bytes / 4; i++)
            port[i] = name[4 * i] | name[4 * i + 1] << 8 | name[4 * i + 2] << 16 | static_cast<uint32_t>(name[4 * i + 3]) << 24;
    }

    Found find(const Bytes &name) {
        auto &dut = *this;
        put(dut->find_name, name);
        dut->find_valid = 1;
        settle();
        check(dut->find_ready, "is not ready");
        rise();
        dut->find_valid = 0;
        for (int i = 0; i < 8; i++) dut->find_name[i] = 0;
        for (uint64_t n = 1;; n++) {
            settle();
            Found f{static_cast<bool>(dut->found), dut->found_function, dut->found_entry[0], n};
            bool valid = dut->found_valid;
            check(!dut->changed_valid, "answers a change");
            check(n < 100, "hangs");
            rise();
            if (valid) return f;
        }
    }

    Found change(const Bytes &name, bool remove, uint32_t entry) {
        auto &dut = *this;
        put(dut->change_name, name);
        dut->change_remove = remove;
        dut->change_entry[0] = entry;
        dut->change_valid = 1;
        settle();
        check(dut->change_ready, "is not ready");
        rise();
        dut->change_valid = 0;
        for (uint64_t n = 1;; n++) {
            settle();
            Found f{static_cast<bool>(dut->changed), dut->changed_function, entry, n};
            bool valid = dut->changed_valid;
            check(n < 100, "hangs");
            rise();
            if (valid) return f;
        }
    }
};

}  // namespace

TEST(finds_added_names_and_no_others) {
    Table table;
    check(!table.find(padded("sobel")).hit, "finds in an empty table");
    auto added = table.change(padded("sobel"), false, 42);
    check(added.hit, "is not added");
    auto f = table.find(padded("sobel"));
    check(f.hit && f.entry == 42 && f.function == added.function, "is not found");
    for (auto other : {"sobe", "sobel2", "Sobel", "", "sobel "}) check(!table.find(padded(other)).hit, "finds another name");
    table.change(padded("sobel"), false, 43);
    f = table.find(padded("sobel"));
    check(f.hit && f.entry == 43 && f.function == added.function, "an entry is not replaced");
    check(table.change(padded("sobel"), true, 0).hit, "is not removed");
    check(!table.find(padded("sobel")).hit, "is found after its removal");
    check(!table.change(padded("sobel"), true, 0).hit, "is removed twice");
}

TEST(names_of_one_hash_are_kept_apart) {
    Table table;
    Bytes first = padded("uppercase");
    std::vector<Bytes> names = {first};
    for (size_t tail : {0, 8, 16, 24}) names.push_back(collision(table.random, first, tail));
    for (uint32_t i = 0; i < 4; i++) check(table.change(names[i], false, i).hit, "is not added");
    check(!table.change(names[4], false, 4).hit, "a fifth of one hash finds room");
    check(!table.find(names[4]).hit, "a name that was refused is found");
    for (uint32_t i = 0; i < 4; i++) {
        auto f = table.find(names[i]);
        check(f.hit && f.entry == i, "finds another of its hash");
    }
    check(table.change(names[1], true, 0).hit, "is not removed");
    check(table.find(names[3]).hit, "a removal hides those after it");
    check(table.change(names[4], false, 4).hit, "a slot that was freed is not used again");
    check(table.find(names[4]).entry == 4 && table.find(names[0]).entry == 0, "finds another of its hash");
}

TEST(agrees_with_a_map_through_many_changes) {
    Table table;
    std::map<Bytes, std::pair<uint32_t, uint32_t>> model;  // name -> number, entry
    std::vector<Bytes> names;
    for (int i = 0; i < 120; i++) names.push_back(padded("function-" + std::to_string(i)));
    size_t refused = 0;
    for (int i = 0; i < 6000; i++) {
        const Bytes &name = names[table.random.below(static_cast<uint32_t>(names.size()))];
        auto at = model.find(name);
        uint32_t entry = static_cast<uint32_t>(table.random.next());
        switch (table.random.below(4)) {
            case 0: {
                auto f = table.change(name, false, entry);
                if (f.hit) {
                    check(at == model.end() || at->second.first == f.function, "a number changes");
                    model[name] = {f.function, entry};
                } else {
                    // Refused only if all of its slots are in use by others.
                    refused++;
                    check(at == model.end(), "a name that is there is refused");
                    size_t taken = 0;
                    for (auto &m : model) taken += (m.second.first - hash(name)) % entries < probes;
                    check(taken == probes, "is refused though there is room");
                }
                break;
            }
            case 1:
                check(table.change(name, true, 0).hit == (at != model.end()), "removal");
                if (at != model.end()) model.erase(at);
                break;
            default: {
                auto f = table.find(name);
                check(f.hit == (at != model.end()), "lookup");
                if (f.hit) check(f.function == at->second.first && f.entry == at->second.second, "finds another");
            }
        }
    }
    check(refused > 0, "the table was never full");
}

TEST(a_lookup_takes_twelve_cycles) {
    Table table;
    table.change(padded("echo"), false, 1);
    for (int i = 0; i < 100; i++) {
        auto f = table.find(padded("echo"));
        check(f.hit && f.cycles == 12, "takes " + std::to_string(f.cycles));
    }
}

TEST(a_reset_clears_the_table) {
    Table table;
    table.change(padded("echo"), false, 1);
    table.clear();
    check(!table.find(padded("echo")).hit, "is found after a reset");
}

TEST(entries_and_slots_can_be_read_at_any_time) {
    Table table;
    std::map<uint32_t, std::pair<Bytes, uint32_t>> model;  // number -> name, entry
    for (uint32_t i = 0; i < 40; i++) {
        Bytes name = padded("function" + std::to_string(table.random.below(1000)));
        auto f = table.change(name, false, i);
        if (f.hit) model[f.function] = {name, i};
    }
    table.change(model.begin()->second.first, true, 0);
    model.erase(model.begin());
    for (uint32_t slot = 0; slot < entries; slot++) {
        Bytes name;
        for (uint8_t word = 0; word < name_bytes / 8; word++) {
            table->entry_of = table->slot_of = static_cast<uint8_t>(slot);
            table->slot_word = word;
            table.settle();
            table.rise();
            table.settle();
            for (int i = 0; i < 8; i++) name.push_back(static_cast<uint8_t>(table->slot_name >> (8 * i)));
            check(table->slot_used == model.count(slot), "a slot is used, or is not");
        }
        if (!model.count(slot)) continue;
        expect(name, model[slot].first, "the name in slot " + std::to_string(slot));
        check(table->entry_there[0] == model[slot].second, "another entry");
    }
}

BENCH_MAIN()
