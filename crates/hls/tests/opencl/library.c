/* Compares the library's functions on floats (library.cl), which are compiled for this processor, with the C library's on
 * doubles. Prints each function whose error exceeds OpenCL's bound, with its worst argument. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PI 3.14159265358979323846

static uint64_t state = 88172645463325252u;
static int wrong;

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint32_t next(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 20);
}

/* Arguments at which functions have special values, then any float, then floats of common sizes. */
static float argument(int i)
{
    static const float special[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0.5f, 0.25f, 1.5f, 2.5f, 3.5f, 10, 88.5f, 100, 128, 149, 150, 171, 8388607.5f, 8388608,
                                    16777215, 16777216, 16777218, 1e-10f, 1e10f, 1e30f, 1.5e19f, 0x1p-126f, 0x1p-149f,
                                    0x1.fffffep-127f, 0x1.fffffep127f, 0x1.fffffep-1f, 0x1.000002p0f, 0x1.921fb6p1f, INFINITY, NAN};
    enum { SPECIAL = sizeof special / sizeof *special };
    if (i < 2 * SPECIAL) return i & 1 ? -special[i / 2] : special[i / 2];
    switch (i % 3) {
    case 0: return from_bits(next());
    case 1: return from_bits((next() & 0x807fffff) | (127 - 12 + next() % 20) << 23);
    default: return (float)((int)next() % 4096) * 0.125f;
    }
}
enum { SPECIAL_ARGUMENTS = 78 };

/* The error in units of the last place of the expected value. */
static double error(float got, double expected)
{
    float rounded = (float)expected;
    if (isnan(got) || isnan(rounded)) return isnan(got) && isnan(rounded) ? 0 : INFINITY;
    if (isinf(rounded) || isinf(got)) {
        /* A value between the largest float and 2^128 may be rounded to either. */
        return got == rounded || (!isinf(got) && fabs(expected) < 0x1.000001p128 && fabs(got) > 0x1.fffff0p127) ||
                       (isinf(got) && fabs(expected) > 0x1.fffff0p127 && got * expected > 0)
                   ? 0
                   : INFINITY;
    }
    if (expected == 0) return got == 0 && !signbit(got) == !signbit(expected) ? 0 : INFINITY;
    int exponent;
    frexp(expected, &exponent);
    return fabs(got - expected) / ldexp(1, (exponent - 24 > -149 ? exponent - 24 : -149));
}

static void check(const char *name, double bound, double worst, const float *at, float got, double expected)
{
    if (worst <= bound) return;
    printf("%s(%a, %a, %a): %a, expected %a: %g units, more than %g\n", name, at[0], at[1], at[2], got, expected, worst, bound);
    wrong = 1;
}

typedef float (*library_function)(float, float, float);

#define LOOP(NAME, COUNT, GOT, EXPECTED, BOUND)                                        \
    do {                                                                               \
        double worst = -1, worst_expected = 0;                                         \
        float worst_got = 0, at[3] = {0};                                              \
        for (int i = 0; i < (COUNT); i++) {                                            \
            float a = arguments[0][i], b = arguments[1][i], c = arguments[2][i];       \
            int n = whole[i];                                                          \
            float got = GOT;                                                           \
            double expected = EXPECTED, units = error(got, expected);                  \
            (void)b, (void)c, (void)n;                                                 \
            if (units > worst) {                                                       \
                worst = units, worst_got = got, worst_expected = expected;             \
                at[0] = a, at[1] = b, at[2] = c;                                       \
            }                                                                          \
        }                                                                              \
        check(NAME, BOUND, worst, at, worst_got, worst_expected);                      \
    } while (0)

enum { COUNT = 60000 };
static float arguments[3][COUNT];
static int whole[COUNT];

