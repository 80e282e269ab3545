/*
 * OpenCL C's hyperbolic functions, error and gamma functions, remainders, and functions with a
 * second result, of floats. Included by baltra_builtins.h.
 */

/* ---- hyperbolic functions and their inverses ---- */

/* e^a - 1 */
static double BALTRA_ROUTINE __baltra_exp_less_one(double a)
{
    if (a > 0.375 || a < -0.375) return __baltra_exp2_double(a * BALTRA_LOG2_E) - 1.0;
    double sum = BALTRA_PART(3628800);
    sum = sum * a + BALTRA_PART(362880);
    sum = sum * a + BALTRA_PART(40320);
    sum = sum * a + BALTRA_PART(5040);
    sum = sum * a + BALTRA_PART(720);
    sum = sum * a + BALTRA_PART(120);
    sum = sum * a + BALTRA_PART(24);
    sum = sum * a + BALTRA_PART(6);
    sum = sum * a + 0.5;
    return a + a * a * sum;
}
BALTRA_FUNCTION float expm1(float a) { return a == 0 || a != a ? a : (float)__baltra_exp_less_one(a); }
BALTRA_FUNCTION float sinh(float a)
{
    if (a == 0 || !isfinite(a)) return a;
    double e = __baltra_exp_less_one(fabs(a));
    return copysign((float)((e + e * __baltra_reciprocal(e + 1.0)) * 0.5), a);
}
BALTRA_FUNCTION float cosh(float a)
{
    if (!isfinite(a)) return fabs(a);
    double e = __baltra_exp2_double(fabs(a) * BALTRA_LOG2_E);
    return (float)((e + __baltra_reciprocal(e)) * 0.5);
}
BALTRA_FUNCTION float tanh(float a)
{
    float size = fabs(a);
    if (a == 0 || a != a) return a;
    if (size > 20.0f) return copysign(1.0f, a);
    double e = __baltra_exp_less_one(2.0 * size);
    return copysign((float)(e * __baltra_reciprocal(e + 2.0)), a);
}
BALTRA_FUNCTION float log1p(float a)
{
    if (!(a > -1.0f)) return a == -1.0f ? -INFINITY : as_float(0x7fc00000u);
    return isinf(a) || fabs(a) < 0x1p-26f ? a : (float)__baltra_log_double((double)a + 1.0);
}
BALTRA_FUNCTION float asinh(float a)
{
    double size = fabs(a);
    if (!isfinite(a) || size < 0x1p-20f) return a;
    return copysign((float)__baltra_log_double(size + __baltra_root(size * size + 1.0)), a);
}
BALTRA_FUNCTION float acosh(float a)
{
    if (!(a >= 1.0f)) return as_float(0x7fc00000u);
    return isinf(a) ? a : (float)__baltra_log_double(a + __baltra_root(((double)a - 1.0) * ((double)a + 1.0)));
}
BALTRA_FUNCTION float atanh(float a)
{
    double size = fabs(a);
    if (!(size <= 1.0)) return as_float(0x7fc00000u);
    if (size == 1.0) return copysign(INFINITY, a);
    if (size < 0x1p-12f) return (float)(a + a * (size * size) * BALTRA_PART(3));
    return copysign((float)(0.5 * __baltra_log_double((1.0 + size) * __baltra_reciprocal(1.0 - size))), a);
}

/* ---- error functions ---- */

/* 2 / sqrt(pi) */
#define BALTRA_2_SQRT_PI as_double(0x3ff20dd750429b6dul)
/* erfc(a) e^(a^2) / t for t = 1 / (1 + a / 2) and a from 0 to 11: a polynomial in (26 t - 15) / 11,
 * interpolated at Chebyshev's nodes; relative error below 2^-31. Coefficients times 2^52. */
static __constant long __baltra_erfc_terms[13] = {-1039444017, -10504043569, 31344847330, 58000287889, -345526731986,
                                           38105343426, 2940782438406, -3268447907564, -29223656505329,
                                           29889308219965, 472430311141252, 1477442071912620, 2553618877470404};

