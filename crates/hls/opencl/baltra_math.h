/* OpenCL C's functions on floats. Included by baltra_builtins.h. */

/* ---- common functions ---- */

#define BALTRA_FLOAT(T, I, V, F, SIGN)                                                                \
    BALTRA_FUNCTION T fabs(T a) { return F(V(a) & ~SIGN); }                                           \
    BALTRA_FUNCTION T copysign(T a, T b) { return F((V(a) & ~SIGN) | (V(b) & SIGN)); }                \
    BALTRA_FUNCTION T fmin(T a, T b) { return a != a ? b : b < a ? b : a; }                           \
    BALTRA_FUNCTION T fmax(T a, T b) { return a != a ? b : a < b ? b : a; }                           \
    BALTRA_FUNCTION T min(T a, T b) { return b < a ? b : a; }                                         \
    BALTRA_FUNCTION T max(T a, T b) { return a < b ? b : a; }                                         \
    BALTRA_FUNCTION T clamp(T a, T low, T high) { return fmin(fmax(a, low), high); }                  \
    BALTRA_FUNCTION T mad(T a, T b, T c) { return a * b + c; }                                        \
    BALTRA_FUNCTION T mix(T a, T b, T c) { return a + (b - a) * c; }                                  \
    BALTRA_FUNCTION T step(T edge, T a) { return a < edge ? (T)0 : (T)1; }                            \
    BALTRA_FUNCTION T sign(T a) { return a != a ? (T)0 : a > 0 ? (T)1 : a < 0 ? (T)-1 : a; }          \
    BALTRA_FUNCTION T degrees(T a) { return a * (T)57.295779513082320876; }                           \
    BALTRA_FUNCTION T radians(T a) { return a * (T)0.017453292519943295769; }                         \
    BALTRA_FUNCTION T smoothstep(T low, T high, T a)                                                  \
    {                                                                                                 \
        T t = clamp((a - low) / (high - low), (T)0, (T)1);                                            \
        return t * t * ((T)3 - (T)2 * t);                                                             \
    }                                                                                                 \
    BALTRA_FUNCTION T fdim(T a, T b) { return a != a || b != b ? a + b : a > b ? a - b : (T)0; }      \
    BALTRA_FUNCTION T maxmag(T a, T b) { return fabs(a) > fabs(b) ? a : fabs(b) > fabs(a) ? b : fmax(a, b); } \
    BALTRA_FUNCTION T minmag(T a, T b) { return fabs(a) < fabs(b) ? a : fabs(b) < fabs(a) ? b : fmin(a, b); } \
    BALTRA_UNARY(T, fabs, T) BALTRA_BINARY(T, copysign, T, T)                                         \
    BALTRA_BINARY(T, fmin, T, T) BALTRA_BINARY_SCALAR(T, fmin, T)                                     \
    BALTRA_BINARY(T, fmax, T, T) BALTRA_BINARY_SCALAR(T, fmax, T)                                     \
    BALTRA_BINARY(T, min, T, T) BALTRA_BINARY_SCALAR(T, min, T)                                       \
    BALTRA_BINARY(T, max, T, T) BALTRA_BINARY_SCALAR(T, max, T)                                       \
    BALTRA_TERNARY(T, clamp, T) BALTRA_TERNARY_SCALARS(T, clamp, T)                                   \
    BALTRA_TERNARY(T, mad, T) BALTRA_TERNARY(T, mix, T) BALTRA_BINARY(T, step, T, T)                  \
    BALTRA_UNARY(T, sign, T) BALTRA_UNARY(T, degrees, T) BALTRA_UNARY(T, radians, T)                  \
    BALTRA_TERNARY(T, smoothstep, T) BALTRA_BINARY(T, fdim, T, T)                                     \
    BALTRA_BINARY(T, maxmag, T, T) BALTRA_BINARY(T, minmag, T, T)
BALTRA_FLOAT(float, int, as_uint, as_float, 0x80000000u)
BALTRA_FLOAT(double, long, as_ulong, as_double, 0x8000000000000000ul)

