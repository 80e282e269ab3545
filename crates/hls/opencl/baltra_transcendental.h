/*
 * OpenCL C's transcendental functions of floats, computed as doubles. Included by
 * baltra_builtins.h.
 */

/* 1 / a of a double, by Newton's method from the quotient of floats; a is in the range of floats. */
BALTRA_FUNCTION double __baltra_reciprocal(double a)
{
    double y = (double)(1.0f / (float)a);
    y = y * (2.0 - a * y);
    return y * (2.0 - a * y);
}

/* ---- sine, cosine, tangent ---- */

/* pi / 2 in two parts, the first of 33 bits. */
#define BALTRA_PI_2_HIGH as_double(0x3ff921fb54400000ul)
#define BALTRA_PI_2_LOW as_double(0x3dd0b4611a626331ul)
/* pi / 2 * 2^-64 */
#define BALTRA_PI_2_64 as_double(0x3bf921fb54442d18ul)
/* 2 / pi, behind 32 zeroes. */
static __constant uint __baltra_two_over_pi[8] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                           0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

/* A finite argument less the nearest multiple of pi / 2; bits 0 and 1 of `quadrant`: the multiple. */
static inline double __baltra_reduce(float a, __private uint *quadrant)
{
    float size = fabs(a);
    if (size < 65536.0f) {
        int n = (int)(a * BALTRA_2_PI + (a < 0 ? -0.5 : 0.5));
        *quadrant = n;
        return (a - n * BALTRA_PI_2_HIGH) - n * BALTRA_PI_2_LOW;
    }
    /* The product with 2 / pi modulo 4, of the bits that matter. */
    uint bits = as_uint(size), fraction = (bits & 0x7fffff) | 0x800000;
    uint skip = (bits >> 23) - 150 - 2 + 32, k = skip / 32, by = skip % 32;
    uint w0 = (((ulong)__baltra_two_over_pi[k] << 32 | __baltra_two_over_pi[k + 1]) << by) >> 32;
    uint w1 = (((ulong)__baltra_two_over_pi[k + 1] << 32 | __baltra_two_over_pi[k + 2]) << by) >> 32;
    uint w2 = (((ulong)__baltra_two_over_pi[k + 2] << 32 | __baltra_two_over_pi[k + 3]) << by) >> 32;
    ulong low = (ulong)fraction * w2, middle = (ulong)fraction * w1 + (low >> 32);
    uint high = fraction * w0 + (uint)(middle >> 32);
    ulong rest = (ulong)high << 34 | (ulong)(uint)middle << 2 | (uint)low >> 30;
    uint n = (high >> 30) + (uint)(rest >> 63);
    double r = (double)(long)rest * BALTRA_PI_2_64;
    *quadrant = a < 0 ? -n : n;
    return a < 0 ? -r : r;
}

/* The sine of an angle of at most pi / 4 plus a number of quarter turns. */
static double BALTRA_ROUTINE __baltra_wave(double r, uint quadrant)
{
    double q = r * r, even, odd;
    even = BALTRA_PART(40320) - q * BALTRA_PART(3628800);
    even = 1.0 + q * (-0.5 + q * (BALTRA_PART(24) + q * (q * even - BALTRA_PART(720))));
    odd = BALTRA_PART(362880) - q * BALTRA_PART(39916800);
    odd = r + r * q * (q * (BALTRA_PART(120) + q * (q * odd - BALTRA_PART(5040))) - BALTRA_PART(6));
    double value = quadrant & 1 ? even : odd;
    return quadrant & 2 ? -value : value;
}
/* The sine of an argument plus a number of quarter turns. */
BALTRA_FUNCTION double __baltra_sine(float a, uint turns)
{
    if (!isfinite(a)) return as_double(0x7ff8000000000000ul);
    uint quadrant;
    double r = __baltra_reduce(a, &quadrant);
    return __baltra_wave(r, quadrant + turns);
}

BALTRA_FUNCTION float sin(float a) { return a == 0 ? a : (float)__baltra_sine(a, 0); }
BALTRA_FUNCTION float cos(float a) { return (float)__baltra_sine(a, 1); }
BALTRA_FUNCTION float tan(float a) { return a == 0 ? a : (float)__baltra_sine(a, 0) / (float)__baltra_sine(a, 1); }

