/*
 * Conversions with a rounding mode. Included after baltra_builtins.h if the program may have one.
 */

/* An integer's size as a float that is not larger, or, away from zero, not smaller. */
BALTRA_FUNCTION float __baltra_toward(ulong size, bool away)
{
    int drop = 40 - (int)clz(size);
    if (drop <= 0) return (float)size;
    ulong kept = size >> drop;
    if (away && kept << drop != size) kept++;
    return (float)kept * as_float((uint)(127 + drop) << 23);
}
#define BALTRA_TOWARD(S, WIDE)                                                                                  \
    BALTRA_FUNCTION float convert_float_rte(S a) { return (float)a; }                                           \
    BALTRA_FUNCTION float __baltra_directed(S a, bool up, bool down)                                            \
    {                                                                                                           \
        return a < 0 ? -__baltra_toward(-(ulong)(WIDE)a, down) : __baltra_toward((ulong)(WIDE)a, up);           \
    }                                                                                                           \
    BALTRA_FUNCTION float convert_float_rtz(S a) { return __baltra_directed(a, false, false); }                 \
    BALTRA_FUNCTION float convert_float_rtp(S a) { return __baltra_directed(a, true, false); }                  \
    BALTRA_FUNCTION float convert_float_rtn(S a) { return __baltra_directed(a, false, true); }
BALTRA_TOWARD(char, long) BALTRA_TOWARD(uchar, ulong) BALTRA_TOWARD(short, long) BALTRA_TOWARD(ushort, ulong)
BALTRA_TOWARD(int, long) BALTRA_TOWARD(uint, ulong) BALTRA_TOWARD(long, long) BALTRA_TOWARD(ulong, ulong)

#define BALTRA_EXACTLY(a) a
#define BALTRA_ROUND_VECTORS(D, S, SUFFIX)                                                                      \
    BALTRA_FUNCTION D##2 convert_##D##2##SUFFIX(S##2 a) { return (D##2)(convert_##D##SUFFIX(a.x), convert_##D##SUFFIX(a.y)); } \
    BALTRA_FUNCTION D##3 convert_##D##3##SUFFIX(S##3 a) { return (D##3)(convert_##D##2##SUFFIX(a.xy), convert_##D##SUFFIX(a.z)); } \
    BALTRA_FUNCTION D##4 convert_##D##4##SUFFIX(S##4 a) { return (D##4)(convert_##D##2##SUFFIX(a.lo), convert_##D##2##SUFFIX(a.hi)); } \
    BALTRA_FUNCTION D##8 convert_##D##8##SUFFIX(S##8 a) { return (D##8)(convert_##D##4##SUFFIX(a.lo), convert_##D##4##SUFFIX(a.hi)); } \
    BALTRA_FUNCTION D##16 convert_##D##16##SUFFIX(S##16 a) { return (D##16)(convert_##D##8##SUFFIX(a.lo), convert_##D##8##SUFFIX(a.hi)); }
#define BALTRA_ROUND_ONE(D, S, MODE, ROUND)                                                                     \
    BALTRA_FUNCTION D convert_##D##MODE(S a) { return convert_##D(ROUND(a)); }                                  \
    BALTRA_FUNCTION D convert_##D##_sat##MODE(S a) { return convert_##D##_sat(ROUND(a)); }                      \
    BALTRA_ROUND_VECTORS(D, S, MODE) BALTRA_ROUND_VECTORS(D, S, _sat##MODE)
#define BALTRA_ROUND_INTEGERS(D, S)                                                                             \
    BALTRA_ROUND_ONE(D, S, _rte, BALTRA_EXACTLY) BALTRA_ROUND_ONE(D, S, _rtz, BALTRA_EXACTLY)                   \
    BALTRA_ROUND_ONE(D, S, _rtp, BALTRA_EXACTLY) BALTRA_ROUND_ONE(D, S, _rtn, BALTRA_EXACTLY)
#define BALTRA_ROUND_TO(D)                                                                                      \
    BALTRA_ROUND_ONE(D, float, _rte, rint) BALTRA_ROUND_ONE(D, float, _rtz, trunc)                              \
    BALTRA_ROUND_ONE(D, float, _rtp, ceil) BALTRA_ROUND_ONE(D, float, _rtn, floor)                              \
    BALTRA_ROUND_INTEGERS(D, char) BALTRA_ROUND_INTEGERS(D, uchar) BALTRA_ROUND_INTEGERS(D, short)              \
    BALTRA_ROUND_INTEGERS(D, ushort) BALTRA_ROUND_INTEGERS(D, int) BALTRA_ROUND_INTEGERS(D, uint)               \
    BALTRA_ROUND_INTEGERS(D, long) BALTRA_ROUND_INTEGERS(D, ulong)
BALTRA_ROUND_TO(char) BALTRA_ROUND_TO(uchar) BALTRA_ROUND_TO(short) BALTRA_ROUND_TO(ushort)
BALTRA_ROUND_TO(int) BALTRA_ROUND_TO(uint) BALTRA_ROUND_TO(long) BALTRA_ROUND_TO(ulong)

#define BALTRA_ROUND_FLOATS(S)                                                                                  \
    BALTRA_ROUND_VECTORS(float, S, _rte) BALTRA_ROUND_VECTORS(float, S, _rtz)                                   \
    BALTRA_ROUND_VECTORS(float, S, _rtp) BALTRA_ROUND_VECTORS(float, S, _rtn)
BALTRA_FUNCTION float convert_float_rte(float a) { return a; }
BALTRA_FUNCTION float convert_float_rtz(float a) { return a; }
BALTRA_FUNCTION float convert_float_rtp(float a) { return a; }
BALTRA_FUNCTION float convert_float_rtn(float a) { return a; }
BALTRA_ROUND_FLOATS(char) BALTRA_ROUND_FLOATS(uchar) BALTRA_ROUND_FLOATS(short) BALTRA_ROUND_FLOATS(ushort)
BALTRA_ROUND_FLOATS(int) BALTRA_ROUND_FLOATS(uint) BALTRA_ROUND_FLOATS(long) BALTRA_ROUND_FLOATS(ulong)
BALTRA_ROUND_FLOATS(float)