#define ONE(F, EXPECTED, BOUND)         \
    do {                                \
        float one_##F(float);           \
        LOOP(#F, COUNT, one_##F(a), EXPECTED, BOUND); \
    } while (0)
#define TWO(F, EXPECTED, BOUND)         \
    do {                                \
        float two_##F(float, float);    \
        LOOP(#F, COUNT, two_##F(a, b), EXPECTED, BOUND); \
    } while (0)
#define WHOLE(F, EXPECTED, BOUND)       \
    do {                                \
        float whole_##F(float, int);    \
        LOOP(#F, COUNT, whole_##F(a, n), EXPECTED, BOUND); \
    } while (0)

static double sin_pi(double a)
{
    double rest = fmod(fabs(a), 2), value = rest == 1 || rest == 0 ? 0 : rest < 1 ? sin(PI * fmin(rest, 1 - rest)) : -sin(PI * fmin(rest - 1, 2 - rest));
    return isinf(a) ? NAN : value == 0 ? copysign(0, a) : a < 0 ? -value : value;
}

static double cos_pi(double a)
{
    double rest = fmod(fabs(a), 2);
    if (isinf(a)) return NAN;
    if (rest > 1) rest = 2 - rest;
    return rest == 0.5 ? 0 : rest < 0.25 ? cos(PI * rest) : rest > 0.75 ? -cos(PI * (1 - rest)) : sin(PI * (0.5 - rest));
}

static double tan_pi(double a)
{
    double s = sin_pi(a), c = cos_pi(a), half = fmod(fabs(a), 2);
    if (isinf(a)) return NAN;
    if (s == 0) return half == 1 ? -copysign(0, a) : copysign(0, a);
    if (c == 0) return copysign(INFINITY, half == 0.5 ? a : -a);
    return s / c;
}

static double root_n(double a, int n)
{
    if (n == 0 || (a < 0 && n % 2 == 0)) return NAN;
    double value = a == 0 ? (n < 0 ? INFINITY : 0) : isinf(a) ? (n < 0 ? 0 : INFINITY) : pow(fabs(a), 1.0 / n);
    return n & 1 ? copysign(value, a) : value;
}

static double power_r(double a, double b)
{
    if (isnan(a) || isnan(b) || a < 0 || (a == 0 && b == 0) || (isinf(a) && b == 0) || (a == 1 && isinf(b))) return NAN;
    return a == 0 ? (b < 0 ? INFINITY : 0) : pow(a, b);
}

static double unit(double a, double b)
{
    if (isinf(a) || isinf(b)) return isnan(a) || isnan(b) ? NAN : copysign(isinf(a) ? isinf(b) ? sqrt(0.5) : 1 : 0, a);
    return a == 0 && b == 0 ? a : a / hypot(a, b);
}

static double quotient(float a, float b)
{
    int q;
    if (isnan(a) || isnan(b) || isinf(a) || b == 0) return 0;
    remquo(a, b, &q);
    return q < 0 ? -(-q & 7) : q & 7;
}

static void one(void)
{
    ONE(sin, sin(a), 4);
    ONE(cos, cos(a), 4);
    ONE(tan, tan(a), 5);
    ONE(asin, asin(a), 4);
    ONE(acos, acos(a), 4);
    ONE(atan, atan(a), 5);
    ONE(sinpi, sin_pi(a), 4);
    ONE(cospi, cos_pi(a), 4);
    ONE(tanpi, tan_pi(a), 6);
    ONE(asinpi, asin(a) / PI, 5);
    ONE(acospi, acos(a) / PI, 5);
    ONE(atanpi, atan(a) / PI, 5);
    ONE(sinh, sinh(a), 4);
    ONE(cosh, cosh(a), 4);
    ONE(tanh, tanh(a), 5);
    ONE(asinh, asinh(a), 4);
    ONE(acosh, acosh(a), 4);
    ONE(atanh, atanh(a), 5);
    ONE(exp, exp(a), 3);
    ONE(exp2, exp2(a), 3);
    ONE(exp10, pow(10, a), 3);
    ONE(expm1, expm1(a), 3);
    ONE(log, log(a), 3);
    ONE(log2, log2(a), 3);
    ONE(log10, log10(a), 3);
    ONE(log1p, log1p(a), 2);
    ONE(sqrt, sqrt(a), 0.5);
    ONE(rsqrt, 1 / sqrt(a), 2);
    ONE(cbrt, cbrt(a), 2);
    ONE(erf, erf(a), 16);
    ONE(erfc, erfc(a), 16);
    ONE(tgamma, isinf(a) && a < 0 ? NAN : a < 0 && floor(a) == a ? NAN : tgamma(a), 16);
    ONE(trunc, trunc(a), 0);
    ONE(floor, floor(a), 0);
    ONE(ceil, ceil(a), 0);
    ONE(round, round(a), 0);
    ONE(rint, rint(a), 0);
    ONE(logb, logb(a), 0);
    ONE(length, fabs(a), 0);
    ONE(normalize, isnan(a) ? NAN : a == 0 ? a : copysign(1, a), 0);
    ONE(modf, isinf(a) ? copysign(0, a) : copysign(a - trunc(a), a), 0);
    ONE(fract, isnan(a) ? a : isinf(a) ? copysign(0, a) : fmin(a - floor(a), 0x1.fffffep-1), 0.5);
    ONE(frexp, frexp(a, &n), 0);
}

static void more(void)
{
    TWO(divide, (double)a / b, 0.5);
    TWO(atan2, atan2(a, b), 6);
    TWO(atan2pi, atan2(a, b) / PI, 6);
    TWO(pow, pow(a, b), 16);
    TWO(powr, power_r(a, b), 16);
    TWO(hypot, hypot(a, b), 4);
    /* Squares of floats are exact as doubles. */
    TWO(length, sqrt((double)a * a + (double)b * b), 3);
    TWO(distance, sqrt(3.0) * fabs((double)a - b), 4);
    TWO(normalize, unit(a, b), 3);
    TWO(fmod, fmod(a, b), 0);
    TWO(remainder, remainder(a, b), 0);
    LOOP("remquo", COUNT, 0, (quotient(a, b) == fmod(({ float two_remquo(float, float); two_remquo(a, b); }), 8) ? 0 : 1), 0);
    TWO(nextafter, nextafterf(a, b), 0);
    TWO(fdim, fdimf(a, b), 0);
    TWO(fmin, a == b ? a : fmin(a, b), 0);
    TWO(fmax, a == b ? a : fmax(a, b), 0);
    TWO(copysign, copysignf(a, b), 0);
    TWO(maxmag, fabs(a) > fabs(b) ? a : fabs(b) > fabs(a) ? b : a == b ? a : fmax(a, b), 0);
    TWO(minmag, fabs(a) < fabs(b) ? a : fabs(b) < fabs(a) ? b : a == b ? a : fmin(a, b), 0);
    WHOLE(pown, pow(a, n), 16);
    WHOLE(rootn, root_n(a, n), 16);
    WHOLE(ldexp, ldexp(a, n), 0.5);
    float three_fma(float, float, float);
    LOOP("fma", COUNT, three_fma(a, b, c), fmaf(a, b, c), 0);
}

/* Conversions with rounding modes, against the neighbors of the nearest value. */
static float rounded(float nearest, long double exact, int mode)
{
    if (mode == 2 && nearest < exact) return nextafterf(nearest, INFINITY);
    if (mode == 3 && nearest > exact) return nextafterf(nearest, -INFINITY);
    if (mode == 1 && fabsl(nearest) > fabsl(exact)) return nextafterf(nearest, 0);
    return nearest;
}

static float half_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 0x3ff;
    float size = exponent == 31 ? fraction ? NAN : INFINITY
                                : exponent ? ldexpf(fraction | 0x400, exponent - 25) : ldexpf(fraction, -24);
    return half & 0x8000 ? -size : size;
}

static void conversions(void)
{
    float from_long_rte(int64_t), from_long_rtz(int64_t), from_long_rtp(int64_t), from_long_rtn(int64_t);
    float from_ulong_rte(uint64_t), from_ulong_rtz(uint64_t), from_ulong_rtp(uint64_t), from_ulong_rtn(uint64_t);
    float (*from_long[])(int64_t) = {from_long_rte, from_long_rtz, from_long_rtp, from_long_rtn};
    float (*from_ulong[])(uint64_t) = {from_ulong_rte, from_ulong_rtz, from_ulong_rtp, from_ulong_rtn};
    float from_half(uint16_t);
    uint16_t to_half_rte(float), to_half_rtz(float), to_half_rtp(float), to_half_rtn(float);
    uint16_t (*to_half[])(float) = {to_half_rte, to_half_rtz, to_half_rtp, to_half_rtn};
    int differ = 0;
    for (int i = 0; i < COUNT; i++) {
        int64_t n = (int64_t)((uint64_t)next() << 32 | next()) >> next() % 64;
        for (int mode = 0; mode < 4; mode++) {
            differ += from_long[mode](n) != rounded((float)n, n, mode);
            differ += from_ulong[mode](n) != rounded((float)(uint64_t)n, (uint64_t)n, mode);
        }
    }
    for (uint32_t half = 0; half < 0x10000; half++) {
        float value = half_value(half), to = half_value(half + 1);
        if (isnan(value)) {
            differ += !isnan(from_half(half)) || !isnan(half_value(to_half_rte(value)));
            continue;
        }
        differ += from_half(half) != value || signbit(from_half(half)) != signbit(value);
        for (int mode = 0; mode < 4; mode++) differ += to_half[mode](value) != half;
        /* Between two halves of the same sign; 2^16 takes the place of infinity. */
        if ((half & 0x7fff) >= 0x7c00) continue;
        if (isinf(to)) to = copysignf(65536, to);
        for (int part = 1; part < 4; part++) {
            float between = value + (to - value) * 0.25f * part;
            uint16_t nearest = part > 2 || (part == 2 && half & 1) ? half + 1 : half, away = half + 1;
            int negative = half >> 15;
            differ += to_half_rte(between) != nearest || to_half_rtz(between) != half;
            differ += to_half_rtp(between) != (negative ? half : away) || to_half_rtn(between) != (negative ? away : half);
        }
    }
    if (differ != 0) {
        printf("%d conversions differ\n", differ);
        wrong = 1;
    }
}

int main(void)
{
    for (int i = 0; i < COUNT; i++) {
        /* All pairs of special arguments first. */
        int pairs = SPECIAL_ARGUMENTS * SPECIAL_ARGUMENTS;
        arguments[0][i] = i < pairs ? argument(i % SPECIAL_ARGUMENTS) : argument(i);
        arguments[1][i] = i < pairs ? argument(i / SPECIAL_ARGUMENTS) : argument(i);
        arguments[2][i] = argument(i < pairs ? i / 7 % SPECIAL_ARGUMENTS : i);
        whole[i] = i % 4 == 0 ? (int)next() : (int)(next() % 41) - 20;
        /* Neighbors and multiples, for remainders and sums. */
        if (i > pairs && i % 11 == 0) arguments[1][i] = arguments[0][i] * (float)(next() % 7) * 0.25f;
        if (i > pairs && i % 5 == 0) arguments[2][i] = from_bits(to_bits(-arguments[0][i] * arguments[1][i]) + next() % 3 - 1);
    }
    one();
    more();
    conversions();
    return wrong;
}
