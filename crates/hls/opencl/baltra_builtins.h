/*
 * OpenCL C's built-in functions for kernels that become hardware. Included before the program.
 *
 * Functions that begin with __baltra_ are the kernel's logic (crates/hls/src/ir.rs: EngineCall), or
 * routines of this file that the synthesis calls for division of floats. The latter are not
 * inlined, so that a kernel has one copy of each.
 */
#include <opencl-c-base.h>

#define BALTRA_CONSTANT __attribute__((const))
/* The first argument is a constant; clang must not merge two calls into one of a variable. */
#define BALTRA_OF_CONSTANT __attribute__((const, nomerge))
#define BALTRA_FUNCTION static inline __attribute__((overloadable, always_inline, unused))
#define BALTRA_ROUTINE __attribute__((noinline))
/* Routines that the synthesis calls; objects that are linked share them. */
#ifdef BALTRA_OBJECT
#define BALTRA_SHARED __attribute__((noinline, weak))
#else
#define BALTRA_SHARED __attribute__((noinline))
#endif

/* ---- the kernel's logic ---- */

uint BALTRA_OF_CONSTANT __baltra_local_id(uint dimension);
uint BALTRA_OF_CONSTANT __baltra_group_id(uint dimension);
uint BALTRA_OF_CONSTANT __baltra_global_id(uint dimension);
/* A word of the argument block, from a bit on. */
uint BALTRA_OF_CONSTANT __baltra_word(uint word, uint low);
/* Not merged: the end of a branch is not a barrier of the other one. */
void __attribute__((convergent, nomerge)) __baltra_barrier(void);
void __baltra_text(uint character);
/* Earlier writes of buffers become visible to other kernels, and theirs to this one. */
void __attribute__((convergent, nomerge)) __baltra_fence(void);
#define CLK_CHANNEL_MEM_FENCE 0x10

/* ---- work-items ---- */

#define BALTRA_DIMENSION(x, y, z, other) (d == 0 ? (x) : d == 1 ? (y) : d == 2 ? (z) : (other))

BALTRA_FUNCTION uint get_work_dim(void) { return __baltra_word(9, 0); }
BALTRA_FUNCTION size_t get_global_id(uint d)
{
    return BALTRA_DIMENSION(__baltra_global_id(0), __baltra_global_id(1), __baltra_global_id(2), 0u);
}
BALTRA_FUNCTION size_t get_local_id(uint d)
{
    return BALTRA_DIMENSION(__baltra_local_id(0), __baltra_local_id(1), __baltra_local_id(2), 0u);
}
BALTRA_FUNCTION size_t get_group_id(uint d)
{
    return BALTRA_DIMENSION(__baltra_group_id(0), __baltra_group_id(1), __baltra_group_id(2), 0u);
}
BALTRA_FUNCTION size_t get_global_size(uint d)
{
    return BALTRA_DIMENSION(__baltra_word(0, 0), __baltra_word(1, 0), __baltra_word(2, 0), 1u);
}
BALTRA_FUNCTION size_t get_global_offset(uint d)
{
    return BALTRA_DIMENSION(__baltra_word(3, 0), __baltra_word(4, 0), __baltra_word(5, 0), 0u);
}
BALTRA_FUNCTION size_t get_local_size(uint d)
{
    return BALTRA_DIMENSION(__baltra_word(6, 0), __baltra_word(7, 0), __baltra_word(8, 0), 1u);
}
BALTRA_FUNCTION size_t get_num_groups(uint d) { return (uint)get_global_size(d) / (uint)get_local_size(d); }
BALTRA_FUNCTION size_t get_enqueued_local_size(uint d) { return get_local_size(d); }
BALTRA_FUNCTION size_t get_local_linear_id(void)
{
    return ((uint)get_local_id(2) * (uint)get_local_size(1) + (uint)get_local_id(1)) * (uint)get_local_size(0) +
           (uint)get_local_id(0);
}
BALTRA_FUNCTION size_t get_global_linear_id(void)
{
    uint x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1),
         z = get_global_id(2) - get_global_offset(2);
    return (z * (uint)get_global_size(1) + y) * (uint)get_global_size(0) + x;
}

/* ---- synchronization: work-items are executed one after another up to a barrier ---- */

BALTRA_FUNCTION void barrier(cl_mem_fence_flags flags) { __baltra_barrier(); }
BALTRA_FUNCTION void work_group_barrier(cl_mem_fence_flags flags) { __baltra_barrier(); }
/* Fences order accesses of kernels that exchange elements of channels, if they name channels. */
BALTRA_FUNCTION void mem_fence(cl_mem_fence_flags flags)
{
    if (flags & CLK_CHANNEL_MEM_FENCE) __baltra_fence();
}
BALTRA_FUNCTION void read_mem_fence(cl_mem_fence_flags flags) { mem_fence(flags); }
BALTRA_FUNCTION void write_mem_fence(cl_mem_fence_flags flags) { mem_fence(flags); }

/* ---- vectors: functions by element ---- */

#define BALTRA_UNARY(R, F, T)                                                      \
    BALTRA_FUNCTION R##2 F(T##2 a) { return (R##2)(F(a.x), F(a.y)); }              \
    BALTRA_FUNCTION R##3 F(T##3 a) { return (R##3)(F(a.x), F(a.y), F(a.z)); }      \
    BALTRA_FUNCTION R##4 F(T##4 a) { return (R##4)(F(a.lo), F(a.hi)); }            \
    BALTRA_FUNCTION R##8 F(T##8 a) { return (R##8)(F(a.lo), F(a.hi)); }            \
    BALTRA_FUNCTION R##16 F(T##16 a) { return (R##16)(F(a.lo), F(a.hi)); }
