#include "kernel_bench.hpp"

using namespace bench;

// FIPS 197, byte by byte; the substitution from its definition.
namespace {

uint8_t times(uint8_t a, uint8_t b) {
    uint8_t r = 0;
    for (; b; b >>= 1) {
        if (b & 1) r ^= a;
        a = static_cast<uint8_t>(a << 1 ^ (a & 0x80 ? 0x1b : 0));
    }
    return r;
}

uint8_t substitute(uint8_t x) {
    static uint8_t table[256];
    if (!table[0])
        for (int i = 0; i < 256; i++) {
            uint8_t inverse = i ? 1 : 0;
            for (int n = 0; n < 254; n++) inverse = times(inverse, static_cast<uint8_t>(i));
            uint8_t s = 0x63;
            for (int n = 0; n < 5; n++) s ^= static_cast<uint8_t>(inverse << n | inverse >> (8 - n));
            table[i] = s;
        }
    return table[x];
}

Bytes encrypt(const Bytes &key, Bytes s) {
    Bytes w = key;
    uint8_t rcon = 1;
    for (size_t i = 16; i < 176; i += 4) {
        uint8_t t[4] = {w[i - 4], w[i - 3], w[i - 2], w[i - 1]};
        if (i % 16 == 0) {
            uint8_t first = t[0];
            for (int j = 0; j < 3; j++) t[j] = substitute(t[j + 1]);
            t[3] = substitute(first);
            t[0] ^= rcon;
            rcon = times(rcon, 2);
        }
        for (size_t j = 0; j < 4; j++) w.push_back(w[i + j - 16] ^ t[j]);
    }
    for (size_t i = 0; i < 16; i++) s[i] ^= w[i];
    for (size_t round = 1; round <= 10; round++) {
        Bytes t(16);
        for (size_t i = 0; i < 16; i++) t[i] = substitute(s[(i + 4 * (i % 4)) % 16]);
        for (size_t c = 0; c < 16; c += 4)
            for (size_t r = 0; r < 4; r++)
                s[c + r] = round == 10 ? t[c + r]
                                       : static_cast<uint8_t>(times(t[c + r], 2) ^ times(t[c + (r + 1) % 4], 3) ^
                                                              t[c + (r + 2) % 4] ^ t[c + (r + 3) % 4]);
        for (size_t i = 0; i < 16; i++) s[i] ^= w[16 * round + i];
    }
    return s;
}

Bytes counter_mode(const Bytes &key, const Bytes &body) {
    if (body.size() < 16) return {};
    Bytes counter(body.begin(), body.begin() + 16), out = counter, stream;
    for (size_t i = 16; i < body.size(); i++) {
        if (i % 16 == 0) {
            stream = encrypt(key, counter);
            for (int j = 15; j >= 0 && ++counter[static_cast<size_t>(j)] == 0; j--) {}
        }
        out.push_back(body[i] ^ stream[i % 16]);
    }
    return out;
}

Params scalars(const Bytes &key) {
    Params p{};
    for (size_t i = 0; i < 16; i++) p[i / 4] |= static_cast<uint32_t>(key[i]) << (8 * (i % 4));
    return p;
}

const Bytes example_key = unhex("2b7e151628aed2a6abf7158809cf4f3c");

}  // namespace

TEST(published_values) {
    Kernel kernel;
    // FIPS 197, appendix B and C.1: one block, as the key stream of zeros.
    expect(kernel.run(unhex("3243f6a8885a308d313198a2e037073400000000000000000000000000000000"), scalars(example_key)),
           unhex("3243f6a8885a308d313198a2e03707343925841d02dc09fbdc118597196a0b32"), "FIPS 197 B");
    expect(kernel.run(unhex("00112233445566778899aabbccddeeff00000000000000000000000000000000"),
                      scalars(unhex("000102030405060708090a0b0c0d0e0f"))),
           unhex("00112233445566778899aabbccddeeff69c4e0d86a7b0430d8cdb78070b4c55a"), "FIPS 197 C.1");
    // SP 800-38A, F.5.1.
    Bytes counter = unhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"), body = counter, want = counter;
    for (auto x : unhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
                        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"))
        body.push_back(x);
    for (auto x : unhex("874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
                        "5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee"))
        want.push_back(x);
    expect(kernel.run(body, scalars(example_key)), want, "SP 800-38A F.5.1");
    expect(kernel.run(want, scalars(example_key)), body, "and back");
}

TEST(any_body_under_any_traffic) {
    sweep([](const Bytes &b) { return counter_mode(example_key, b); }, scalars(example_key));
}

TEST(any_key_and_a_counter_that_carries) {
    Kernel kernel;
    for (int i = 0; i < 100; i++) {
        Bytes key = kernel.random_.bytes(16), body = kernel.random_.bytes(16 + kernel.random_.below(100));
        for (size_t j = kernel.random_.below(16); j < 16; j++) body[j] = 0xff;
        expect(kernel.run(body, scalars(key), {20, 20}), counter_mode(key, body), "a random key");
    }
}

TEST(leaves_nothing_behind_after_a_reset) {
    Bytes body = Random(seed()).bytes(150);
    reset_anywhere(body, counter_mode(example_key, body), scalars(example_key));
}

TEST(a_block_in_11_cycles) {
    Kernel kernel;
    kernel.run(Bytes(16 + 1600, 'x'), scalars(example_key));
    std::printf("    1616 bytes in %llu cycles: %.3f cycles a byte\n", (unsigned long long)kernel.timing.total,
                double(kernel.timing.total) / 1616);
    check(kernel.timing.total <= 1100 + 30, "takes " + std::to_string(kernel.timing.total) + " cycles");
}

BENCH_MAIN()
