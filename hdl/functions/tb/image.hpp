// Images of partial bitstreams (hdl/functions/README.md), valid, or wrong in any field.
#pragma once

#include <cstdint>
#include <vector>

namespace bench {

inline uint32_t crc32(const std::vector<uint32_t> &words) {
    uint32_t c = ~0u;
    for (auto w : words)
        for (int i = 0; i < 32; i++) {
            uint32_t bit = (c ^ w >> i) & 1;
            c = c >> 1 ^ (bit ? 0xEDB88320u : 0);
        }
    return ~c;
}

struct Image {
    uint32_t magic = 0x47524C42, version = 1, shell = 1, region = ~0u, kernel = 7;
    std::vector<uint32_t> body;
    uint32_t length = ~0u;  // length in the header, if not the body's

    std::vector<uint32_t> words() const {
        uint32_t n = length == ~0u ? static_cast<uint32_t>(4 * body.size()) : length;
        std::vector<uint32_t> all = {magic, version, shell, region, n, crc32(body), kernel};
        all.push_back(crc32(all));
        all.insert(all.end(), body.begin(), body.end());
        return all;
    }
};

// Words into a memory whose entries are W bits wide.
template <class Memory> void store(Memory &memory, uint32_t address, const std::vector<uint32_t> &words) {
    for (size_t i = 0; i < words.size(); i++) {
        size_t at = address / 4 + i;
        if (W == 32) {
            memory[at] = words[i];
        } else {
            uint64_t old = memory[at / 2];
            memory[at / 2] = at & 1 ? (old & 0xffffffffu) | static_cast<uint64_t>(words[i]) << 32
                                    : (old & ~0xffffffffull) | words[i];
        }
    }
}

}  // namespace bench
