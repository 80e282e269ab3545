/* OpenCL C's functions on floats. Included by baltra_builtins.h. */

/* ---- constants of doubles ---- */

/* By their bits or as quotients of integers: with -cl-single-precision-constant, literals are floats. */
#define BALTRA_LN_2 as_double(0x3fe62e42fefa39eful) /* 0.69314718055994530942 */
#define BALTRA_LOG2_E as_double(0x3ff71547652b82feul) /* 1.44269504088896340736 */
#define BALTRA_LOG2_10 as_double(0x400a934f0979a371ul) /* 3.32192809488736234787 */
#define BALTRA_LOG10_E as_double(0x3fdbcb7b1526e50eul) /* 0.43429448190325182765 */
#define BALTRA_SQRT_2 as_double(0x3ff6a09e667f3bcdul) /* 1.41421356237309504880 */
#define BALTRA_PI_2 as_double(0x3ff921fb54442d18ul) /* 1.57079632679489661923 */
#define BALTRA_2_PI as_double(0x3fe45f306dc9c883ul) /* 0.63661977236758134308 */
#define BALTRA_PART(N) ((double)1 / (N))

/* ---- common functions ---- */

/* Of vectors with scalars. */
#define BALTRA_EDGES(T, N)                                                                            \
    BALTRA_FUNCTION T##N step(T edge, T##N a) { return step((T##N)edge, a); }                         \
    BALTRA_FUNCTION T##N mix(T##N a, T##N b, T c) { return mix(a, b, (T##N)c); }                      \
    BALTRA_FUNCTION T##N smoothstep(T low, T high, T##N a) { return smoothstep((T##N)low, (T##N)high, a); }
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
    BALTRA_FUNCTION T degrees(T a) { return a * (T)(90 / BALTRA_PI_2); }                           \
    BALTRA_FUNCTION T radians(T a) { return a * (T)(BALTRA_PI_2 * BALTRA_PART(90)); }                         \
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
    BALTRA_TERNARY(T, smoothstep, T)                                                                  \
    BALTRA_EDGES(T, 2) BALTRA_EDGES(T, 3) BALTRA_EDGES(T, 4) BALTRA_EDGES(T, 8) BALTRA_EDGES(T, 16)   \
    BALTRA_UNARY(T, sign, T) BALTRA_UNARY(T, degrees, T) BALTRA_UNARY(T, radians, T)                  \
    BALTRA_BINARY(T, fdim, T, T)                                                                      \
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

float BALTRA_SHARED __baltra_divide_float(float a, float b)
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

float BALTRA_SHARED __baltra_sqrt_float(float a)
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
BALTRA_UNARY(float, sqrt, float) BALTRA_UNARY(float, rsqrt, float)

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
BALTRA_UNARY(float, trunc, float) BALTRA_UNARY(float, floor, float) BALTRA_UNARY(float, ceil, float)
BALTRA_UNARY(float, round, float) BALTRA_UNARY(float, rint, float)

/* The square root of a double that is zero, normal or infinite. */
BALTRA_FUNCTION double __baltra_root(double a)
{
    if (!(a > 0) || isinf(a)) return a;
    /* a = 4^n m, m in [1, 4). */
    int n = ((int)(as_ulong(a) >> 52) - 1023) & ~1;
    double m = as_double(as_ulong(a) - ((ulong)(long)n << 52)), y = (double)(1.0f / sqrt((float)m));
    y = y * (1.5 - 0.5 * m * y * y);
    m = m * y * (1.5 - 0.5 * m * y * y);
    return as_double(as_ulong(m) + ((ulong)(long)(n >> 1) << 52));
}

/* ---- lengths, with sums of squares as doubles, which do not overflow ---- */

BALTRA_FUNCTION double __baltra_squares(float a) { return (double)a * a; }
BALTRA_FUNCTION double __baltra_squares(float2 a) { return __baltra_squares(a.x) + __baltra_squares(a.y); }
BALTRA_FUNCTION double __baltra_squares(float3 a) { return __baltra_squares(a.xy) + __baltra_squares(a.z); }
BALTRA_FUNCTION double __baltra_squares(float4 a) { return __baltra_squares(a.xy) + __baltra_squares(a.zw); }
/* The difference in double precision, too: that of floats may overflow. */
BALTRA_FUNCTION double __baltra_apart(float a, float b)
{
    double d = (double)a - b;
    return d * d;
}
BALTRA_FUNCTION double __baltra_apart(float2 a, float2 b) { return __baltra_apart(a.x, b.x) + __baltra_apart(a.y, b.y); }
BALTRA_FUNCTION double __baltra_apart(float3 a, float3 b) { return __baltra_apart(a.xy, b.xy) + __baltra_apart(a.z, b.z); }
BALTRA_FUNCTION double __baltra_apart(float4 a, float4 b) { return __baltra_apart(a.xy, b.xy) + __baltra_apart(a.zw, b.zw); }
/* 1 / sqrt(a) of a normal double. */
BALTRA_FUNCTION double __baltra_inverse_root(double a)
{
    int n = ((int)(as_ulong(a) >> 52) - 1023) & ~1;
    double m = as_double(as_ulong(a) - ((ulong)(long)n << 52)), y = (double)(1.0f / sqrt((float)m));
    y = y * (1.5 - 0.5 * m * y * y);
    return as_double(as_ulong(y) - ((ulong)(long)(n >> 1) << 52));
}
/* The direction of infinite elements. */
BALTRA_FUNCTION float __baltra_infinite(float a) { return copysign(isinf(a) ? 1.0f : 0.0f, a); }
BALTRA_UNARY(float, __baltra_infinite, float)
BALTRA_FUNCTION float normalize(float a) { return a == 0 || a != a ? a : copysign(1.0f, a); }
#define BALTRA_NORMALIZE(T, D)                                                                \
    BALTRA_FUNCTION T normalize(T a)                                                                   \
    {                                                                                                  \
        double squares = __baltra_squares(a);                                                          \
        if (isinf(squares)) {                                                                          \
            a = __baltra_infinite(a);                                                                  \
            squares = __baltra_squares(a);                                                             \
        }                                                                                              \
        if (squares != squares) return (T)as_float(0x7fc00000u);                                       \
        return squares == 0 ? a : __builtin_convertvector(__builtin_convertvector(a, D) * __baltra_inverse_root(squares), T); \
    }
