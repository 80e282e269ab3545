#include "kernel_bench.hpp"

using namespace bench;

static Bytes product(const Bytes &body, size_t rows, size_t inner, size_t columns) {
    Bytes out;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            int32_t sum = 0;
            for (size_t k = 0; k < inner; k++)
                sum += static_cast<int8_t>(body[r * inner + k]) * static_cast<int8_t>(body[rows * inner + k * columns + c]);
            for (int i = 0; i < 4; i++) out.push_back(static_cast<uint8_t>(static_cast<uint32_t>(sum) >> (8 * i)));
        }
    return out;
}

static void one(Kernel &kernel, size_t rows, size_t inner, size_t columns, Traffic t, const Bytes *given = nullptr) {
    Bytes body = given ? *given : kernel.random_.bytes(rows * inner + inner * columns);
    expect(kernel.run(body, {static_cast<uint32_t>(rows), static_cast<uint32_t>(inner), static_cast<uint32_t>(columns)}, t),
           product(body, rows, inner, columns),
           std::to_string(rows) + "x" + std::to_string(inner) + "x" + std::to_string(columns));
}

TEST(any_small_size) {
    Kernel kernel;
    for (size_t r : {1, 2, 7, 8, 9, 17})
        for (size_t k : {1, 2, 5, 8, 13})
            for (size_t c : {1, 3, 8, 9, 16}) one(kernel, r, k, c, {});
}

TEST(any_size_under_any_traffic) {
    Kernel kernel;
    for (auto t : traffics())
        for (int i = 0; i < 12; i++)
            one(kernel, 1 + kernel.random_.below(20), 1 + kernel.random_.below(20), 1 + kernel.random_.below(20), t);
}

TEST(the_largest_and_the_extremes) {
    Kernel kernel;
    one(kernel, 64, 64, 64, {});
    one(kernel, 64, 1, 64, {});
    one(kernel, 1, 64, 1, {});
    Bytes lowest(2 * 64 * 64, 0x80);
    one(kernel, 64, 64, 64, {}, &lowest);
}

TEST(malformed_bodies_get_an_empty_answer) {
    Kernel kernel;
    for (Params p : {Params{0, 4, 4}, Params{4, 0, 4}, Params{4, 4, 0}, Params{65, 4, 4}, Params{4, 0x10004, 4}, Params{4, 4, 0xffffffff}})
        expect(kernel.run(Bytes(32, 1), p, {30, 30}), {}, "a size out of range");
    for (size_t n = 0; n < 80; n++) {
        if (n == 32) continue;
        expect(kernel.run(Bytes(n, 1), {4, 4, 4}, {20, 20}), {}, std::to_string(n) + " bytes where 32 are right");
        if (n % 10 == 0) one(kernel, 4, 4, 4, {20, 20});
    }
}

TEST(leaves_nothing_behind_after_a_reset) {
    Bytes body = Random(seed()).bytes(9 * 10 + 10 * 11);
    reset_anywhere(body, product(body, 9, 10, 11), {9, 10, 11});
}

TEST(pace) {
    Kernel kernel;
    one(kernel, 64, 64, 64, {});
    std::printf("    64x64x64: %llu cycles, of which %d load\n", (unsigned long long)kernel.timing.total, 2 * 64 * 64);
    check(kernel.timing.total <= 2 * 64 * 64 + 64 * (64 + 24) + 64 * 64 + 100, "takes " + std::to_string(kernel.timing.total));
}

BENCH_MAIN()