static double BALTRA_ROUTINE __baltra_erfc_double(double a)
{
    double t = __baltra_reciprocal(1.0 + a * 0.5), u = (t * 26.0 - 15.0) * BALTRA_PART(11), sum = 0;
    for (uint i = 0; i < 13; i++) sum = sum * u + __baltra_erfc_terms[i];
    return sum * BALTRA_PART(1l << 52) * t * __baltra_exp2_double(-a * a * BALTRA_LOG2_E);
}
/* The series for arguments up to 1. */
static double BALTRA_ROUTINE __baltra_erf_double(double a)
{
    double q = -a * a, sum = BALTRA_PART(918086400);
    sum = sum * q + BALTRA_PART(76204800);
    sum = sum * q + BALTRA_PART(6894720);
    sum = sum * q + BALTRA_PART(685440);
    sum = sum * q + BALTRA_PART(75600);
    sum = sum * q + BALTRA_PART(9360);
    sum = sum * q + BALTRA_PART(1320);
    sum = sum * q + BALTRA_PART(216);
    sum = sum * q + BALTRA_PART(42);
    sum = sum * q + BALTRA_PART(10);
    sum = sum * q + BALTRA_PART(3);
    return BALTRA_2_SQRT_PI * a * (sum * q + 1.0);
}
BALTRA_FUNCTION float erf(float a)
{
    float size = fabs(a);
    if (a != a || a == 0) return a;
    if (size > 4.0f) return copysign(1.0f, a);
    return copysign((float)(size < 1.0f ? __baltra_erf_double(size) : 1.0 - __baltra_erfc_double(size)), a);
}
BALTRA_FUNCTION float erfc(float a)
{
    float size = fabs(a);
    if (a != a) return a;
    if (size < 0.5f) return (float)(1.0 - __baltra_erf_double(a));
    double value = size > 11.0f ? 0 : __baltra_erfc_double(size);
    return (float)(a < 0 ? 2.0 - value : value);
}

/* ---- gamma functions ---- */

/* log(sqrt(2 pi)) and log(pi) */
#define BALTRA_LN_ROOT_2_PI as_double(0x3fed67f1c864beb5ul)
#define BALTRA_LN_PI as_double(0x3ff250d048e7a1bdul)

/* The logarithm of the gamma function of a positive argument: Stirling's series from 8 on. */
static double BALTRA_ROUTINE __baltra_log_gamma(double a)
{
    double product = 1.0;
    for (; a < 8.0; a += 1.0) product *= a;
    double y = __baltra_reciprocal(a), q = y * y;
    double series = y * (BALTRA_PART(12) - q * (BALTRA_PART(360) - q * BALTRA_PART(1260)));
    return (a - 0.5) * __baltra_log_double(a) - a + BALTRA_LN_ROOT_2_PI + series - __baltra_log_double(product);
}
/* The same of the size of the gamma function of an argument that is not a pole. */
BALTRA_FUNCTION double __baltra_log_gamma_of(float a, double sine)
{
    if (a > 0) return __baltra_log_gamma(a);
    return BALTRA_LN_PI - __baltra_log_double(sine < 0 ? -sine : sine) - __baltra_log_gamma(1.0 - (double)a);
}
/* sin(pi a) */
BALTRA_FUNCTION double __baltra_sine_pi(float a)
{
    uint quadrant;
    double r = __baltra_reduce_pi(a, &quadrant);
    return r == 0 && !(quadrant & 1) ? 0 : __baltra_wave(r, quadrant);
}
BALTRA_FUNCTION float lgamma_r(float a, __private int *sign)
{
    *sign = signbit(a) && a == 0 ? -1 : 1;
    if (a != a) return a;
    if (isinf(a) || a == 0) return INFINITY;
    double sine = a > 0 ? 1.0 : __baltra_sine_pi(a);
    if (sine == 0) return INFINITY;
    if (sine < 0) *sign = -1;
    return (float)__baltra_log_gamma_of(a, sine);
}
BALTRA_FUNCTION float lgamma(float a)
{
    int sign;
    return lgamma_r(a, &sign);
}
BALTRA_FUNCTION float tgamma(float a)
{
    if (a == 0) return copysign(INFINITY, a);
    if (a != a || a == INFINITY) return a;
    if (a == -INFINITY) return as_float(0x7fc00000u);
    double sine = a > 0 ? 1.0 : __baltra_sine_pi(a);
    if (sine == 0) return as_float(0x7fc00000u);
    float size = (float)__baltra_exp2_double(__baltra_log_gamma_of(a, sine) * BALTRA_LOG2_E);
    return sine < 0 ? -size : size;
}

