/* Loads and stores of halves. Included after baltra_builtins.h if the program may have one. */

BALTRA_FUNCTION float __baltra_from_half(ushort a)
{
    uint sign = (uint)(a & 0x8000) << 16, exponent = a >> 10 & 31, fraction = a & 0x3ff;
    if (exponent == 0) return copysign((float)fraction * as_float(103u << 23), as_float(sign));
    return as_float(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}
/* `up` and `down`: round toward infinity or minus infinity; `near`: to nearest even; none: toward zero. */
BALTRA_FUNCTION ushort __baltra_to_half(float a, bool near, bool up, bool down)
{
    uint size = as_uint(a) & 0x7fffffff, sign = as_uint(a) >> 16 & 0x8000;
    bool away = sign ? down : up;
    if (size > 0x7f800000u) return 0x7e00;
    if (size == 0x7f800000u) return sign | 0x7c00;
    int exponent = (int)(size >> 23) - 127;
    /* From 2^16 on, values are out of range in any mode. */
    if (exponent > 15) return sign | (near || away ? 0x7c00 : 0x7bff);
    uint fraction = (size & 0x7fffff) | (exponent == -127 ? 0 : 0x800000), drop = 13;
    if (exponent < -14) drop = min(-1 - exponent, 26);
    uint kept = fraction >> drop, rest = fraction & ((1u << drop) - 1), middle = 1u << (drop - 1);
    if (exponent >= -14) kept += (uint)(exponent + 14) << 10;
    if (near ? rest > middle || (rest == middle && (kept & 1)) : away && rest != 0) kept++;
    return sign | kept;
}
#define BALTRA_LOAD_HALF_N(SPACE, N, H)                                                                    \
    BALTRA_FUNCTION float##N __baltra_half##N(const SPACE ushort *p) { return (float##N)(__baltra_half##H(p), __baltra_half##H(p + N / 2)); } \
    BALTRA_FUNCTION float##N vload_half##N(size_t i, const SPACE half *p) { return __baltra_half##N((const SPACE ushort *)p + i * N); } \
    BALTRA_FUNCTION float##N vloada_half##N(size_t i, const SPACE half *p) { return __baltra_half##N((const SPACE ushort *)p + i * N); }
#define BALTRA_LOAD_HALF(SPACE)                                                                                    \
    BALTRA_FUNCTION float __baltra_half(const SPACE ushort *p) { return __baltra_from_half(*p); }                  \
    BALTRA_FUNCTION float vload_half(size_t i, const SPACE half *p) { return __baltra_half((const SPACE ushort *)p + i); } \
    BALTRA_FUNCTION float vloada_half(size_t i, const SPACE half *p) { return __baltra_half((const SPACE ushort *)p + i); } \
    BALTRA_LOAD_HALF_N(SPACE, 2, ) BALTRA_LOAD_HALF_N(SPACE, 4, 2) BALTRA_LOAD_HALF_N(SPACE, 8, 4)        \
    BALTRA_LOAD_HALF_N(SPACE, 16, 8)                                                                           \
    BALTRA_FUNCTION float3 __baltra_half3(const SPACE ushort *p) { return (float3)(__baltra_half2(p), __baltra_half(p + 2)); } \
    BALTRA_FUNCTION float3 vload_half3(size_t i, const SPACE half *p) { return __baltra_half3((const SPACE ushort *)p + i * 3); } \
    BALTRA_FUNCTION float3 vloada_half3(size_t i, const SPACE half *p) { return __baltra_half3((const SPACE ushort *)p + i * 4); }
BALTRA_LOAD_HALF(__global) BALTRA_LOAD_HALF(__local) BALTRA_LOAD_HALF(__private) BALTRA_LOAD_HALF(__constant)

#define BALTRA_STORE_HALF_N(SPACE, N, H, MODE)                                                                     \
    BALTRA_FUNCTION void __baltra_store_half##N##MODE(float##N a, SPACE ushort *p)                                 \
    {                                                                                                              \
        __baltra_store_half##H##MODE(a.lo, p);                                                                     \
        __baltra_store_half##H##MODE(a.hi, p + N / 2);                                                             \
    }                                                                                                              \
    BALTRA_FUNCTION void vstore_half##N##MODE(float##N a, size_t i, SPACE half *p) { __baltra_store_half##N##MODE(a, (SPACE ushort *)p + i * N); } \
    BALTRA_FUNCTION void vstorea_half##N##MODE(float##N a, size_t i, SPACE half *p) { __baltra_store_half##N##MODE(a, (SPACE ushort *)p + i * N); }
#define BALTRA_STORE_HALF(SPACE, MODE, NEAR, UP, DOWN)                                                             \
    BALTRA_FUNCTION void __baltra_store_half##MODE(float a, SPACE ushort *p) { *p = __baltra_to_half(a, NEAR, UP, DOWN); } \
    BALTRA_FUNCTION void vstore_half##MODE(float a, size_t i, SPACE half *p) { __baltra_store_half##MODE(a, (SPACE ushort *)p + i); } \
    BALTRA_FUNCTION void vstorea_half##MODE(float a, size_t i, SPACE half *p) { __baltra_store_half##MODE(a, (SPACE ushort *)p + i); } \
    BALTRA_STORE_HALF_N(SPACE, 2, , MODE) BALTRA_STORE_HALF_N(SPACE, 4, 2, MODE) BALTRA_STORE_HALF_N(SPACE, 8, 4, MODE) \
    BALTRA_STORE_HALF_N(SPACE, 16, 8, MODE)                                                                        \
    BALTRA_FUNCTION void __baltra_store_half3##MODE(float3 a, SPACE ushort *p)                                     \
    {                                                                                                              \
        __baltra_store_half2##MODE(a.xy, p);                                                                       \
        __baltra_store_half##MODE(a.z, p + 2);                                                                     \
    }                                                                                                              \
    BALTRA_FUNCTION void vstore_half3##MODE(float3 a, size_t i, SPACE half *p) { __baltra_store_half3##MODE(a, (SPACE ushort *)p + i * 3); } \
    BALTRA_FUNCTION void vstorea_half3##MODE(float3 a, size_t i, SPACE half *p) { __baltra_store_half3##MODE(a, (SPACE ushort *)p + i * 4); }
#define BALTRA_STORE_HALVES(SPACE)                                                                                 \
    BALTRA_STORE_HALF(SPACE, , true, false, false) BALTRA_STORE_HALF(SPACE, _rte, true, false, false)              \
    BALTRA_STORE_HALF(SPACE, _rtz, false, false, false) BALTRA_STORE_HALF(SPACE, _rtp, false, true, false)         \
    BALTRA_STORE_HALF(SPACE, _rtn, false, false, true)
BALTRA_STORE_HALVES(__global) BALTRA_STORE_HALVES(__local) BALTRA_STORE_HALVES(__private)