#define BALTRA_GEOMETRY(T)                                                                            \
    BALTRA_FUNCTION T dot(T a, T b) { return a * b; }                                                 \
    BALTRA_FUNCTION T dot(T##2 a, T##2 b) { return a.x * b.x + a.y * b.y; }                           \
    BALTRA_FUNCTION T dot(T##3 a, T##3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }               \
    BALTRA_FUNCTION T dot(T##4 a, T##4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }   \
    BALTRA_FUNCTION T##3 cross(T##3 a, T##3 b) { return a.yzx * b.zxy - a.zxy * b.yzx; }              \
    BALTRA_FUNCTION T##4 cross(T##4 a, T##4 b) { return (T##4)(cross(a.xyz, b.xyz), (T)0); }
BALTRA_GEOMETRY(float) BALTRA_GEOMETRY(double)

/* ---- routines, which a kernel has once ---- */

/* A float from sign, exponent of the last bit, and a fraction whose last bit is sticky; rounded to
 * nearest even. The fraction has at least 26 significant bits, or is exact. */
static inline float __baltra_pack_float(uint sign, int exponent, ulong fraction)
{
    if (fraction == 0) return as_float(sign);
    int top = 63 - __builtin_clzl(fraction);
    /* The result's last bit: at most 23 below the first, at least 2^-149. */
    int drop = max(top - 23, -149 - exponent);
    if (drop > 0) {
        if (drop > 62) return as_float(sign);
        ulong rest = fraction & ((1ul << drop) - 1), middle = 1ul << (drop - 1);
        fraction >>= drop;
        fraction += rest > middle || (rest == middle && (fraction & 1));
        exponent += drop;
    } else if (drop < 0) {
        int up = min(-drop, exponent + 149);
        fraction <<= up;
        exponent -= up;
    }
    if (fraction >> 24) {
        fraction >>= 1;
        exponent++;
    }
    if (exponent > 104) return as_float(sign | 0x7f800000u);
    uint biased = fraction >> 23 ? (uint)(exponent + 150) : 0;
    return as_float(sign | biased << 23 | ((uint)fraction & 0x7fffffu));
}

float BALTRA_ROUTINE __baltra_divide_float(float a, float b)
{
    uint x = as_uint(a), y = as_uint(b), sign = (x ^ y) & 0x80000000u;
    x &= 0x7fffffffu;
    y &= 0x7fffffffu;
    if (x > 0x7f800000u || y > 0x7f800000u) return as_float(0x7fc00000u);
    if (x == 0x7f800000u) return as_float(y == 0x7f800000u ? 0x7fc00000u : sign | 0x7f800000u);
    if (y == 0x7f800000u) return as_float(sign);
    if (y == 0) return as_float(x == 0 ? 0x7fc00000u : sign | 0x7f800000u);
    if (x == 0) return as_float(sign);
    uint fx = x & 0x7fffffu, fy = y & 0x7fffffu;
    int ex = x >> 23, ey = y >> 23;
    if (ex != 0) fx |= 0x800000u;
    else ex = 1;
    if (ey != 0) fy |= 0x800000u;
    else ey = 1;
    int zeroes = __builtin_clz(fx) - 8;
    fx <<= zeroes;
    ex -= zeroes;
    zeroes = __builtin_clz(fy) - 8;
    fy <<= zeroes;
    ey -= zeroes;
    ulong wide = (ulong)fx << 27, quotient = wide / fy;
    quotient = quotient << 1 | (quotient * fy != wide);
    return __baltra_pack_float(sign, ex - ey - 28, quotient);
}

float BALTRA_ROUTINE __baltra_sqrt_float(float a)
{
    uint x = as_uint(a);
    if (x == 0x80000000u || x == 0) return a;
    if (x > 0x7f800000u) return as_float(0x7fc00000u);
    if (x == 0x7f800000u) return a;
    int exponent = x >> 23;
    uint fraction = x & 0x7fffffu;
    if (exponent != 0) fraction |= 0x800000u;
    else exponent = 1;
    int zeroes = __builtin_clz(fraction) - 8;
    fraction <<= zeroes;
    exponent -= zeroes + 150;
    /* The radicand has an even exponent and 54 or 55 bits, so that the root has 27. */
    ulong radicand = (ulong)fraction << 30;
    exponent -= 30;
    if (exponent & 1) {
        radicand <<= 1;
        exponent--;
    }
    ulong root = 0, rest = radicand;
    for (ulong bit = 1ul << 54; bit != 0; bit >>= 2) {
        ulong trial = root + bit;
        root >>= 1;
        if (rest >= trial) {
            rest -= trial;
            root += bit;
        }
    }
    return __baltra_pack_float(0, exponent / 2 - 1, root << 1 | (rest != 0));
}

BALTRA_FUNCTION float sqrt(float a) { return __baltra_sqrt_float(a); }
BALTRA_FUNCTION float rsqrt(float a) { return 1.0f / __baltra_sqrt_float(a); }
BALTRA_FUNCTION float native_sqrt(float a) { return __baltra_sqrt_float(a); }
BALTRA_FUNCTION float native_rsqrt(float a) { return 1.0f / __baltra_sqrt_float(a); }
BALTRA_FUNCTION float native_divide(float a, float b) { return a / b; }
BALTRA_FUNCTION float native_recip(float a) { return 1.0f / a; }
BALTRA_FUNCTION float half_divide(float a, float b) { return a / b; }
BALTRA_FUNCTION float half_recip(float a) { return 1.0f / a; }
BALTRA_FUNCTION float half_sqrt(float a) { return __baltra_sqrt_float(a); }
BALTRA_UNARY(float, sqrt, float) BALTRA_UNARY(float, rsqrt, float)
BALTRA_UNARY(float, native_sqrt, float) BALTRA_UNARY(float, native_recip, float)

/* ---- rounding ---- */

BALTRA_FUNCTION float trunc(float a)
{
    uint x = as_uint(a);
    int exponent = (int)(x >> 23 & 0xff) - 127;
    if (exponent >= 23) return a;
    return as_float(exponent < 0 ? x & 0x80000000u : x & ~(0x7fffffu >> exponent));
}
BALTRA_FUNCTION float floor(float a)
{
    float t = trunc(a);
    return t > a ? t - 1.0f : t;
}
BALTRA_FUNCTION float ceil(float a)
{
    float t = trunc(a);
    return t < a ? copysign(t + 1.0f, a) : t;
}
BALTRA_FUNCTION float round(float a)
{
    float t = trunc(a);
    return fabs(a - t) >= 0.5f ? t + copysign(1.0f, a) : t;
}
BALTRA_FUNCTION float rint(float a)
{
    float large = copysign(8388608.0f, a);
    return fabs(a) >= 8388608.0f || a != a ? a : copysign((a + large) - large, a);
}
BALTRA_FUNCTION float fract(float a, __private float *whole)
{
    *whole = floor(a);
    return fmin(a - *whole, as_float(0x3f7fffffu));
}
BALTRA_UNARY(float, trunc, float) BALTRA_UNARY(float, floor, float) BALTRA_UNARY(float, ceil, float)
BALTRA_UNARY(float, round, float) BALTRA_UNARY(float, rint, float)

/* ---- lengths ---- */

BALTRA_FUNCTION float length(float a) { return fabs(a); }
BALTRA_FUNCTION float length(float2 a) { return sqrt(dot(a, a)); }
BALTRA_FUNCTION float length(float3 a) { return sqrt(dot(a, a)); }
BALTRA_FUNCTION float length(float4 a) { return sqrt(dot(a, a)); }
#define BALTRA_LENGTHS(T)                                                         \
    BALTRA_FUNCTION float distance(T a, T b) { return length(a - b); }            \
    BALTRA_FUNCTION T normalize(T a) { float l = length(a); return l == 0 ? a : a / l; } \
    BALTRA_FUNCTION float fast_length(T a) { return length(a); }                  \
    BALTRA_FUNCTION float fast_distance(T a, T b) { return length(a - b); }       \
    BALTRA_FUNCTION T fast_normalize(T a) { return normalize(a); }
BALTRA_LENGTHS(float) BALTRA_LENGTHS(float2) BALTRA_LENGTHS(float3) BALTRA_LENGTHS(float4)

/* ---- exponentials and logarithms, computed as doubles ---- */

float BALTRA_ROUTINE __baltra_exp2_float(double a)
{
    /* a = n + r, |r| <= 1/2; 2^r as a polynomial with an error below 2^-30. */
    if (a != a) return as_float(0x7fc00000u);
    if (a >= 128.0) return as_float(0x7f800000u);
    if (a < -152.0) return 0.0f;
    int n = (int)(a + (a < 0 ? -0.5 : 0.5));
    double r = (a - n) * 0.69314718055994530942, sum = 1.0 / 3628800.0;
    sum = sum * r + 1.0 / 362880.0;
    sum = sum * r + 1.0 / 40320.0;
    sum = sum * r + 1.0 / 5040.0;
    sum = sum * r + 1.0 / 720.0;
    sum = sum * r + 1.0 / 120.0;
    sum = sum * r + 1.0 / 24.0;
    sum = sum * r + 1.0 / 6.0;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    ulong bits = as_ulong(sum);
    return (float)as_double(bits + ((ulong)(long)n << 52));
}

double BALTRA_ROUTINE __baltra_log_double(float a)
{
    /* a = 2^n m, m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m - 1) / (m + 1)). */
    ulong bits = as_ulong((double)a);
    int n = (int)(bits >> 52) - 1023;
    double m = as_double((bits & 0xffffffffffffful) | 0x3ff0000000000000ul);
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        n++;
    }
    /* The quotient of doubles by Newton's method from that of floats. */
    double d = m + 1.0, y = (double)(1.0f / (float)d);
    y = y * (2.0 - d * y);
    y = y * (2.0 - d * y);
    double s = (m - 1.0) * y, q = s * s, sum = 1.0 / 15.0;
    sum = sum * q + 1.0 / 13.0;
    sum = sum * q + 1.0 / 11.0;
    sum = sum * q + 1.0 / 9.0;
    sum = sum * q + 1.0 / 7.0;
    sum = sum * q + 1.0 / 5.0;
    sum = sum * q + 1.0 / 3.0;
    sum = sum * q + 1.0;
    return 2.0 * s * sum + n * 0.69314718055994530942;
}

BALTRA_FUNCTION float exp2(float a) { return __baltra_exp2_float(a); }
BALTRA_FUNCTION float exp(float a) { return __baltra_exp2_float(a * 1.44269504088896340736); }
BALTRA_FUNCTION float exp10(float a) { return __baltra_exp2_float(a * 3.32192809488736234787); }
BALTRA_FUNCTION double __baltra_log_checked(float a)
{
    return a != a || a < 0 ? as_double(0x7ff8000000000000ul)
           : a == 0       ? as_double(0xfff0000000000000ul)
           : isinf(a)     ? as_double(0x7ff0000000000000ul)
                          : __baltra_log_double(a);
}
BALTRA_FUNCTION float log(float a) { return __baltra_log_checked(a); }
BALTRA_FUNCTION float log2(float a) { return __baltra_log_checked(a) * 1.44269504088896340736; }
BALTRA_FUNCTION float log10(float a) { return __baltra_log_checked(a) * 0.43429448190325182765; }
BALTRA_FUNCTION float native_exp(float a) { return exp(a); }
BALTRA_FUNCTION float native_exp2(float a) { return exp2(a); }
BALTRA_FUNCTION float native_log(float a) { return log(a); }
BALTRA_FUNCTION float native_log2(float a) { return log2(a); }
BALTRA_UNARY(float, exp, float) BALTRA_UNARY(float, exp2, float) BALTRA_UNARY(float, exp10, float)
BALTRA_UNARY(float, log, float) BALTRA_UNARY(float, log2, float) BALTRA_UNARY(float, log10, float)
BALTRA_UNARY(float, native_exp, float) BALTRA_UNARY(float, native_log, float)