/* ---- roots, remainders, neighbors ---- */

BALTRA_FUNCTION float rootn(float a, int n)
{
    float size = fabs(a), value;
    if (a != a || n == 0 || (a < 0 && !(n & 1))) return as_float(0x7fc00000u);
    if (size == 0) value = n < 0 ? INFINITY : 0.0f;
    else if (isinf(a)) value = n < 0 ? 0.0f : INFINITY;
    else value = (float)__baltra_exp2_double(__baltra_log_double(size) * BALTRA_LOG2_E * __baltra_reciprocal(n));
    return n & 1 ? copysign(value, a) : value;
}
/* The remainder by the nearest quotient in the low half, the quotient's last bits in the high one. */
static ulong BALTRA_ROUTINE __baltra_remquo_float(float a, float b)
{
    uint x = as_uint(a) & 0x7fffffff, y = as_uint(b) & 0x7fffffff, sign = as_uint(a) & 0x80000000u;
    if (x >= 0x7f800000u || y > 0x7f800000u || y == 0) return 0x7fc00000u;
    if (y == 0x7f800000u) return as_uint(a);
    int ex = max((int)(x >> 23), 1), ey = max((int)(y >> 23), 1);
    if (ey - ex > 1) return as_uint(a);
    uint fx = (x & 0x7fffff) | (x >> 23 ? 0x800000 : 0), fy = (y & 0x7fffff) | (y >> 23 ? 0x800000 : 0), quotient = 0;
    if (ey > ex) {
        ey = ex;
        fy <<= 1;
    } else {
        quotient = fx / fy;
        fx %= fy;
        for (; ex > ey; ex--) {
            fx <<= 1;
            quotient <<= 1;
            if (fx >= fy) {
                fx -= fy;
                quotient |= 1;
            }
        }
    }
    uint twice = fx << 1;
    if (twice > fy || (twice == fy && (quotient & 1))) {
        fx = fy - fx;
        sign ^= 0x80000000u;
        quotient++;
    }
    int last = (int)(quotient & 0x7f);
    if ((as_uint(a) ^ as_uint(b)) >> 31) last = -last;
    uint bits = fx == 0 ? as_uint(a) & 0x80000000u : as_uint(__baltra_pack_float(sign, ey - 150, fx));
    return (ulong)(uint)last << 32 | bits;
}
BALTRA_FUNCTION float remainder(float a, float b) { return as_float((uint)__baltra_remquo_float(a, b)); }
BALTRA_FUNCTION float remquo(float a, float b, __private int *quotient)
{
    ulong both = __baltra_remquo_float(a, b);
    *quotient = (int)(both >> 32);
    return as_float((uint)both);
}
BALTRA_FUNCTION float nextafter(float a, float to)
{
    if (a != a || to != to) return as_float(0x7fc00000u);
    if (a == to) return to;
    if (a == 0) return copysign(as_float(1u), to);
    return as_float((a < to) == (a > 0) ? as_uint(a) + 1 : as_uint(a) - 1);
}
BALTRA_FUNCTION float nan(uint code) { return as_float(0x7fc00000u | (code & 0x3fffff)); }
BALTRA_FUNCTION float sincos(float a, __private float *cosine)
{
    *cosine = cos(a);
    return sin(a);
}

/* ---- functions with a second result: in all address spaces, and by element ---- */

