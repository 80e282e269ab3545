/*
 * OpenCL C's transcendental functions of floats, computed as doubles. Included after
 * baltra_builtins.h if the program may call one.
 */

/* 1 / a of a double, by Newton's method from the quotient of floats; a is in the range of floats. */
BALTRA_FUNCTION double __baltra_reciprocal(double a)
{
    double y = (double)(1.0f / (float)a);
    y = y * (2.0 - a * y);
    return y * (2.0 - a * y);
}

/* The square root of a double in the range of floats. */
BALTRA_FUNCTION double __baltra_root(double a)
{
    if (a <= 0) return 0;
    double y = (double)(1.0f / sqrt((float)a));
    y = y * (1.5 - 0.5 * a * y * y);
    return a * y * (1.5 - 0.5 * a * y * y);
}

/* ---- sine, cosine, tangent ---- */

/* 2 / pi, behind 32 zeroes. */
__constant uint __baltra_two_over_pi[8] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                           0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

/* A finite argument less the nearest multiple of pi / 2; bits 0 and 1 of `quadrant`: the multiple. */
static inline double __baltra_reduce(float a, __private uint *quadrant)
{
    float size = fabs(a);
    if (size < 65536.0f) {
        int n = (int)(a * 0.63661977236758134308 + (a < 0 ? -0.5 : 0.5));
        *quadrant = n;
        /* pi / 2 in two parts, the first of 33 bits. */
        return (a - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
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
    double r = (double)(long)rest * (1.57079632679489661923 * 5.42101086242752217e-20);
    *quadrant = a < 0 ? -n : n;
    return a < 0 ? -r : r;
}

/* The sine of an argument plus a number of quarter turns. */
double BALTRA_ROUTINE __baltra_sine(float a, uint turns)
{
    if (!isfinite(a)) return as_double(0x7ff8000000000000ul);
    uint quadrant;
    double r = __baltra_reduce(a, &quadrant), q = r * r, value;
    quadrant += turns;
    if (quadrant & 1)
        value = 1.0 + q * (-0.5 + q * (1.0 / 24 + q * (-1.0 / 720 + q * (1.0 / 40320 + q * (-1.0 / 3628800)))));
    else
        value = r + r * q * (-1.0 / 6 + q * (1.0 / 120 + q * (-1.0 / 5040 + q * (1.0 / 362880 + q * (-1.0 / 39916800)))));
    return quadrant & 2 ? -value : value;
}

BALTRA_FUNCTION float sin(float a) { return a == 0 ? a : (float)__baltra_sine(a, 0); }
BALTRA_FUNCTION float cos(float a) { return __baltra_sine(a, 1); }
BALTRA_FUNCTION float tan(float a) { return a == 0 ? a : (float)__baltra_sine(a, 0) / (float)__baltra_sine(a, 1); }
BALTRA_FUNCTION float sincos(float a, __private float *cosine)
{
    *cosine = cos(a);
    return sin(a);
}

/* ---- inverse functions ---- */

/* The arc tangent of y / x, both nonnegative, not both zero, and in the range of floats. */
double BALTRA_ROUTINE __baltra_arc(double y, double x)
{
    /* t = y / x; for t > tan(pi / 8): pi / 4 + atan((t - 1) / (t + 1)). */
    double base = 0;
    if (y > 2.41421356237309504880 * x) {
        double old = y;
        y = -x;
        x = old;
        base = 1.57079632679489661923;
    } else if (y > 0.41421356237309504880 * x) {
        double old = y;
        y = y - x;
        x = x + old;
        base = 0.78539816339744830962;
    }
    double t = y * __baltra_reciprocal(x), q = t * t, sum = 1.0 / 21;
    sum = sum * -q + 1.0 / 19;
    sum = sum * -q + 1.0 / 17;
    sum = sum * -q + 1.0 / 15;
    sum = sum * -q + 1.0 / 13;
    sum = sum * -q + 1.0 / 11;
    sum = sum * -q + 1.0 / 9;
    sum = sum * -q + 1.0 / 7;
    sum = sum * -q + 1.0 / 5;
    sum = sum * -q + 1.0 / 3;
    return base + t - t * q * sum;
}

BALTRA_FUNCTION float atan(float a)
{
    if (a != a || a == 0) return a;
    double size = fabs(a);
    return copysign(size > 1e20 ? 1.57079632679489661923f : (float)__baltra_arc(size, 1.0), a);
}
BALTRA_FUNCTION float atan2(float y, float x)
{
    if (x != x || y != y) return as_float(0x7fc00000u);
    double u = fabs(y), v = fabs(x), angle;
    if (isinf(y)) angle = isinf(x) ? 0.78539816339744830962 : 1.57079632679489661923;
    else if (u == 0 || isinf(x)) angle = 0;
    else if (v == 0) angle = 1.57079632679489661923;
    else {
        /* Only the quotient matters; scaled into the middle of the range. */
        ulong scale = (as_ulong(u > v ? u : v) & 0x7ff0000000000000ul);
        double by = as_double(0x7fe0000000000000ul - scale);
        u *= by;
        v *= by;
        angle = v < 1e-30 ? 1.57079632679489661923
                : u < 1e-30 ? (double)((float)u / (float)v)
                            : __baltra_arc(u, v);
    }
    if (signbit(x)) angle = 3.14159265358979323846 - angle;
    return copysign((float)angle, y);
}
BALTRA_FUNCTION float asin(float a)
{
    double size = fabs(a);
    if (a == 0) return a;
    if (!(size <= 1)) return as_float(0x7fc00000u);
    return copysign((float)__baltra_arc(size, __baltra_root((1.0 - size) * (1.0 + size))), a);
}
BALTRA_FUNCTION float acos(float a)
{
    double size = fabs(a);
    if (!(size <= 1)) return as_float(0x7fc00000u);
    double angle = __baltra_arc(__baltra_root((1.0 - size) * (1.0 + size)), size);
    return a < 0 ? 3.14159265358979323846 - angle : angle;
}

/* ---- powers ---- */

BALTRA_FUNCTION float powr(float x, float y)
{
    if (!(x >= 0) || y != y) return as_float(0x7fc00000u);
    if (x == 1) return isinf(y) ? as_float(0x7fc00000u) : 1.0f;
    if (y == 0) return x == 0 || isinf(x) ? as_float(0x7fc00000u) : 1.0f;
    if (x == 0) return y < 0 ? as_float(0x7f800000u) : 0.0f;
    if (isinf(x)) return y < 0 ? 0.0f : as_float(0x7f800000u);
    return __baltra_exp2_float(y * (__baltra_log_double(x) * 1.44269504088896340736));
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
    else value = __baltra_exp2_float(y * (__baltra_log_double(size) * 1.44269504088896340736));
    return odd && signbit(x) ? -value : value;
}
BALTRA_FUNCTION float pown(float x, int y)
{
    if (y == 0) return 1.0f;
    float size = fabs(x), value;
    if (x != x) return x;
    if (size == 0) value = y < 0 ? as_float(0x7f800000u) : 0.0f;
    else if (isinf(x)) value = y < 0 ? 0.0f : as_float(0x7f800000u);
    else value = __baltra_exp2_float(y * (__baltra_log_double(size) * 1.44269504088896340736));
    return (y & 1) && signbit(x) ? -value : value;
}
BALTRA_FUNCTION float cbrt(float a)
{
    if (a == 0 || !isfinite(a)) return a;
    return copysign(__baltra_exp2_float(__baltra_log_double(fabs(a)) * (1.44269504088896340736 / 3.0)), a);
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
float BALTRA_ROUTINE __baltra_remainder_float(float a, float b)
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
    if (isinf(a) || isinf(b)) return as_float(0x7f800000u);
    if (a != a || b != b) return as_float(0x7fc00000u);
    double x = fabs(a), y = fabs(b);
    if (x == 0 && y == 0) return 0;
    /* Scaled, so that the larger one is from 1 to 2. */
    ulong scale = as_ulong(x > y ? x : y) & 0x7ff0000000000000ul;
    double by = as_double(0x7fe0000000000000ul - scale);
    x *= by;
    y *= by;
    return (float)(as_double(scale) * __baltra_root(x * x + y * y));
}

BALTRA_FUNCTION float native_sin(float a) { return sin(a); }
BALTRA_FUNCTION float native_cos(float a) { return cos(a); }
BALTRA_FUNCTION float native_tan(float a) { return tan(a); }
BALTRA_FUNCTION float native_powr(float x, float y) { return powr(x, y); }
BALTRA_FUNCTION float half_sin(float a) { return sin(a); }
BALTRA_FUNCTION float half_cos(float a) { return cos(a); }
#define BALTRA_TRANSCENDENTAL(F) BALTRA_UNARY(float, F, float)
BALTRA_TRANSCENDENTAL(sin) BALTRA_TRANSCENDENTAL(cos) BALTRA_TRANSCENDENTAL(tan) BALTRA_TRANSCENDENTAL(asin)
BALTRA_TRANSCENDENTAL(acos) BALTRA_TRANSCENDENTAL(atan) BALTRA_TRANSCENDENTAL(cbrt) BALTRA_TRANSCENDENTAL(logb)
BALTRA_TRANSCENDENTAL(native_sin) BALTRA_TRANSCENDENTAL(native_cos) BALTRA_UNARY(int, ilogb, float)
BALTRA_BINARY(float, atan2, float, float) BALTRA_BINARY(float, pow, float, float) BALTRA_BINARY(float, powr, float, float)
BALTRA_BINARY(float, pown, float, int) BALTRA_BINARY(float, fmod, float, float) BALTRA_BINARY(float, ldexp, float, int)
BALTRA_BINARY(float, hypot, float, float) BALTRA_TERNARY(float, fma, float)