/* Of pi times an argument: an angle of at most pi / 4, and the number of quarter turns. */
static inline double __baltra_reduce_pi(float a, __private uint *quadrant)
{
    float size = fabs(a);
    /* From 2^24 on, numbers are even. */
    if (size >= 16777216.0f) size = 0.0f;
    uint n = (uint)((double)size * 2 + 0.5);
    double r = ((double)size - (double)n * 0.5) * (BALTRA_PI_2 * 2);
    *quadrant = a < 0 ? -n : n;
    return a < 0 ? -r : r;
}
BALTRA_FUNCTION float sinpi(float a)
{
    if (!isfinite(a)) return as_float(0x7fc00000u);
    uint quadrant;
    double r = __baltra_reduce_pi(a, &quadrant);
    return r == 0 && !(quadrant & 1) ? copysign(0.0f, a) : (float)__baltra_wave(r, quadrant);
}
BALTRA_FUNCTION float cospi(float a)
{
    if (!isfinite(a)) return as_float(0x7fc00000u);
    uint quadrant;
    double r = __baltra_reduce_pi(a, &quadrant);
    return r == 0 && quadrant & 1 ? 0.0f : (float)__baltra_wave(r, quadrant + 1);
}
BALTRA_FUNCTION float tanpi(float a)
{
    if (!isfinite(a)) return as_float(0x7fc00000u);
    uint quadrant;
    double r = __baltra_reduce_pi(a, &quadrant);
    /* The size of quarter turns decides about the sign of zeroes and poles. */
    uint turns = a < 0 ? -quadrant : quadrant;
    if (r == 0 && !(turns & 1)) return copysign(0.0f, turns & 2 ? -a : a);
    if (r == 0) return copysign(INFINITY, turns & 2 ? -a : a);
    return (float)__baltra_wave(r, quadrant) / (float)__baltra_wave(r, quadrant + 1);
}

/* ---- inverse functions ---- */

/* The arc tangent of y / x, both nonnegative, not both zero, and in the range of floats. */
double BALTRA_SHARED __baltra_arc(double y, double x)
{
    /* t = y / x; for t > tan(pi / 8): pi / 4 + atan((t - 1) / (t + 1)). */
    double base = 0;
    if (y > (1 + BALTRA_SQRT_2) * x) {
        double old = y;
        y = -x;
        x = old;
        base = BALTRA_PI_2;
    } else if (y > (BALTRA_SQRT_2 - 1) * x) {
        double old = y;
        y = y - x;
        x = x + old;
        base = (BALTRA_PI_2 * 0.5);
    }
    double t = y * __baltra_reciprocal(x), q = t * t, sum = BALTRA_PART(21);
    sum = sum * -q + BALTRA_PART(19);
    sum = sum * -q + BALTRA_PART(17);
    sum = sum * -q + BALTRA_PART(15);
    sum = sum * -q + BALTRA_PART(13);
    sum = sum * -q + BALTRA_PART(11);
    sum = sum * -q + BALTRA_PART(9);
    sum = sum * -q + BALTRA_PART(7);
    sum = sum * -q + BALTRA_PART(5);
    sum = sum * -q + BALTRA_PART(3);
    return base + t - t * q * sum;
}