#define BALTRA_SECOND_OF(F, R, SPACE, N, H)                                                        \
    BALTRA_FUNCTION float##N F(float##N a, SPACE R##N *p)                                          \
    {                                                                                              \
        R##H low, high;                                                                            \
        float##N value = (float##N)(F(a.lo, &low), F(a.hi, &high));                                \
        *p = (R##N)(low, high);                                                                    \
        return value;                                                                              \
    }
#define BALTRA_SECOND_IN(F, R, SPACE)                                                              \
    BALTRA_SECOND_OF(F, R, SPACE, 2, )                                                             \
    BALTRA_FUNCTION float3 F(float3 a, SPACE R##3 *p)                                              \
    {                                                                                              \
        R x, y, z;                                                                                 \
        float3 value = (float3)(F(a.x, &x), F(a.y, &y), F(a.z, &z));                               \
        *p = (R##3)(x, y, z);                                                                      \
        return value;                                                                              \
    }                                                                                              \
    BALTRA_SECOND_OF(F, R, SPACE, 4, 2) BALTRA_SECOND_OF(F, R, SPACE, 8, 4) BALTRA_SECOND_OF(F, R, SPACE, 16, 8)
#define BALTRA_SECOND_SCALAR(F, R, SPACE)                                                          \
    BALTRA_FUNCTION float F(float a, SPACE R *p)                                                   \
    {                                                                                              \
        R second;                                                                                  \
        float value = F(a, &second);                                                               \
        *p = second;                                                                               \
        return value;                                                                              \
    }
#define BALTRA_SECOND(F, R)                                                                        \
    BALTRA_SECOND_IN(F, R, __private)                                                              \
    BALTRA_SECOND_SCALAR(F, R, __global) BALTRA_SECOND_IN(F, R, __global)                          \
    BALTRA_SECOND_SCALAR(F, R, __local) BALTRA_SECOND_IN(F, R, __local)
BALTRA_SECOND(fract, float) BALTRA_SECOND(modf, float) BALTRA_SECOND(sincos, float)
BALTRA_SECOND(frexp, int) BALTRA_SECOND(lgamma_r, int)

#define BALTRA_REMQUO_OF(SPACE, N, H)                                                              \
    BALTRA_FUNCTION float##N remquo(float##N a, float##N b, SPACE int##N *p)                       \
    {                                                                                              \
        int##H low, high;                                                                          \
        float##N value = (float##N)(remquo(a.lo, b.lo, &low), remquo(a.hi, b.hi, &high));          \
        *p = (int##N)(low, high);                                                                  \
        return value;                                                                              \
    }
#define BALTRA_REMQUO(SPACE)                                                                       \
    BALTRA_REMQUO_OF(SPACE, 2, )                                                                   \
    BALTRA_FUNCTION float3 remquo(float3 a, float3 b, SPACE int3 *p)                               \
    {                                                                                              \
        int x, y, z;                                                                               \
        float3 value = (float3)(remquo(a.x, b.x, &x), remquo(a.y, b.y, &y), remquo(a.z, b.z, &z)); \
        *p = (int3)(x, y, z);                                                                      \
        return value;                                                                              \
    }                                                                                              \
    BALTRA_REMQUO_OF(SPACE, 4, 2) BALTRA_REMQUO_OF(SPACE, 8, 4) BALTRA_REMQUO_OF(SPACE, 16, 8)
#define BALTRA_REMQUO_SCALAR(SPACE)                                                                \
    BALTRA_FUNCTION float remquo(float a, float b, SPACE int *p)                                   \
    {                                                                                              \
        int quotient;                                                                              \
        float value = remquo(a, b, &quotient);                                                     \
        *p = quotient;                                                                             \
        return value;                                                                              \
    }
BALTRA_REMQUO(__private)
BALTRA_REMQUO_SCALAR(__global) BALTRA_REMQUO(__global) BALTRA_REMQUO_SCALAR(__local) BALTRA_REMQUO(__local)

/* ---- by element, and of implementation-defined precision ---- */

#define BALTRA_SPECIAL(F) BALTRA_UNARY(float, F, float)
BALTRA_SPECIAL(sinh) BALTRA_SPECIAL(cosh) BALTRA_SPECIAL(tanh) BALTRA_SPECIAL(asinh) BALTRA_SPECIAL(acosh)
BALTRA_SPECIAL(atanh) BALTRA_SPECIAL(expm1) BALTRA_SPECIAL(log1p) BALTRA_SPECIAL(erf) BALTRA_SPECIAL(erfc)
BALTRA_SPECIAL(lgamma) BALTRA_SPECIAL(tgamma)
BALTRA_UNARY(float, nan, uint) BALTRA_BINARY(float, rootn, float, int) BALTRA_BINARY(float, remainder, float, float)
BALTRA_BINARY(float, nextafter, float, float)

#define BALTRA_FAST(P, F)                                      \
    BALTRA_FUNCTION float P##_##F(float a) { return F(a); }    \
    BALTRA_UNARY(float, P##_##F, float)
#define BALTRA_FASTER(P)                                                                           \
    BALTRA_FUNCTION float P##_recip(float a) { return 1.0f / a; }                                  \
    BALTRA_UNARY(float, P##_recip, float)                                                          \
    BALTRA_FUNCTION float P##_divide(float a, float b) { return a / b; }                           \
    BALTRA_BINARY(float, P##_divide, float, float)                                                 \
    BALTRA_FUNCTION float P##_powr(float a, float b) { return powr(a, b); }                        \
    BALTRA_BINARY(float, P##_powr, float, float)                                                   \
    BALTRA_FAST(P, cos) BALTRA_FAST(P, sin) BALTRA_FAST(P, tan) BALTRA_FAST(P, exp) BALTRA_FAST(P, exp2) \
    BALTRA_FAST(P, exp10) BALTRA_FAST(P, log) BALTRA_FAST(P, log2) BALTRA_FAST(P, log10)           \
    BALTRA_FAST(P, sqrt) BALTRA_FAST(P, rsqrt)
BALTRA_FASTER(native) BALTRA_FASTER(half)

/* ---- doubles: an error instead of a conversion to floats ---- */

#ifdef BALTRA_DOUBLES
#define BALTRA_NO_DOUBLES __attribute__((overloadable, unavailable("not for doubles (use float)")))
#define BALTRA_ABSENT(F) double BALTRA_NO_DOUBLES F(double a);
#define BALTRA_ABSENT_2(F) double BALTRA_NO_DOUBLES F(double a, double b);
BALTRA_ABSENT(sin) BALTRA_ABSENT(cos) BALTRA_ABSENT(tan) BALTRA_ABSENT(asin) BALTRA_ABSENT(acos) BALTRA_ABSENT(atan)
BALTRA_ABSENT(sinpi) BALTRA_ABSENT(cospi) BALTRA_ABSENT(tanpi) BALTRA_ABSENT(sinh) BALTRA_ABSENT(cosh) BALTRA_ABSENT(tanh)
BALTRA_ABSENT(asinh) BALTRA_ABSENT(acosh) BALTRA_ABSENT(atanh) BALTRA_ABSENT(exp) BALTRA_ABSENT(exp2) BALTRA_ABSENT(exp10)
BALTRA_ABSENT(expm1) BALTRA_ABSENT(log) BALTRA_ABSENT(log2) BALTRA_ABSENT(log10) BALTRA_ABSENT(log1p) BALTRA_ABSENT(sqrt)
BALTRA_ABSENT(rsqrt) BALTRA_ABSENT(cbrt) BALTRA_ABSENT(erf) BALTRA_ABSENT(erfc) BALTRA_ABSENT(tgamma) BALTRA_ABSENT(lgamma)
BALTRA_ABSENT(trunc) BALTRA_ABSENT(floor) BALTRA_ABSENT(ceil) BALTRA_ABSENT(round) BALTRA_ABSENT(rint) BALTRA_ABSENT(logb)
BALTRA_ABSENT(length) BALTRA_ABSENT(normalize) BALTRA_ABSENT_2(distance) BALTRA_ABSENT_2(atan2) BALTRA_ABSENT_2(pow)
BALTRA_ABSENT_2(powr) BALTRA_ABSENT_2(hypot) BALTRA_ABSENT_2(fmod) BALTRA_ABSENT_2(remainder) BALTRA_ABSENT_2(nextafter)
#endif