BALTRA_NORMALIZE(float2, double2)
BALTRA_NORMALIZE(float3, double3)
BALTRA_NORMALIZE(float4, double4)
#define BALTRA_LENGTHS(T)                                                                              \
    BALTRA_FUNCTION float length(T a) { return (float)__baltra_root(__baltra_squares(a)); }            \
    BALTRA_FUNCTION float distance(T a, T b) { return (float)__baltra_root(__baltra_apart(a, b)); }    \
    BALTRA_FUNCTION float fast_length(T a) { return length(a); }                                       \
    BALTRA_FUNCTION float fast_distance(T a, T b) { return distance(a, b); }                           \
    BALTRA_FUNCTION T fast_normalize(T a) { return normalize(a); }
BALTRA_LENGTHS(float) BALTRA_LENGTHS(float2) BALTRA_LENGTHS(float3) BALTRA_LENGTHS(float4)

/* ---- exponentials and logarithms, computed as doubles ---- */

/* 2^a within the range of doubles. */
static double BALTRA_ROUTINE __baltra_exp2_double(double a)
{
    if (a != a) return a;
    a = a > 1020.0 ? 1020.0 : a < -1020.0 ? -1020.0 : a;
    /* a = n + r, |r| <= 1/2; 2^r as a polynomial with an error below 2^-30. */
    int n = (int)(a + (a < 0 ? -0.5 : 0.5));
    double r = (a - n) * BALTRA_LN_2, sum = BALTRA_PART(3628800);
    sum = sum * r + BALTRA_PART(362880);
    sum = sum * r + BALTRA_PART(40320);
    sum = sum * r + BALTRA_PART(5040);
    sum = sum * r + BALTRA_PART(720);
    sum = sum * r + BALTRA_PART(120);
    sum = sum * r + BALTRA_PART(24);
    sum = sum * r + BALTRA_PART(6);
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    return as_double(as_ulong(sum) + ((ulong)(long)n << 52));
}

/* The logarithm of a positive, normal and finite double. */
static double BALTRA_ROUTINE __baltra_log_double(double a)
{
    /* a = 2^n m, m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m - 1) / (m + 1)). */
    ulong bits = as_ulong(a);
    int n = (int)(bits >> 52) - 1023;
    double m = as_double((bits & 0xffffffffffffful) | 0x3ff0000000000000ul);
    if (m > BALTRA_SQRT_2) {
        m *= 0.5;
        n++;
    }
    /* The quotient of doubles by Newton's method from that of floats. */
    double d = m + 1.0, y = (double)(1.0f / (float)d);
    y = y * (2.0 - d * y);
    y = y * (2.0 - d * y);
    double s = (m - 1.0) * y, q = s * s, sum = BALTRA_PART(15);
    sum = sum * q + BALTRA_PART(13);
    sum = sum * q + BALTRA_PART(11);
    sum = sum * q + BALTRA_PART(9);
    sum = sum * q + BALTRA_PART(7);
    sum = sum * q + BALTRA_PART(5);
    sum = sum * q + BALTRA_PART(3);
    sum = sum * q + 1.0;
    return 2.0 * s * sum + n * BALTRA_LN_2;
}

BALTRA_FUNCTION float exp2(float a) { return (float)__baltra_exp2_double(a); }
BALTRA_FUNCTION float exp(float a) { return (float)__baltra_exp2_double(a * BALTRA_LOG2_E); }
BALTRA_FUNCTION float exp10(float a) { return (float)__baltra_exp2_double(a * BALTRA_LOG2_10); }
BALTRA_FUNCTION double __baltra_log_checked(float a)
{
    return a != a || a < 0 ? as_double(0x7ff8000000000000ul)
           : a == 0       ? as_double(0xfff0000000000000ul)
           : isinf(a)     ? as_double(0x7ff0000000000000ul)
                          : __baltra_log_double(a);
}
BALTRA_FUNCTION float log(float a) { return (float)__baltra_log_checked(a); }
BALTRA_FUNCTION float log2(float a) { return (float)(__baltra_log_checked(a) * BALTRA_LOG2_E); }
BALTRA_FUNCTION float log10(float a) { return (float)(__baltra_log_checked(a) * BALTRA_LOG10_E); }
BALTRA_UNARY(float, exp, float) BALTRA_UNARY(float, exp2, float) BALTRA_UNARY(float, exp10, float)
BALTRA_UNARY(float, log, float) BALTRA_UNARY(float, log2, float) BALTRA_UNARY(float, log10, float)
