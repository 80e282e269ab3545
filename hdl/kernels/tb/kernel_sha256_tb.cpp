#include "kernel_bench.hpp"

using namespace bench;

// FIPS 180-4, in plain steps; its constants from their definition by the first primes.
static Bytes sha256(Bytes b) {
    static uint32_t k[64], h0[8];
    if (!k[0]) {
        int found = 0;
        for (unsigned p = 2; found < 64; p++) {
            bool prime = true;
            for (unsigned q = 2; q * q <= p; q++) prime = prime && p % q;
            if (!prime) continue;
            // floor(cbrt(p) * 2^32) and floor(sqrt(p) * 2^32), bit by bit.
            __uint128_t cube = 0, square = 0;
            for (int bit = 35; bit >= 0; bit--) {
                __uint128_t c = cube | (__uint128_t)1 << bit, s = square | (__uint128_t)1 << bit;
                if (c * c * c <= (__uint128_t)p << 96) cube = c;
                if (s * s <= (__uint128_t)p << 64) square = s;
            }
            k[found] = static_cast<uint32_t>(cube);
            if (found < 8) h0[found] = static_cast<uint32_t>(square);
            found++;
        }
    }
    auto ror = [](uint32_t x, int n) { return x >> n | x << (32 - n); };
    uint64_t bits = 8 * b.size();
    b.push_back(0x80);
    while (b.size() % 64 != 56) b.push_back(0);
    for (int i = 7; i >= 0; i--) b.push_back(static_cast<uint8_t>(bits >> (8 * i)));
    uint32_t h[8];
    std::copy(h0, h0 + 8, h);
    for (size_t at = 0; at < b.size(); at += 64) {
        uint32_t w[64], v[8];
        for (size_t t = 0; t < 64; t++) {
            if (t < 16) {
                const uint8_t *p = &b[at + 4 * t];
                w[t] = static_cast<uint32_t>(p[0]) << 24 | p[1] << 16 | p[2] << 8 | p[3];
            } else {
                uint32_t s0 = ror(w[t - 15], 7) ^ ror(w[t - 15], 18) ^ w[t - 15] >> 3;
                uint32_t s1 = ror(w[t - 2], 17) ^ ror(w[t - 2], 19) ^ w[t - 2] >> 10;
                w[t] = w[t - 16] + s0 + w[t - 7] + s1;
            }
        }
        std::copy(h, h + 8, v);
        for (int t = 0; t < 64; t++) {
            uint32_t t1 = v[7] + (ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[t] + w[t];
            uint32_t t2 = (ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            for (int i = 7; i > 0; i--) v[i] = v[i - 1];
            v[4] += t1;
            v[0] = t1 + t2;
        }
        for (int i = 0; i < 8; i++) h[i] += v[i];
    }
    Bytes out;
    for (auto x : h)
        for (int i = 3; i >= 0; i--) out.push_back(static_cast<uint8_t>(x >> (8 * i)));
    return out;
}

TEST(published_values) {
    Kernel kernel;
    // The examples of FIPS 180-2, appendix B, and the digest of nothing.
    expect(kernel.run({}), unhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), "nothing");
    expect(kernel.run(text("abc")), unhex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"), "abc");
    expect(kernel.run(text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
           unhex("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"), "448 bits");
    expect(kernel.run(Bytes(1000000, 'a')), unhex("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"), "a million a");
}

TEST(every_length_of_padding) {
    Kernel kernel;
    for (size_t n = 0; n <= 200; n++) {
        Bytes body = kernel.random_.bytes(n);
        expect(kernel.run(body), sha256(body), std::to_string(n) + " bytes");
    }
}

TEST(any_body_under_any_traffic) { sweep(sha256); }

TEST(leaves_nothing_behind_after_a_reset) {
    Bytes body = Random(seed()).bytes(200);
    reset_anywhere(body, sha256(body));
}

TEST(a_block_in_65_cycles) {
    Kernel kernel;
    kernel.run(Bytes(64 * 100, 'x'));
    std::printf("    6400 bytes in %llu cycles: %.3f cycles a byte; 64 bytes in ", (unsigned long long)kernel.timing.total,
                double(kernel.timing.total) / 6400);
    check(kernel.timing.total <= 101 * 65 + 15, "takes " + std::to_string(kernel.timing.total) + " cycles");
    kernel.run(Bytes(64, 'x'));
    std::printf("%llu, 3 bytes in ", (unsigned long long)kernel.timing.total);
    kernel.run(Bytes(3, 'x'));
    std::printf("%llu\n", (unsigned long long)kernel.timing.total);
}

BENCH_MAIN()