/* Angles as doubles, not negative. */
BALTRA_FUNCTION double __baltra_atan(double size) { return size > 1152921504606846976.0f ? BALTRA_PI_2 : __baltra_arc(size, 1.0); }
BALTRA_FUNCTION double __baltra_asin(double size) { return __baltra_arc(size, __baltra_root((1.0 - size) * (1.0 + size))); }
BALTRA_FUNCTION double __baltra_acos(float a)
{
    double size = fabs(a), angle = __baltra_arc(__baltra_root((1.0 - size) * (1.0 + size)), size);
    return a < 0 ? BALTRA_PI_2 * 2 - angle : angle;
}
BALTRA_FUNCTION double __baltra_atan2(float y, float x)
{
    double u = fabs(y), v = fabs(x), angle;
    /* A quotient below 2^-100 is its own arc tangent; 2^100 as a double. */
    double much = as_double(0x4630000000000000ul);
    if (isinf(y)) angle = isinf(x) ? BALTRA_PI_2 * 0.5 : BALTRA_PI_2;
    else if (u == 0 || isinf(x)) angle = 0;
    else if (v == 0) angle = BALTRA_PI_2;
    else {
        /* Only the quotient matters; scaled into the middle of the range. */
        ulong scale = (as_ulong(u > v ? u : v) & 0x7ff0000000000000ul);
        double by = as_double(0x7fe0000000000000ul - scale);
        u *= by;
        v *= by;
        angle = v * much < 1.0 ? BALTRA_PI_2 : u * much < 1.0 ? u * __baltra_reciprocal(v) : __baltra_arc(u, v);
    }
    return signbit(x) ? BALTRA_PI_2 * 2 - angle : angle;
}
/* In units of pi. */
#define BALTRA_1_PI (BALTRA_2_PI * 0.5)
BALTRA_FUNCTION float atan(float a) { return a != a || a == 0 ? a : copysign((float)__baltra_atan(fabs(a)), a); }
BALTRA_FUNCTION float atanpi(float a)
{
    return a != a || a == 0 ? a : copysign((float)(__baltra_atan(fabs(a)) * BALTRA_1_PI), a);
}
BALTRA_FUNCTION float atan2(float y, float x)
{
    return x != x || y != y ? as_float(0x7fc00000u) : copysign((float)__baltra_atan2(y, x), y);
}
BALTRA_FUNCTION float atan2pi(float y, float x)
{
    return x != x || y != y ? as_float(0x7fc00000u) : copysign((float)(__baltra_atan2(y, x) * BALTRA_1_PI), y);
}
BALTRA_FUNCTION float asin(float a)
{
    return a == 0 ? a : !(fabs(a) <= 1) ? as_float(0x7fc00000u) : copysign((float)__baltra_asin(fabs(a)), a);
}
BALTRA_FUNCTION float asinpi(float a)
{
    return a == 0          ? a
           : !(fabs(a) <= 1) ? as_float(0x7fc00000u)
                             : copysign((float)(__baltra_asin(fabs(a)) * BALTRA_1_PI), a);
}
BALTRA_FUNCTION float acos(float a) { return !(fabs(a) <= 1) ? as_float(0x7fc00000u) : (float)__baltra_acos(a); }
BALTRA_FUNCTION float acospi(float a)
{
    return !(fabs(a) <= 1) ? as_float(0x7fc00000u) : (float)(__baltra_acos(a) * BALTRA_1_PI);
}

/* ---- powers ---- */

BALTRA_FUNCTION float powr(float x, float y)
{
    if (!(x >= 0) || y != y) return as_float(0x7fc00000u);
    if (x == 1) return isinf(y) ? as_float(0x7fc00000u) : 1.0f;
    if (y == 0) return x == 0 || isinf(x) ? as_float(0x7fc00000u) : 1.0f;
    if (x == 0) return y < 0 ? as_float(0x7f800000u) : 0.0f;
    if (isinf(x)) return y < 0 ? 0.0f : as_float(0x7f800000u);
    return (float)__baltra_exp2_double(y * (__baltra_log_double(x) * BALTRA_LOG2_E));
}
BALTRA_FUNCTION float pow(float x, float y)
{
    if (y == 0 || x == 1) return 1.0f;
    if (x != x || y != y) return as_float(0x7fc00000u);
    float size = fabs(x);
    if (isinf(y)) return size == 1 ? 1.0f : (size > 1) == (y > 0) ? as_float(0x7f800000u) : 0.0f;
    bool whole = trunc(y) == y, odd = whole && fabs(y) < 16777216.0f && ((int)y & 1);
    if (x < 0 && !whole && !isinf(x)) return as_float(0x7fc00000u);
    float value;
    if (size == 0) value = y < 0 ? as_float(0x7f800000u) : 0.0f;
    else if (isinf(x)) value = y < 0 ? 0.0f : as_float(0x7f800000u);
    else value = (float)__baltra_exp2_double(y * (__baltra_log_double(size) * BALTRA_LOG2_E));
    return odd && signbit(x) ? -value : value;
}
BALTRA_FUNCTION float pown(float x, int y)
{
    if (y == 0) return 1.0f;
    float size = fabs(x), value;
    if (x != x) return x;
    if (size == 0) value = y < 0 ? as_float(0x7f800000u) : 0.0f;
    else if (isinf(x)) value = y < 0 ? 0.0f : as_float(0x7f800000u);
    else value = (float)__baltra_exp2_double(y * (__baltra_log_double(size) * BALTRA_LOG2_E));
    return (y & 1) && signbit(x) ? -value : value;
}
BALTRA_FUNCTION float cbrt(float a)
{
    if (a == 0 || !isfinite(a)) return a;
    return copysign((float)__baltra_exp2_double(__baltra_log_double(fabs(a)) * BALTRA_LOG2_E * BALTRA_PART(3)), a);
}

/* ---- exact functions ---- */

