#include "kernel_bench.hpp"

using namespace bench;

TEST(is_a_kernel) {
    sweep([](const Bytes &b) { return b; });
}

BENCH_MAIN()