#define BALTRA_BINARY(R, F, T, U)                                                                        \
    BALTRA_FUNCTION R##2 F(T##2 a, U##2 b) { return (R##2)(F(a.x, b.x), F(a.y, b.y)); }                  \
    BALTRA_FUNCTION R##3 F(T##3 a, U##3 b) { return (R##3)(F(a.x, b.x), F(a.y, b.y), F(a.z, b.z)); }     \
    BALTRA_FUNCTION R##4 F(T##4 a, U##4 b) { return (R##4)(F(a.lo, b.lo), F(a.hi, b.hi)); }              \
    BALTRA_FUNCTION R##8 F(T##8 a, U##8 b) { return (R##8)(F(a.lo, b.lo), F(a.hi, b.hi)); }              \
    BALTRA_FUNCTION R##16 F(T##16 a, U##16 b) { return (R##16)(F(a.lo, b.lo), F(a.hi, b.hi)); }
/* The second operand is a scalar. */
#define BALTRA_BINARY_SCALAR(R, F, T)                                        \
    BALTRA_FUNCTION R##2 F(T##2 a, T b) { return F(a, (T##2)b); }            \
    BALTRA_FUNCTION R##3 F(T##3 a, T b) { return F(a, (T##3)b); }            \
    BALTRA_FUNCTION R##4 F(T##4 a, T b) { return F(a, (T##4)b); }            \
    BALTRA_FUNCTION R##8 F(T##8 a, T b) { return F(a, (T##8)b); }            \
    BALTRA_FUNCTION R##16 F(T##16 a, T b) { return F(a, (T##16)b); }