/* The product is exact as a double; the sum is rounded to odd, so that the last rounding is right. */
BALTRA_FUNCTION float fma(float a, float b, float c)
{
    double product = (double)a * b, sum = product + c, part = sum - product;
    double error = (product - (sum - part)) + (c - part);
    ulong bits = as_ulong(sum);
    if (isfinite(sum) && error != 0 && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : -1;
    return (float)as_double(bits);
}
float BALTRA_SHARED __baltra_remainder_float(float a, float b)
{
    uint x = as_uint(a) & 0x7fffffff, y = as_uint(b) & 0x7fffffff, sign = as_uint(a) & 0x80000000u;
    if (x >= 0x7f800000u || y > 0x7f800000u || y == 0) return as_float(0x7fc00000u);
    if (x < y) return a;
    int ex = max((int)(x >> 23), 1), ey = max((int)(y >> 23), 1);
    uint fx = (x & 0x7fffff) | (x >> 23 ? 0x800000 : 0), fy = (y & 0x7fffff) | (y >> 23 ? 0x800000 : 0);
    fx %= fy;
    for (; ex > ey; ex--) {
        fx <<= 1;
        if (fx >= fy) fx -= fy;
    }
    return __baltra_pack_float(sign, ey - 150, fx);
}
BALTRA_FUNCTION float fmod(float a, float b) { return __baltra_remainder_float(a, b); }
BALTRA_FUNCTION float ldexp(float a, int n)
{
    n = clamp(n, -400, 400);
    return (float)(a * as_double((ulong)(1023 + n) << 52));
}
BALTRA_FUNCTION float frexp(float a, __private int *exponent)
{
    ulong bits = as_ulong((double)a);
    bool plain = a != 0 && isfinite(a);
    *exponent = plain ? (int)(bits >> 52 & 0x7ff) - 1022 : 0;
    return plain ? (float)as_double((bits & 0x800ffffffffffffful) | 0x3fe0000000000000ul) : a;
}
BALTRA_FUNCTION int ilogb(float a)
{
    return a == 0 ? FP_ILOGB0 : a != a ? FP_ILOGBNAN : isinf(a) ? INT_MAX : (int)(as_ulong((double)a) >> 52 & 0x7ff) - 1023;
}
BALTRA_FUNCTION float logb(float a)
{
    return a == 0 ? as_float(0xff800000u) : !isfinite(a) ? a * a : (float)ilogb(a);
}
BALTRA_FUNCTION float modf(float a, __private float *whole)
{
    *whole = trunc(a);
    return copysign(isinf(a) ? 0.0f : a - *whole, a);
}
BALTRA_FUNCTION float hypot(float a, float b)
{
    if (isinf(a) || isinf(b)) return INFINITY;
    return (float)__baltra_root((double)a * a + (double)b * b);
}

BALTRA_FUNCTION float fract(float a, __private float *whole)
{
    *whole = floor(a);
    return a != a ? a : isinf(a) ? copysign(0.0f, a) : fmin(a - *whole, as_float(0x3f7fffffu));
}
#define BALTRA_LDEXP(N) BALTRA_FUNCTION float##N ldexp(float##N a, int n) { return ldexp(a, (int##N)n); }
#define BALTRA_TRANSCENDENTAL(F) BALTRA_UNARY(float, F, float)
BALTRA_TRANSCENDENTAL(sin) BALTRA_TRANSCENDENTAL(cos) BALTRA_TRANSCENDENTAL(tan) BALTRA_TRANSCENDENTAL(asin)
BALTRA_TRANSCENDENTAL(acos) BALTRA_TRANSCENDENTAL(atan) BALTRA_TRANSCENDENTAL(cbrt) BALTRA_TRANSCENDENTAL(logb)
BALTRA_TRANSCENDENTAL(sinpi) BALTRA_TRANSCENDENTAL(cospi) BALTRA_TRANSCENDENTAL(tanpi) BALTRA_TRANSCENDENTAL(asinpi)
BALTRA_TRANSCENDENTAL(acospi) BALTRA_TRANSCENDENTAL(atanpi) BALTRA_UNARY(int, ilogb, float)
BALTRA_BINARY(float, atan2, float, float) BALTRA_BINARY(float, atan2pi, float, float)
BALTRA_BINARY(float, pow, float, float) BALTRA_BINARY(float, powr, float, float) BALTRA_BINARY(float, pown, float, int)
BALTRA_BINARY(float, fmod, float, float) BALTRA_BINARY(float, ldexp, float, int)
BALTRA_BINARY(float, hypot, float, float) BALTRA_TERNARY(float, fma, float)
BALTRA_LDEXP(2) BALTRA_LDEXP(3) BALTRA_LDEXP(4) BALTRA_LDEXP(8) BALTRA_LDEXP(16)
