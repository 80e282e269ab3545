#include "kernel_bench.hpp"

#include <algorithm>

using namespace bench;

namespace {

struct Layer {
    size_t width, in, out;
    unsigned shift;
    size_t head() const { return out * 9 * in + 4 * out; }
    Params params() const {
        return {static_cast<uint32_t>(width), static_cast<uint32_t>(in), static_cast<uint32_t>(out), shift};
    }
};

Bytes convolution(Bytes body, const Layer &l) {
    if (body.size() <= l.head()) return {};
    size_t height = (body.size() - l.head() + l.width * l.in - 1) / (l.width * l.in);
    body.resize(l.head() + height * l.width * l.in);
    auto at = [&](size_t i) { return static_cast<int8_t>(body[i]); };
    Bytes answer;
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < l.width; x++)
            for (size_t o = 0; o < l.out; o++) {
                uint32_t bias = 0;
                for (size_t i = 0; i < 4; i++) bias |= static_cast<uint32_t>(body[l.out * 9 * l.in + 4 * o + i]) << (8 * i);
                int64_t sum = static_cast<int32_t>(bias);
                for (size_t ky = 0; ky < 3; ky++)
                    for (size_t kx = 0; kx < 3; kx++) {
                        size_t py = y + ky - 1, px = x + kx - 1;  // wraps around when outside
                        if (py >= height || px >= l.width) continue;
                        for (size_t c = 0; c < l.in; c++)
                            sum += at(((o * 3 + ky) * 3 + kx) * l.in + c) * at(l.head() + (py * l.width + px) * l.in + c);
                    }
                if (l.shift) sum += 1ll << (l.shift - 1);
                answer.push_back(static_cast<uint8_t>(std::clamp<int64_t>(sum >> l.shift, 0, 127)));
            }
    return answer;
}

// Biases of the size of the sums, so that both limits and what is between them occur.
Bytes random_body(Random &random, const Layer &l, size_t picture) {
    Bytes body = random.bytes(l.head() + picture);
    for (size_t o = 0; o < l.out; o++) {
        int32_t bias = static_cast<int32_t>(random.below(1u << 16)) - (1 << 15);
        for (size_t i = 0; i < 4; i++) body[l.out * 9 * l.in + 4 * o + i] = static_cast<uint8_t>(static_cast<uint32_t>(bias) >> (8 * i));
    }
    return body;
}

void one(Kernel &kernel, const Layer &l, size_t picture, Traffic t) {
    Bytes body = random_body(kernel.random_, l, picture);
    expect(kernel.run(body, l.params(), t), convolution(body, l),
           std::to_string(l.width) + " wide, " + std::to_string(picture) + " bytes, " + std::to_string(l.in) + " channels to " +
               std::to_string(l.out));
}

}  // namespace

TEST(any_small_layer) {
    Kernel kernel;
    for (size_t width : {1, 2, 3, 4, 7})
        for (size_t height : {1, 2, 3, 5})
            for (size_t in : {1, 2, 3})
                for (size_t out : {1, 3, 4, 5, 8}) one(kernel, {width, in, out, 9}, width * height * in, {});
}

TEST(any_layer_under_any_traffic) {
    Kernel kernel;
    for (auto t : traffics())
        for (int i = 0; i < 12; i++) {
            Layer l{1 + kernel.random_.below(12), 1 + kernel.random_.below(6), 1 + kernel.random_.below(9), kernel.random_.below(14)};
            one(kernel, l, l.in * l.width * (1 + kernel.random_.below(6)), t);
        }
}

TEST(the_largest_layer) {
    Kernel kernel;
    one(kernel, {256, 16, 16, 11}, 256 * 16 * 4, {});
}

TEST(every_shift_and_the_extremes) {
    Kernel kernel;
    for (unsigned shift = 0; shift < 32; shift++) {
        Layer l{5, 2, 4, shift};
        Bytes body = kernel.random_.bytes(l.head() + 5 * 2 * 4);  // biases of any size
        expect(kernel.run(body, l.params()), convolution(body, l), "shift " + std::to_string(shift));
        std::fill(body.begin(), body.end(), 0x80);
        expect(kernel.run(body, l.params()), convolution(body, l), "the lowest of all");
        std::fill(body.begin(), body.end(), 0x7f);
        expect(kernel.run(body, l.params()), convolution(body, l), "the highest of all");
    }
}

TEST(a_row_that_is_not_full_ends_in_zeros) {
    Kernel kernel;
    for (size_t n = 0; n <= 3 * 10; n++) one(kernel, {5, 2, 3, 8}, n, {20, 20});
}

TEST(malformed_bodies_get_an_empty_answer) {
    Kernel kernel;
    for (Params p : {Params{0, 1, 1, 0}, Params{257, 1, 1, 0}, Params{5, 0, 1, 0}, Params{5, 17, 1, 0}, Params{5, 1, 0, 0},
                     Params{5, 1, 17, 0}, Params{5, 1, 1, 32}, Params{0x10005, 1, 1, 0}})
        expect(kernel.run(Bytes(100, 1), p, {30, 30}), {}, "a scalar out of range");
    Layer l{5, 2, 3, 8};
    for (size_t n = 0; n <= l.head(); n++)
        expect(kernel.run(Bytes(n, 1), l.params(), {20, 20}), {}, "body is too short for a pixel");
    one(kernel, l, 30, {20, 20});
}

TEST(leaves_nothing_behind_after_a_reset) {
    Layer l{5, 2, 3, 8};
    Random random(seed());
    Bytes body = random_body(random, l, 40);
    reset_anywhere(body, convolution(body, l), l.params());
}

TEST(pace) {
    Kernel kernel;
    Layer l{64, 8, 16, 10};
    one(kernel, l, 64 * 64 * 8, {});
    size_t compute = 64 * 64 * 8 * 4;
    std::printf("    64x64, 8 channels to 16: %llu cycles, %.1f multiplications a cycle\n", (unsigned long long)kernel.timing.total,
                64.0 * 64 * 8 * 16 * 9 / static_cast<double>(kernel.timing.total));
    check(kernel.timing.total <= compute + 64 * 64 * 8 + l.head() + 300, "takes " + std::to_string(kernel.timing.total));
}

BENCH_MAIN()