#define BALTRA_TERNARY(R, F, T)                                                                            \
    BALTRA_FUNCTION R##2 F(T##2 a, T##2 b, T##2 c) { return (R##2)(F(a.x, b.x, c.x), F(a.y, b.y, c.y)); }  \
    BALTRA_FUNCTION R##3 F(T##3 a, T##3 b, T##3 c)                                                         \
    {                                                                                                      \
        return (R##3)(F(a.x, b.x, c.x), F(a.y, b.y, c.y), F(a.z, b.z, c.z));                               \
    }                                                                                                      \
    BALTRA_FUNCTION R##4 F(T##4 a, T##4 b, T##4 c) { return (R##4)(F(a.lo, b.lo, c.lo), F(a.hi, b.hi, c.hi)); } \
    BALTRA_FUNCTION R##8 F(T##8 a, T##8 b, T##8 c) { return (R##8)(F(a.lo, b.lo, c.lo), F(a.hi, b.hi, c.hi)); } \
    BALTRA_FUNCTION R##16 F(T##16 a, T##16 b, T##16 c)                                                     \
    {                                                                                                      \
        return (R##16)(F(a.lo, b.lo, c.lo), F(a.hi, b.hi, c.hi));                                          \
    }
#define BALTRA_TERNARY_SCALARS(R, F, T)                                                 \
    BALTRA_FUNCTION R##2 F(T##2 a, T b, T c) { return F(a, (T##2)b, (T##2)c); }         \
    BALTRA_FUNCTION R##3 F(T##3 a, T b, T c) { return F(a, (T##3)b, (T##3)c); }         \
    BALTRA_FUNCTION R##4 F(T##4 a, T b, T c) { return F(a, (T##4)b, (T##4)c); }         \
    BALTRA_FUNCTION R##8 F(T##8 a, T b, T c) { return F(a, (T##8)b, (T##8)c); }         \
    BALTRA_FUNCTION R##16 F(T##16 a, T b, T c) { return F(a, (T##16)b, (T##16)c); }

#define BALTRA_INTEGERS(M)                                                                         \
    M(char, uchar, 8) M(uchar, uchar, 8) M(short, ushort, 16) M(ushort, ushort, 16) M(int, uint, 32) \
    M(uint, uint, 32) M(long, ulong, 64) M(ulong, ulong, 64)

/* ---- integers ---- */

/* The largest number of a type. */
#define BALTRA_MOST(T, U) ((T)((T)-1 > 0 ? (U)-1 : (U)((U)-1) >> 1))

#define BALTRA_INTEGER(T, U, BITS)                                                        \
    BALTRA_FUNCTION T min(T a, T b) { return b < a ? b : a; }                             \
    BALTRA_FUNCTION T max(T a, T b) { return a < b ? b : a; }                             \
    BALTRA_FUNCTION T clamp(T a, T low, T high) { return min(max(a, low), high); }        \
    BALTRA_FUNCTION U abs(T a) { return a < 0 ? -(U)a : (U)a; }                           \
    BALTRA_FUNCTION U abs_diff(T a, T b) { return a > b ? (U)a - (U)b : (U)b - (U)a; }    \
    BALTRA_FUNCTION T add_sat(T a, T b)                                                   \
    {                                                                                     \
        T sum = (U)a + (U)b, most = BALTRA_MOST(T, U);                                    \
        if ((T)-1 > 0) return sum < a ? most : sum;                                       \
        return (T)((a ^ sum) & (b ^ sum)) < 0 ? (a < 0 ? (T)(-most - 1) : most) : sum;    \
    }                                                                                     \
    BALTRA_FUNCTION T sub_sat(T a, T b)                                                   \
    {                                                                                     \
        T rest = (U)a - (U)b, most = BALTRA_MOST(T, U);                                   \
        if ((T)-1 > 0) return a < b ? (T)0 : rest;                                        \
        return (T)((a ^ b) & (a ^ rest)) < 0 ? (a < 0 ? (T)(-most - 1) : most) : rest;    \
    }                                                                                     \
    BALTRA_FUNCTION T hadd(T a, T b) { return (a >> 1) + (b >> 1) + (a & b & 1); }        \
    BALTRA_FUNCTION T rhadd(T a, T b) { return (a >> 1) + (b >> 1) + ((a | b) & 1); }     \
    BALTRA_FUNCTION T rotate(T a, T b)                                                    \
    {                                                                                     \
        U n = (U)b & (BITS - 1);                                                          \
        return (U)((U)a << n) | (U)a >> ((BITS - n) & (BITS - 1));                        \
    }                                                                                     \
    BALTRA_FUNCTION T clz(T a)                                                            \
    {                                                                                     \
        return BITS == 64 ? (a == 0 ? 64 : __builtin_clzl(a))                             \
                          : (a == 0 ? BITS : __builtin_clz((uint)(U)a) - (32 - (BITS & 63))); \
    }                                                                                     \
    BALTRA_FUNCTION T ctz(T a)                                                            \
    {                                                                                     \
        return a == 0 ? BITS : BITS == 64 ? __builtin_ctzl(a) : __builtin_ctz((uint)(U)a); \
    }                                                                                     \
    BALTRA_FUNCTION T popcount(T a) { return __builtin_popcountl((ulong)(U)a); }          \
    BALTRA_BINARY(T, min, T, T) BALTRA_BINARY_SCALAR(T, min, T)                           \
    BALTRA_BINARY(T, max, T, T) BALTRA_BINARY_SCALAR(T, max, T)                           \
    BALTRA_TERNARY(T, clamp, T) BALTRA_TERNARY_SCALARS(T, clamp, T)                       \
    BALTRA_UNARY(U, abs, T) BALTRA_BINARY(U, abs_diff, T, T)                              \
    BALTRA_BINARY(T, add_sat, T, T) BALTRA_BINARY(T, sub_sat, T, T)                       \
    BALTRA_BINARY(T, hadd, T, T) BALTRA_BINARY(T, rhadd, T, T) BALTRA_BINARY(T, rotate, T, T) \
    BALTRA_UNARY(T, clz, T) BALTRA_UNARY(T, ctz, T) BALTRA_UNARY(T, popcount, T)
BALTRA_INTEGERS(BALTRA_INTEGER)

BALTRA_FUNCTION char mul_hi(char a, char b) { return ((int)a * b) >> 8; }
BALTRA_FUNCTION uchar mul_hi(uchar a, uchar b) { return ((uint)a * b) >> 8; }
BALTRA_FUNCTION short mul_hi(short a, short b) { return ((int)a * b) >> 16; }
BALTRA_FUNCTION ushort mul_hi(ushort a, ushort b) { return ((uint)a * b) >> 16; }
BALTRA_FUNCTION int mul_hi(int a, int b) { return ((long)a * b) >> 32; }
BALTRA_FUNCTION uint mul_hi(uint a, uint b) { return ((ulong)a * b) >> 32; }
BALTRA_FUNCTION ulong mul_hi(ulong a, ulong b)
{
    ulong low = (a & 0xffffffff) * (b & 0xffffffff), left = (a >> 32) * (b & 0xffffffff),
          right = (a & 0xffffffff) * (b >> 32), high = (a >> 32) * (b >> 32);
    ulong middle = (low >> 32) + (left & 0xffffffff) + (right & 0xffffffff);
    return high + (left >> 32) + (right >> 32) + (middle >> 32);
}
BALTRA_FUNCTION long mul_hi(long a, long b)
{
    return mul_hi((ulong)a, (ulong)b) - (a < 0 ? (ulong)b : 0) - (b < 0 ? (ulong)a : 0);
}
#define BALTRA_MULTIPLY_HIGH(T, U, BITS)                                      \
    BALTRA_BINARY(T, mul_hi, T, T)                                            \
    BALTRA_FUNCTION T mad_hi(T a, T b, T c) { return mul_hi(a, b) + c; }      \
    BALTRA_FUNCTION T mad_sat(T a, T b, T c)                                  \
    {                                                                         \
        T low = a * b, high = mul_hi(a, b), none = (T)-1 > 0 ? 0 : low >> (BITS - 1); \
        T most = (T)-1 > 0 ? (T)-1 : (T)((U)-1 >> 1), least = (T)-1 > 0 ? 0 : (T)(-most - 1); \
        if (high == none) return add_sat(low, c);                             \
        /* The product is out of range; the sum may be in range if signs differ. */ \
        U sum = (U)low + (U)c;                                                \
        T carry = high + ((T)-1 > 0 ? 0 : c >> (BITS - 1)) + (sum < (U)low);  \
        T sign = (T)-1 > 0 ? 0 : (T)sum >> (BITS - 1);                        \
        return carry == sign && (T)-1 < 0 ? (T)sum : carry < 0 ? least : most; \
    }                                                                         \
    BALTRA_TERNARY(T, mad_hi, T) BALTRA_TERNARY(T, mad_sat, T)
BALTRA_INTEGERS(BALTRA_MULTIPLY_HIGH)

BALTRA_FUNCTION short upsample(char a, uchar b) { return (short)a << 8 | b; }
BALTRA_FUNCTION ushort upsample(uchar a, uchar b) { return (ushort)a << 8 | b; }
BALTRA_FUNCTION int upsample(short a, ushort b) { return (int)a << 16 | b; }
BALTRA_FUNCTION uint upsample(ushort a, ushort b) { return (uint)a << 16 | b; }
BALTRA_FUNCTION long upsample(int a, uint b) { return (long)a << 32 | b; }
BALTRA_FUNCTION ulong upsample(uint a, uint b) { return (ulong)a << 32 | b; }
BALTRA_BINARY(short, upsample, char, uchar) BALTRA_BINARY(ushort, upsample, uchar, uchar)
BALTRA_BINARY(int, upsample, short, ushort) BALTRA_BINARY(uint, upsample, ushort, ushort)
BALTRA_BINARY(long, upsample, int, uint) BALTRA_BINARY(ulong, upsample, uint, uint)

#define BALTRA_24(T)                                                    \
    BALTRA_FUNCTION T mul24(T a, T b) { return a * b; }                 \
    BALTRA_FUNCTION T mad24(T a, T b, T c) { return a * b + c; }        \
    BALTRA_BINARY(T, mul24, T, T) BALTRA_TERNARY(T, mad24, T)
BALTRA_24(int) BALTRA_24(uint)

/* ---- conversions ---- */

/* From a type to another with saturation: values outside of the range become its limits. */
#define BALTRA_SATURATE_SIGNED(D, LOW, HIGH)                                                                \
    BALTRA_FUNCTION D __baltra_sat_##D(long a) { return a < (long)(LOW) ? (D)(LOW) : a > (long)(HIGH) ? (D)(HIGH) : (D)a; } \
    BALTRA_FUNCTION D __baltra_sat_##D(ulong a) { return a > (ulong)(HIGH) ? (D)(HIGH) : (D)a; }            \
    BALTRA_FUNCTION D __baltra_sat_##D(double a)                                                            \
    {                                                                                                       \
        return a != a ? (D)0 : a <= (double)(LOW) ? (D)(LOW) : a >= (double)(HIGH) ? (D)(HIGH) : (D)a;      \
    }                                                                                                       \
    BALTRA_FUNCTION D __baltra_sat_##D(float a)                                                             \
    {                                                                                                       \
        return a != a ? (D)0 : a <= (float)(LOW) ? (D)(LOW) : a >= (float)(HIGH) ? (D)(HIGH) : (D)a;        \
    }                                                                                                       \
    BALTRA_FUNCTION D __baltra_sat_##D(char a) { return __baltra_sat_##D((long)a); }                        \
    BALTRA_FUNCTION D __baltra_sat_##D(short a) { return __baltra_sat_##D((long)a); }                       \
    BALTRA_FUNCTION D __baltra_sat_##D(int a) { return __baltra_sat_##D((long)a); }                         \
    BALTRA_FUNCTION D __baltra_sat_##D(uchar a) { return __baltra_sat_##D((ulong)a); }                      \
    BALTRA_FUNCTION D __baltra_sat_##D(ushort a) { return __baltra_sat_##D((ulong)a); }                     \
    BALTRA_FUNCTION D __baltra_sat_##D(uint a) { return __baltra_sat_##D((ulong)a); }
BALTRA_SATURATE_SIGNED(char, CHAR_MIN, CHAR_MAX)
BALTRA_SATURATE_SIGNED(uchar, 0, UCHAR_MAX)
BALTRA_SATURATE_SIGNED(short, SHRT_MIN, SHRT_MAX)
BALTRA_SATURATE_SIGNED(ushort, 0, USHRT_MAX)
BALTRA_SATURATE_SIGNED(int, INT_MIN, INT_MAX)
BALTRA_FUNCTION uint __baltra_sat_uint(long a) { return a < 0 ? 0 : a > (long)UINT_MAX ? UINT_MAX : (uint)a; }
BALTRA_FUNCTION uint __baltra_sat_uint(ulong a) { return a > UINT_MAX ? UINT_MAX : (uint)a; }
BALTRA_FUNCTION long __baltra_sat_long(long a) { return a; }
BALTRA_FUNCTION long __baltra_sat_long(ulong a) { return a > LONG_MAX ? LONG_MAX : (long)a; }
BALTRA_FUNCTION ulong __baltra_sat_ulong(long a) { return a < 0 ? 0 : (ulong)a; }
BALTRA_FUNCTION ulong __baltra_sat_ulong(ulong a) { return a; }
#define BALTRA_SATURATE_WIDE(D, LOW, HIGH, F)                                                                \
    BALTRA_FUNCTION D __baltra_sat_##D(F a)                                                                  \
    {                                                                                                        \
        return a != a ? (D)0 : a <= (F)(LOW) ? (D)(LOW) : a >= (F)(HIGH) ? (D)(HIGH) : (D)a;                 \
    }
#define BALTRA_SATURATE_NARROW(D)                                                                            \
    BALTRA_FUNCTION D __baltra_sat_##D(char a) { return __baltra_sat_##D((long)a); }                         \
    BALTRA_FUNCTION D __baltra_sat_##D(short a) { return __baltra_sat_##D((long)a); }                        \
    BALTRA_FUNCTION D __baltra_sat_##D(int a) { return __baltra_sat_##D((long)a); }                          \
    BALTRA_FUNCTION D __baltra_sat_##D(uchar a) { return __baltra_sat_##D((ulong)a); }                       \
    BALTRA_FUNCTION D __baltra_sat_##D(ushort a) { return __baltra_sat_##D((ulong)a); }                      \
    BALTRA_FUNCTION D __baltra_sat_##D(uint a) { return __baltra_sat_##D((ulong)a); }
BALTRA_SATURATE_WIDE(uint, 0, UINT_MAX, float) BALTRA_SATURATE_WIDE(uint, 0, UINT_MAX, double)
BALTRA_SATURATE_WIDE(long, LONG_MIN, LONG_MAX, float) BALTRA_SATURATE_WIDE(long, LONG_MIN, LONG_MAX, double)
BALTRA_SATURATE_WIDE(ulong, 0, ULONG_MAX, float) BALTRA_SATURATE_WIDE(ulong, 0, ULONG_MAX, double)
BALTRA_SATURATE_NARROW(uint) BALTRA_SATURATE_NARROW(long) BALTRA_SATURATE_NARROW(ulong)

#define BALTRA_CONVERT(D, S)                                                                               \
    BALTRA_FUNCTION D convert_##D(S a) { return (D)a; }                                                    \
    BALTRA_FUNCTION D##2 convert_##D##2(S##2 a) { return __builtin_convertvector(a, D##2); }               \
    BALTRA_FUNCTION D##3 convert_##D##3(S##3 a) { return __builtin_convertvector(a, D##3); }               \
    BALTRA_FUNCTION D##4 convert_##D##4(S##4 a) { return __builtin_convertvector(a, D##4); }               \
    BALTRA_FUNCTION D##8 convert_##D##8(S##8 a) { return __builtin_convertvector(a, D##8); }               \
    BALTRA_FUNCTION D##16 convert_##D##16(S##16 a) { return __builtin_convertvector(a, D##16); }
#define BALTRA_CONVERT_SAT(D, S)                                                                           \
    BALTRA_FUNCTION D convert_##D##_sat(S a) { return __baltra_sat_##D(a); }                               \
    BALTRA_FUNCTION D##2 convert_##D##2_sat(S##2 a) { return (D##2)(__baltra_sat_##D(a.x), __baltra_sat_##D(a.y)); } \
    BALTRA_FUNCTION D##3 convert_##D##3_sat(S##3 a)                                                        \
    {                                                                                                      \
        return (D##3)(convert_##D##2_sat(a.xy), __baltra_sat_##D(a.z));                                    \
    }                                                                                                      \
    BALTRA_FUNCTION D##4 convert_##D##4_sat(S##4 a) { return (D##4)(convert_##D##2_sat(a.lo), convert_##D##2_sat(a.hi)); } \
    BALTRA_FUNCTION D##8 convert_##D##8_sat(S##8 a) { return (D##8)(convert_##D##4_sat(a.lo), convert_##D##4_sat(a.hi)); } \
    BALTRA_FUNCTION D##16 convert_##D##16_sat(S##16 a)                                                     \
    {                                                                                                      \
        return (D##16)(convert_##D##8_sat(a.lo), convert_##D##8_sat(a.hi));                                \
    }
#define BALTRA_SOURCES(M, D) \
    M(D, char) M(D, uchar) M(D, short) M(D, ushort) M(D, int) M(D, uint) M(D, long) M(D, ulong) M(D, float) M(D, double)
#define BALTRA_CONVERSIONS(D) BALTRA_SOURCES(BALTRA_CONVERT, D) BALTRA_SOURCES(BALTRA_CONVERT_SAT, D)
BALTRA_CONVERSIONS(char) BALTRA_CONVERSIONS(uchar) BALTRA_CONVERSIONS(short) BALTRA_CONVERSIONS(ushort)
BALTRA_CONVERSIONS(int) BALTRA_CONVERSIONS(uint) BALTRA_CONVERSIONS(long) BALTRA_CONVERSIONS(ulong)
BALTRA_SOURCES(BALTRA_CONVERT, float) BALTRA_SOURCES(BALTRA_CONVERT, double)

/* ---- vectors in memory ---- */

#define BALTRA_MEMORY_OF(T, SPACE, CONST)                                                                       \
    BALTRA_FUNCTION T##2 vload2(size_t i, const SPACE T *p) { p += i * 2; return (T##2)(p[0], p[1]); }          \
    BALTRA_FUNCTION T##3 vload3(size_t i, const SPACE T *p) { p += i * 3; return (T##3)(p[0], p[1], p[2]); }    \
    BALTRA_FUNCTION T##4 vload4(size_t i, const SPACE T *p) { p += i * 4; return (T##4)(vload2(0, p), vload2(1, p)); } \
    BALTRA_FUNCTION T##8 vload8(size_t i, const SPACE T *p) { p += i * 8; return (T##8)(vload4(0, p), vload4(1, p)); } \
    BALTRA_FUNCTION T##16 vload16(size_t i, const SPACE T *p) { p += i * 16; return (T##16)(vload8(0, p), vload8(1, p)); }
#define BALTRA_STORE_OF(T, SPACE)                                                                               \
    BALTRA_FUNCTION void vstore2(T##2 v, size_t i, SPACE T *p) { p += i * 2; p[0] = v.x; p[1] = v.y; }          \
    BALTRA_FUNCTION void vstore3(T##3 v, size_t i, SPACE T *p) { p += i * 3; p[0] = v.x; p[1] = v.y; p[2] = v.z; } \
    BALTRA_FUNCTION void vstore4(T##4 v, size_t i, SPACE T *p) { p += i * 4; vstore2(v.lo, 0, p); vstore2(v.hi, 1, p); } \
    BALTRA_FUNCTION void vstore8(T##8 v, size_t i, SPACE T *p) { p += i * 8; vstore4(v.lo, 0, p); vstore4(v.hi, 1, p); } \
    BALTRA_FUNCTION void vstore16(T##16 v, size_t i, SPACE T *p) { p += i * 16; vstore8(v.lo, 0, p); vstore8(v.hi, 1, p); }
#define BALTRA_MEMORY(T)                                                                                    \
    BALTRA_MEMORY_OF(T, __global, ) BALTRA_MEMORY_OF(T, __local, ) BALTRA_MEMORY_OF(T, __private, )         \
    BALTRA_MEMORY_OF(T, __constant, )                                                                       \
    BALTRA_STORE_OF(T, __global) BALTRA_STORE_OF(T, __local) BALTRA_STORE_OF(T, __private)
BALTRA_MEMORY(char) BALTRA_MEMORY(uchar) BALTRA_MEMORY(short) BALTRA_MEMORY(ushort) BALTRA_MEMORY(int)
BALTRA_MEMORY(uint) BALTRA_MEMORY(long) BALTRA_MEMORY(ulong) BALTRA_MEMORY(float) BALTRA_MEMORY(double)

/* ---- atomic functions: no work-item is executed between their load and their store ---- */

#define BALTRA_ATOMIC(NAME, T, SPACE, NEW)                                             \
    BALTRA_FUNCTION T atomic_##NAME(volatile SPACE T *p, T v) { T old = *p; *p = NEW; return old; }
#define BALTRA_ATOMICS_OF(T, SPACE)                                                    \
    BALTRA_ATOMIC(add, T, SPACE, old + v) BALTRA_ATOMIC(sub, T, SPACE, old - v)        \
    BALTRA_ATOMIC(xchg, T, SPACE, v) BALTRA_ATOMIC(and, T, SPACE, old & v)             \
    BALTRA_ATOMIC(or, T, SPACE, old | v) BALTRA_ATOMIC(xor, T, SPACE, old ^ v)         \
    BALTRA_ATOMIC(min, T, SPACE, min(old, v)) BALTRA_ATOMIC(max, T, SPACE, max(old, v)) \
    BALTRA_FUNCTION T atomic_inc(volatile SPACE T *p) { T old = *p; *p = old + 1; return old; } \
    BALTRA_FUNCTION T atomic_dec(volatile SPACE T *p) { T old = *p; *p = old - 1; return old; } \
    BALTRA_FUNCTION T atomic_cmpxchg(volatile SPACE T *p, T expected, T v)             \
    {                                                                                  \
        T old = *p;                                                                    \
        *p = old == expected ? v : old;                                                \
        return old;                                                                    \
    }
/* Declared, so that no conversion of the pointer makes them those of 32 bits. */
#define BALTRA_NO_64_BITS "64-bit atomic functions are not supported (use 32 bits)"
#define BALTRA_NO_ATOMIC(NAME, T, SPACE, ...)                                                      \
    T __attribute__((overloadable, unavailable(BALTRA_NO_64_BITS)))                                \
    atomic_##NAME(volatile SPACE T *p __VA_ARGS__);
#define BALTRA_NO_ATOMICS_OF(T, SPACE)                                                             \
    BALTRA_NO_ATOMIC(add, T, SPACE, , T v) BALTRA_NO_ATOMIC(sub, T, SPACE, , T v)                  \
    BALTRA_NO_ATOMIC(xchg, T, SPACE, , T v) BALTRA_NO_ATOMIC(and, T, SPACE, , T v)                 \
    BALTRA_NO_ATOMIC(or, T, SPACE, , T v) BALTRA_NO_ATOMIC(xor, T, SPACE, , T v)                   \
    BALTRA_NO_ATOMIC(min, T, SPACE, , T v) BALTRA_NO_ATOMIC(max, T, SPACE, , T v)                  \
    BALTRA_NO_ATOMIC(inc, T, SPACE) BALTRA_NO_ATOMIC(dec, T, SPACE)                                \
    BALTRA_NO_ATOMIC(cmpxchg, T, SPACE, , T expected, T v)
BALTRA_NO_ATOMICS_OF(long, __global) BALTRA_NO_ATOMICS_OF(ulong, __global)
BALTRA_NO_ATOMICS_OF(long, __local) BALTRA_NO_ATOMICS_OF(ulong, __local)
BALTRA_ATOMICS_OF(int, __global) BALTRA_ATOMICS_OF(uint, __global)
BALTRA_ATOMICS_OF(int, __local) BALTRA_ATOMICS_OF(uint, __local)
BALTRA_FUNCTION float atomic_xchg(volatile __global float *p, float v) { float old = *p; *p = v; return old; }
BALTRA_FUNCTION float atomic_xchg(volatile __local float *p, float v) { float old = *p; *p = v; return old; }
#define atom_add atomic_add
#define atom_sub atomic_sub
#define atom_xchg atomic_xchg
#define atom_inc atomic_inc
#define atom_dec atomic_dec
#define atom_cmpxchg atomic_cmpxchg
#define atom_min atomic_min
#define atom_max atomic_max
#define atom_and atomic_and
#define atom_or atomic_or
#define atom_xor atomic_xor

/* ---- floats: relations ---- */

#define BALTRA_RELATIONS(T, I, V, EXPONENT, MANTISSA)                                                \
    BALTRA_FUNCTION I isequal(T a, T b) { return a == b; }                                           \
    BALTRA_FUNCTION I isnotequal(T a, T b) { return a != b; }                                        \
    BALTRA_FUNCTION I isgreater(T a, T b) { return a > b; }                                          \
    BALTRA_FUNCTION I isgreaterequal(T a, T b) { return a >= b; }                                    \
    BALTRA_FUNCTION I isless(T a, T b) { return a < b; }                                             \
    BALTRA_FUNCTION I islessequal(T a, T b) { return a <= b; }                                       \
    BALTRA_FUNCTION I islessgreater(T a, T b) { return a < b || a > b; }                             \
    BALTRA_FUNCTION I isordered(T a, T b) { return a == a && b == b; }                               \
    BALTRA_FUNCTION I isunordered(T a, T b) { return a != a || b != b; }                             \
    BALTRA_FUNCTION I isnan(T a) { return a != a; }                                                  \
    BALTRA_FUNCTION I isinf(T a) { return (V(a) << 1) == EXPONENT << 1; }                            \
    BALTRA_FUNCTION I isfinite(T a) { return (V(a) & EXPONENT) != EXPONENT; }                        \
    BALTRA_FUNCTION I isnormal(T a) { return (V(a) & EXPONENT) != EXPONENT && (V(a) & EXPONENT) != 0; } \
    BALTRA_FUNCTION I signbit(T a) { return V(a) >> (sizeof(T) * 8 - 1); }
BALTRA_RELATIONS(float, int, as_uint, 0x7f800000u, 0x7fffffu)
BALTRA_RELATIONS(double, int, as_ulong, 0x7ff0000000000000ul, 0xffffffffffffful)
/* Of vectors: all bits are set where the relation holds. */
#define BALTRA_MOST_OF(I) ((I)(((ulong)-1 >> 1) >> (64 - 8 * sizeof(I))))
#define BALTRA_EXPONENT_OF(I) (sizeof(I) == 4 ? (I)0x7f800000 : (I)0x7ff0000000000000)
#define BALTRA_RELATION_V(NAME, T, I, N) \
    BALTRA_FUNCTION I##N NAME(T##N a, T##N b)
#define BALTRA_RELATIONS_V(T, I, N)                                                                  \
    BALTRA_RELATION_V(isequal, T, I, N) { return a == b; }                                           \
    BALTRA_RELATION_V(isnotequal, T, I, N) { return a != b; }                                        \
    BALTRA_RELATION_V(isgreater, T, I, N) { return a > b; }                                          \
    BALTRA_RELATION_V(isgreaterequal, T, I, N) { return a >= b; }                                    \
    BALTRA_RELATION_V(isless, T, I, N) { return a < b; }                                             \
    BALTRA_RELATION_V(islessequal, T, I, N) { return a <= b; }                                       \
    BALTRA_RELATION_V(islessgreater, T, I, N) { return (a < b) | (a > b); }                          \
    BALTRA_RELATION_V(isordered, T, I, N) { return (a == a) & (b == b); }                            \
    BALTRA_RELATION_V(isunordered, T, I, N) { return (a != a) | (b != b); }                          \
    BALTRA_FUNCTION I##N isnan(T##N a) { return a != a; }                                            \
    BALTRA_FUNCTION I##N isinf(T##N a)                                                               \
    {                                                                                                \
        return (__builtin_astype(a, I##N) & BALTRA_MOST_OF(I)) == BALTRA_EXPONENT_OF(I);             \
    }                                                                                                \
    BALTRA_FUNCTION I##N isfinite(T##N a)                                                            \
    {                                                                                                \
        return (__builtin_astype(a, I##N) & BALTRA_EXPONENT_OF(I)) != BALTRA_EXPONENT_OF(I);         \
    }                                                                                                \
    BALTRA_FUNCTION I##N isnormal(T##N a)                                                            \
    {                                                                                                \
        I##N exponent = __builtin_astype(a, I##N) & BALTRA_EXPONENT_OF(I);                           \
        return (exponent != (I)0) & (exponent != BALTRA_EXPONENT_OF(I));                             \
    }                                                                                                \
    BALTRA_FUNCTION I##N signbit(T##N a) { return __builtin_astype(a, I##N) < (I)0; }
#define BALTRA_RELATIONS_ALL(T, I)                                                                   \
    BALTRA_RELATIONS_V(T, I, 2) BALTRA_RELATIONS_V(T, I, 3) BALTRA_RELATIONS_V(T, I, 4)              \
    BALTRA_RELATIONS_V(T, I, 8) BALTRA_RELATIONS_V(T, I, 16)
BALTRA_RELATIONS_ALL(float, int) BALTRA_RELATIONS_ALL(double, long)

#define BALTRA_SIGNED(M) M(char) M(short) M(int) M(long)
#define BALTRA_ANY_ALL(T)                                                                            \
    BALTRA_FUNCTION int any(T a) { return a < 0; }                                                   \
    BALTRA_FUNCTION int all(T a) { return a < 0; }                                                   \
    BALTRA_FUNCTION int any(T##2 a) { return (a.x | a.y) < 0; }                                      \
    BALTRA_FUNCTION int all(T##2 a) { return (a.x & a.y) < 0; }                                      \
    BALTRA_FUNCTION int any(T##3 a) { return (a.x | a.y | a.z) < 0; }                                \
    BALTRA_FUNCTION int all(T##3 a) { return (a.x & a.y & a.z) < 0; }                                \
    BALTRA_FUNCTION int any(T##4 a) { return any(a.lo | a.hi); }                                     \
    BALTRA_FUNCTION int all(T##4 a) { return all(a.lo & a.hi); }                                     \
    BALTRA_FUNCTION int any(T##8 a) { return any(a.lo | a.hi); }                                     \
    BALTRA_FUNCTION int all(T##8 a) { return all(a.lo & a.hi); }                                     \
    BALTRA_FUNCTION int any(T##16 a) { return any(a.lo | a.hi); }                                    \
    BALTRA_FUNCTION int all(T##16 a) { return all(a.lo & a.hi); }
BALTRA_SIGNED(BALTRA_ANY_ALL)

#define BALTRA_SELECT_V(T, I, N) \
    BALTRA_FUNCTION T##N select(T##N a, T##N b, I##N c) { return c < (I##N)0 ? b : a; }
#define BALTRA_SELECT_UV(T, I, U, N) \
    BALTRA_FUNCTION T##N select(T##N a, T##N b, U##N c) { return __builtin_astype(c, I##N) < (I##N)0 ? b : a; }
#define BALTRA_SELECT(T, I, U)                                                                       \
    BALTRA_FUNCTION T select(T a, T b, I c) { return c ? b : a; }                                    \
    BALTRA_FUNCTION T select(T a, T b, U c) { return c ? b : a; }                                    \
    BALTRA_SELECT_V(T, I, 2) BALTRA_SELECT_V(T, I, 3) BALTRA_SELECT_V(T, I, 4) BALTRA_SELECT_V(T, I, 8) \
    BALTRA_SELECT_V(T, I, 16) BALTRA_SELECT_UV(T, I, U, 2) BALTRA_SELECT_UV(T, I, U, 3)              \
    BALTRA_SELECT_UV(T, I, U, 4) BALTRA_SELECT_UV(T, I, U, 8) BALTRA_SELECT_UV(T, I, U, 16)
BALTRA_SELECT(char, char, uchar) BALTRA_SELECT(uchar, char, uchar) BALTRA_SELECT(short, short, ushort)
BALTRA_SELECT(ushort, short, ushort) BALTRA_SELECT(int, int, uint) BALTRA_SELECT(uint, int, uint)
BALTRA_SELECT(long, long, ulong) BALTRA_SELECT(ulong, long, ulong) BALTRA_SELECT(float, int, uint)
BALTRA_SELECT(double, long, ulong)

#define BALTRA_BITSELECT(T, U, BITS)                                                \
    BALTRA_FUNCTION T bitselect(T a, T b, T c) { return (a & ~c) | (b & c); }       \
    BALTRA_TERNARY(T, bitselect, T)
BALTRA_INTEGERS(BALTRA_BITSELECT)
BALTRA_FUNCTION float bitselect(float a, float b, float c) { return as_float(bitselect(as_uint(a), as_uint(b), as_uint(c))); }
BALTRA_FUNCTION double bitselect(double a, double b, double c)
{
    return as_double(bitselect(as_ulong(a), as_ulong(b), as_ulong(c)));
}
BALTRA_TERNARY(float, bitselect, float) BALTRA_TERNARY(double, bitselect, double)

#include "baltra_math.h"
#include "baltra_transcendental.h"
#include "baltra_special.h"

/* ---- copies ---- */

#define BALTRA_COPY_OF(T, TO, FROM, TO_STRIDE, FROM_STRIDE)                                               \
    BALTRA_FUNCTION event_t async_work_group_copy(TO T *to, const FROM T *from, size_t count, event_t event) \
    {                                                                                                     \
        if (get_local_linear_id() == 0)                                                                   \
            for (uint i = 0; i < (uint)count; i++) to[i] = from[i];                                       \
        return event;                                                                                     \
    }                                                                                                     \
    BALTRA_FUNCTION event_t async_work_group_strided_copy(TO T *to, const FROM T *from, size_t count,     \
                                                          size_t stride, event_t event)                   \
    {                                                                                                     \
        if (get_local_linear_id() == 0)                                                                   \
            for (uint i = 0; i < (uint)count; i++) to[i * TO_STRIDE] = from[i * FROM_STRIDE];             \
        return event;                                                                                     \
    }
#define BALTRA_COPY_N(T) BALTRA_COPY_OF(T, __local, __global, 1, stride) BALTRA_COPY_OF(T, __global, __local, stride, 1)
#define BALTRA_COPY(T)                                                                                    \
    BALTRA_COPY_N(T) BALTRA_COPY_N(T##2) BALTRA_COPY_N(T##3) BALTRA_COPY_N(T##4) BALTRA_COPY_N(T##8) BALTRA_COPY_N(T##16)
BALTRA_COPY(char) BALTRA_COPY(uchar) BALTRA_COPY(short) BALTRA_COPY(ushort) BALTRA_COPY(int) BALTRA_COPY(uint)
BALTRA_COPY(long) BALTRA_COPY(ulong) BALTRA_COPY(float) BALTRA_COPY(double)
#define wait_group_events(count, events) __baltra_barrier()
#define prefetch(pointer, count)

int printf(__constant const char *restrict format, ...);

/* ---- the device's profile and extensions, in place of those of clang's target ---- */

#define __EMBEDDED_PROFILE__ 1
#define cles_khr_int64 1
#undef __IMAGE_SUPPORT__
#undef __opencl_c_3d_image_writes
#undef __opencl_c_atomic_order_acq_rel
#undef __opencl_c_atomic_order_seq_cst
#undef __opencl_c_atomic_scope_all_devices
#undef __opencl_c_atomic_scope_device
#undef __opencl_c_device_enqueue
#undef __opencl_c_ext_fp16_global_atomic_add
#undef __opencl_c_ext_fp16_global_atomic_load_store
#undef __opencl_c_ext_fp16_global_atomic_min_max
#undef __opencl_c_ext_fp16_local_atomic_add
#undef __opencl_c_ext_fp16_local_atomic_load_store
#undef __opencl_c_ext_fp16_local_atomic_min_max
#undef __opencl_c_ext_fp32_global_atomic_add
#undef __opencl_c_ext_fp32_global_atomic_min_max
#undef __opencl_c_ext_fp32_local_atomic_add
#undef __opencl_c_ext_fp32_local_atomic_min_max
#undef __opencl_c_ext_fp64_global_atomic_add
#undef __opencl_c_ext_fp64_global_atomic_min_max
#undef __opencl_c_ext_fp64_local_atomic_add
#undef __opencl_c_ext_fp64_local_atomic_min_max
#undef __opencl_c_fp64
#undef __opencl_c_images
#undef __opencl_c_integer_dot_product_input_4x8bit
#undef __opencl_c_integer_dot_product_input_4x8bit_packed
#undef __opencl_c_program_scope_global_variables
#undef __opencl_c_read_write_images
#undef __opencl_c_subgroups
#undef __opencl_c_work_group_collective_functions
#undef cl_amd_media_ops
#undef cl_amd_media_ops2
#undef cl_ext_float_atomics
#undef cl_intel_device_side_avc_motion_estimation
#undef cl_intel_subgroups
#undef cl_intel_subgroups_short
#undef cl_khr_3d_image_writes
#undef cl_khr_depth_images
#undef cl_khr_extended_bit_ops
#undef cl_khr_fp16
#undef cl_khr_fp64
#undef cl_khr_gl_msaa_sharing
#undef cl_khr_int64_base_atomics
#undef cl_khr_int64_extended_atomics
#undef cl_khr_integer_dot_product
#undef cl_khr_mipmap_image
#undef cl_khr_mipmap_image_writes
#undef cl_khr_srgb_image_writes
#undef cl_khr_subgroup_ballot
#undef cl_khr_subgroup_clustered_reduce
#undef cl_khr_subgroup_extended_types
#undef cl_khr_subgroup_non_uniform_arithmetic
#undef cl_khr_subgroup_non_uniform_vote
#undef cl_khr_subgroup_rotate
#undef cl_khr_subgroup_shuffle
#undef cl_khr_subgroup_shuffle_relative
#undef cl_khr_subgroups
