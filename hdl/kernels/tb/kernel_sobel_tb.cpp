#include "kernel_bench.hpp"

#include <algorithm>

using namespace bench;

// apps/functions/sobel/sobel.cl in plain loops; a row that the body does not fill ends in zeros.
static Bytes sobel(Bytes in, int width) {
    int height = static_cast<int>((in.size() + static_cast<size_t>(width) - 1) / static_cast<size_t>(width));
    in.resize(static_cast<size_t>(width * height));
    Bytes out;
    auto pixel = [&](int x, int y) -> int {
        return in[static_cast<size_t>(std::clamp(y, 0, height - 1) * width + std::clamp(x, 0, width - 1))];
    };
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int nw = pixel(x - 1, y - 1), n = pixel(x, y - 1), ne = pixel(x + 1, y - 1);
            int w = pixel(x - 1, y), e = pixel(x + 1, y);
            int sw = pixel(x - 1, y + 1), s = pixel(x, y + 1), se = pixel(x + 1, y + 1);
            int gx = ne + 2 * e + se - nw - 2 * w - sw, gy = sw + 2 * s + se - nw - 2 * n - ne;
            out.push_back(static_cast<uint8_t>(std::min(std::abs(gx) + std::abs(gy), 255)));
        }
    return out;
}

// A picture with flat parts, soft and hard edges, so that sums below and above saturation occur.
static Bytes picture(Random &random, size_t pixels) {
    Bytes b(pixels);
    int at = 128;
    for (auto &x : b) {
        if (random.percent(5)) at = static_cast<int>(random.below(256));
        at = std::clamp(at + static_cast<int>(random.below(31)) - 15, 0, 255);
        x = static_cast<uint8_t>(at);
    }
    return b;
}

static void one(Kernel &kernel, size_t width, size_t bytes, Traffic t) {
    Bytes body = picture(kernel.random_, bytes);
    expect(kernel.run(body, {static_cast<uint32_t>(width)}, t), sobel(body, static_cast<int>(width)),
           std::to_string(width) + " wide, " + std::to_string(bytes) + " bytes, idle " + std::to_string(t.idle) + " %, stall " +
               std::to_string(t.stall) + " %");
}

TEST(every_small_picture) {
    Kernel kernel;
    for (size_t width = 1; width <= 26; width++)
        for (size_t height = 0; height <= 7; height++) one(kernel, width, width * height, {});
}

TEST(any_picture_under_any_traffic) {
    Kernel kernel;
    for (auto t : traffics())
        for (int i = 0; i < 60; i++) one(kernel, 1 + kernel.random_.below(80), kernel.random_.below(900), t);
}

TEST(noise_and_the_extremes) {
    Kernel kernel;
    for (int i = 0; i < 40; i++) {
        Bytes body = kernel.random_.bytes(600);
        if (i & 1)
            for (auto &x : body) x = x & 1 ? 255 : 0;
        uint32_t width = 1 + kernel.random_.below(60);
        body.resize(body.size() / width * width);
        expect(kernel.run(body, {width}, {10, 10}), sobel(body, static_cast<int>(width)), std::to_string(width) + " wide");
    }
}

TEST(a_row_that_is_not_full_ends_in_zeros) {
    Kernel kernel;
    for (size_t width : {3, 8, 9, 30})
        for (size_t bytes = 1; bytes < 3 * width; bytes++) one(kernel, width, bytes, {20, 20});
}

TEST(the_widest_rows) {
    Kernel kernel;
    for (size_t width : {4095, 4096}) one(kernel, width, width * 3, {});
}

TEST(a_width_out_of_range_gets_an_empty_answer) {
    Kernel kernel;
    for (uint32_t width : {0u, 4097u, 8192u, 0x10000u, 0xffffffffu})
        for (size_t n : {0, 1, 8, 100}) {
            expect(kernel.run(Bytes(n, 7), {width}, {30, 30}), {}, "width " + std::to_string(width));
            one(kernel, 5, 25, {});
        }
}

TEST(leaves_nothing_behind_after_a_reset) {
    Bytes body = Random(seed()).bytes(19 * 9);
    reset_anywhere(body, sobel(body, 19), {19});
}

TEST(a_beat_a_cycle) {
    Kernel kernel;
    for (size_t width : {512, 509}) {
        size_t height = 100, beats = (width + Kernel::beat_bytes - 1) / Kernel::beat_bytes;
        kernel.run(Bytes(width * height, 9), {static_cast<uint32_t>(width)});
        std::printf("    %zux%zu: first byte after %llu cycles, all in %llu: %.4f cycles a pixel\n", width, height,
                    (unsigned long long)kernel.timing.first, (unsigned long long)kernel.timing.total,
                    double(kernel.timing.total) / double(width * height));
        check(kernel.timing.first <= beats + 12, "first output after " + std::to_string(kernel.timing.first) + " cycles");
        check(kernel.timing.total <= (height + 1) * beats + 20, "takes " + std::to_string(kernel.timing.total) + " cycles");
    }
}

BENCH_MAIN()
