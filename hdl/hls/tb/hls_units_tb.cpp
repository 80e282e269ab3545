// Compares the units of synthesized kernels with the host's arithmetic: random numbers, and limits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

#include "Vdut.h"
#include "verilated.h"

namespace {

uint64_t state = 1;
uint64_t random64() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state * 0x2545f4914f6cdd1dull;
}

template <class To, class From>
To as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
float f(uint64_t a) { return as<float>(static_cast<uint32_t>(a)); }
double d(uint64_t a) { return as<double>(a); }
// Every NaN is the quiet NaN without sign.
uint64_t bits(float x) { return std::isnan(x) ? 0x7fc00000u : as<uint32_t>(x); }
uint64_t bits(double x) { return std::isnan(x) ? 0x7ff8000000000000ull : as<uint64_t>(x); }

// A float of any class: zero, subnormal, normal, infinite or NaN; its sum or product with the other
// operand may be near the limits of the exponent.
uint64_t any_class(unsigned exp_bits, unsigned man_bits, uint64_t other) {
  const uint64_t top = (1ull << exp_bits) - 1, ones = (1ull << man_bits) - 1, bias = top / 2;
  const uint64_t near = random64() % (2 * man_bits + 6), own = other >> man_bits & top;
  const uint64_t exps[] = {0,       0,   1,   2,
                           bias,    top, own, own + near - man_bits - 3,
                           top - 2, top, top - 1, bias - own - near + 2,
                           bias + top - own - near % 4, random64()};
  const uint64_t few = random64() % man_bits;
  const uint64_t mans[] = {0, 1, ones, ones - 1, 1ull << few, ones >> few, ones << few, other,
                           random64() >> few, random64() << few, random64(), random64()};
  const uint64_t exp = exps[random64() % (sizeof exps / sizeof *exps)] & top;
  const uint64_t man = mans[random64() % (sizeof mans / sizeof *mans)] & ones;
  return (random64() & 1) << (exp_bits + man_bits) | exp << man_bits | man;
}

// Close operands and limits are as likely as others.
uint64_t operand(uint64_t other) {
  const uint64_t r = random64();
  static const uint64_t edges[] = {0,          0x80000000,         0x7f800000,         0xff800000,         0x7fc00000,         1,
                                   0x00800000, 0x007fffff,         0x7f7fffff,         0x3f800000,         0x4b800000,         0x33000001,
                                   1ull << 63, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x0010000000000000, 0x000fffffffffffff,
                                   ~0ull,      0x3ff0000000000000, 0x7fefffffffffffff, 0x380fffffe0000000, 0x36a0000000000000, 0x47efffffefffffff};
  switch (r % 12) {
    case 0: return edges[random64() % (sizeof edges / sizeof *edges)];
    case 1: return other ^ (1ull << (random64() % 64));
    case 2: return other + random64() % 64;
    case 3: return random64() >> (random64() % 64);
    case 4: return bits(static_cast<double>(static_cast<int64_t>(random64() >> (random64() % 64)))) ^ (random64() << 63);
    case 5: return bits(static_cast<float>(static_cast<int32_t>(random64()) >> (random64() % 32)));
    case 6: return other ^ 0x8000000080000000ull ^ (random64() % 4);
    case 7: return any_class(8, 23, other);
    case 8: return any_class(11, 52, other);
    default: return random64();
  }
}

// Floats of 9 bits, of which all pairs are tried: 5 bits of exponent, 3 of fraction.
double from9(uint64_t a) {
  const int exp = a >> 3 & 31, man = a & 7;
  double size = exp == 0 ? std::ldexp(man, -17) : std::ldexp(8 + man, exp - 18);
  if (exp == 31) size = man ? NAN : INFINITY;
  return a >> 8 & 1 ? -size : size;
}
// To nearest even; sums and products of two of them are exact in a double.
uint64_t to9(double x) {
  if (std::isnan(x)) return 0x0fc;
  const uint64_t sign = std::signbit(x) ? 0x100 : 0;
  const double size = std::fabs(x);
  if (std::isinf(size)) return sign | 0x0f8;
  const int exp = size == 0 ? -14 : std::max(std::ilogb(size), -14);
  // A carry into the exponent yields the next number.
  const uint64_t man = static_cast<uint64_t>(std::nearbyint(std::ldexp(size, 3 - exp)));
  return sign | std::min<uint64_t>((static_cast<uint64_t>(exp + 14) << 3) + man, 0x0f8);
}

// The lower 18 bits as a signed number.
int64_t signed18(uint64_t a) { return static_cast<int64_t>(a << 46) >> 46; }

struct Unit {
  const char* name;
  int latency;
  std::function<uint64_t(uint64_t, uint64_t)> right;
  std::function<uint64_t(const Vdut&)> found;
  std::function<bool(uint64_t)> known;  // false: undefined in C
};

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    const unsigned long long seed = strtoull(argv[i], nullptr, 10);
    if (seed != 0) state = seed * 0x9e3779b97f4a7c15ull | 1;
  }
  VerilatedContext context;
  Vdut top{&context};
  auto any = [](uint64_t) { return true; };
  const std::vector<Unit> units = {
      {"fadd32", 5, [](uint64_t a, uint64_t b) { return bits(f(a) + f(b)); }, [](const Vdut& t) { return t.fadd32; }, any},
      {"fadd64", 5, [](uint64_t a, uint64_t b) { return bits(d(a) + d(b)); }, [](const Vdut& t) { return t.fadd64; }, any},
      {"fmul32", 5, [](uint64_t a, uint64_t b) { return bits(f(a) * f(b)); }, [](const Vdut& t) { return t.fmul32; }, any},
      {"fadd9", 5, [](uint64_t a, uint64_t b) { return to9(from9(a) + from9(b)); }, [](const Vdut& t) { return t.fadd9; }, any},
      {"fmul9", 5, [](uint64_t a, uint64_t b) { return to9(from9(a) * from9(b)); }, [](const Vdut& t) { return t.fmul9; }, any},
      {"fmul64", 5, [](uint64_t a, uint64_t b) { return bits(d(a) * d(b)); }, [](const Vdut& t) { return t.fmul64; }, any},
      {"float32_int32", 3, [](uint64_t a, uint64_t) { return bits(static_cast<float>(static_cast<int32_t>(a))); }, [](const Vdut& t) { return t.float32_int32; }, any},
      {"float32_unsigned64", 3, [](uint64_t a, uint64_t) { return bits(static_cast<float>(a)); }, [](const Vdut& t) { return t.float32_unsigned64; }, any},
      {"float64_int64", 3, [](uint64_t a, uint64_t) { return bits(static_cast<double>(static_cast<int64_t>(a))); }, [](const Vdut& t) { return t.float64_int64; }, any},
      {"float64_unsigned32", 3, [](uint64_t a, uint64_t) { return bits(static_cast<double>(static_cast<uint32_t>(a))); }, [](const Vdut& t) { return t.float64_unsigned32; }, any},
      {"int32_float32", 2, [](uint64_t a, uint64_t) { return static_cast<uint64_t>(static_cast<uint32_t>(static_cast<int32_t>(f(a)))); }, [](const Vdut& t) { return t.int32_float32; },
       [](uint64_t a) { return f(a) > -2147483648.0f && f(a) < 2147483648.0f; }},
      {"int64_float64", 2, [](uint64_t a, uint64_t) { return static_cast<uint64_t>(static_cast<int64_t>(d(a))); }, [](const Vdut& t) { return t.int64_float64; },
       [](uint64_t a) { return d(a) > -9223372036854775808.0 && d(a) < 9223372036854775808.0; }},
      {"unsigned32_float32", 2, [](uint64_t a, uint64_t) { return static_cast<uint64_t>(static_cast<uint32_t>(f(a))); }, [](const Vdut& t) { return t.unsigned32_float32; },
       [](uint64_t a) { return f(a) >= 0.0f && f(a) < 4294967296.0f; }},
      {"widen", 1, [](uint64_t a, uint64_t) { return bits(static_cast<double>(f(a))); }, [](const Vdut& t) { return t.widen; }, any},
      {"narrow", 2, [](uint64_t a, uint64_t) { return bits(static_cast<float>(d(a))); }, [](const Vdut& t) { return t.narrow; }, any},
      {"multiply18", 2, [](uint64_t a, uint64_t b) { return a * b & 0x3ffff; }, [](const Vdut& t) { return t.multiply18; }, any},
      {"product", 2, [](uint64_t a, uint64_t b) { return static_cast<uint64_t>(signed18(a) * signed18(b)) & 0xfffffffff; }, [](const Vdut& t) { return t.product; }, any},
      {"multiply32", 3, [](uint64_t a, uint64_t b) { return a * b & 0xffffffff; }, [](const Vdut& t) { return t.multiply32; }, any},
      {"multiply64", 3, [](uint64_t a, uint64_t b) { return a * b; }, [](const Vdut& t) { return t.multiply64; }, any},
      {"delay3", 3, [](uint64_t a, uint64_t) { return a & 0xffffffff; }, [](const Vdut& t) { return t.delay3; }, any},
      {"delay17", 17, [](uint64_t a, uint64_t) { return a & 1; }, [](const Vdut& t) { return t.delay17; }, any},
      {"delay22", 22, [](uint64_t a, uint64_t) { return a; }, [](const Vdut& t) { return t.delay22; }, any},
  };
  auto clock = [&] {
    top.clk = 1;
    top.eval();
    top.clk = 0;
    top.eval();
  };
  int wrong = 0;
  auto differs = [&](const char* name, uint64_t a, uint64_t b, uint64_t found, uint64_t right) {
    if (found == right) return;
    if (wrong++ < 20) printf("%s(%016llx, %016llx) is %016llx, not %016llx\n", name, (unsigned long long)a, (unsigned long long)b, (unsigned long long)found, (unsigned long long)right);
  };
  std::deque<std::pair<uint64_t, uint64_t>> operands;  // the latest first
  // All pairs of floats of 9 bits come with random bits above them; then random numbers.
  const int pairs = 1 << 18;
  for (int n = 0; n < pairs + 400000; n++) {
    uint64_t a = operand(random64()), b = operand(a);
    if (n < pairs) {
      a = (a & ~0x1ffull) | (n & 0x1ff);
      b = (b & ~0x1ffull) | (n >> 9);
    }
    top.a = a;
    top.b = b;
    top.enable = random64() % 8 != 0;
    top.eval();
    auto order = [](auto x, auto y) { return uint64_t(x < y) | uint64_t(x == y) << 1 | uint64_t(std::isnan(x) || std::isnan(y)) << 2; };
    differs("order32", a, b, top.order32, order(f(a), f(b)));
    differs("order64", a, b, top.order64, order(d(a), d(b)));
    clock();
    if (!top.enable) {
      if (n < pairs) n--;
      continue;
    }
    operands.emplace_front(a, b);
    if (operands.size() > 22) operands.pop_back();
    for (const Unit& unit : units) {
      if (operands.size() < static_cast<size_t>(unit.latency)) continue;
      const auto [x, y] = operands[static_cast<size_t>(unit.latency) - 1];
      if (unit.known(x)) differs(unit.name, x, y, unit.found(top), unit.right(x, y));
    }
  }
  top.rst = 1;
  clock();
  top.rst = 0;
  for (int n = 0; n < 4000; n++) {
    const uint64_t a = operand(random64()), b = random64() >> (random64() % 64);
    top.is_signed = n & 1;
    if (b == 0 || (top.is_signed && a == 1ull << 63 && b == ~0ull)) continue;
    top.a = a;
    top.b = b;
    top.start = 1;
    clock();
    top.start = 0;
    for (int i = 0; i < 80 && !top.done; i++) clock();
    const auto sa = static_cast<int64_t>(a), sb = static_cast<int64_t>(b);
    differs("quotient", a, b, top.quotient, top.is_signed ? static_cast<uint64_t>(sa / sb) : a / b);
    differs("rest", a, b, top.rest, top.is_signed ? static_cast<uint64_t>(sa % sb) : a % b);
  }
  printf("test " BENCH " ... %s\n", wrong == 0 ? "ok" : "FAILED");
  return wrong != 0;
}
