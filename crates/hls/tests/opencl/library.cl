/* The library's functions on floats by names that C can call (library.c). */
#define ONE(F) float one_##F(float a) { return F(a); }
#define TWO(F) float two_##F(float a, float b) { return F(a, b); }
#define WHOLE(F) float whole_##F(float a, int b) { return F(a, b); }
ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan) ONE(sinpi) ONE(cospi) ONE(tanpi) ONE(asinpi) ONE(acospi)
ONE(atanpi) ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh) ONE(exp) ONE(exp2) ONE(exp10) ONE(expm1)
ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(sqrt) ONE(rsqrt) ONE(cbrt) ONE(erf) ONE(erfc) ONE(tgamma) ONE(lgamma)
ONE(trunc) ONE(floor) ONE(ceil) ONE(round) ONE(rint) ONE(logb) ONE(length) ONE(normalize)
TWO(atan2) TWO(atan2pi) TWO(pow) TWO(powr) TWO(hypot) TWO(fmod) TWO(remainder) TWO(nextafter) TWO(fdim) TWO(fmin) TWO(fmax)
TWO(maxmag) TWO(minmag) TWO(copysign)
WHOLE(pown) WHOLE(rootn) WHOLE(ldexp)
float two_divide(float a, float b) { return __baltra_divide_float(a, b); }
float two_length(float a, float b) { return length((float2)(a, b)); }
float two_distance(float a, float b) { return distance((float4)(a, 0, b, a), (float4)(b, 0, a, b)); }
float two_normalize(float a, float b) { return normalize((float2)(a, b)).x; }
float three_fma(float a, float b, float c) { return fma(a, b, c); }
float one_modf(float a) { float whole; return modf(a, &whole); }
float one_fract(float a) { float whole; return fract(a, &whole); }
float one_frexp(float a) { int exponent; return frexp(a, &exponent); }
float two_remquo(float a, float b) { int quotient; remquo(a, b, &quotient); return quotient; }
#define TO_FLOAT(T, MODE) float from_##T##MODE(T a) { return convert_float##MODE(a); }
TO_FLOAT(long, _rte) TO_FLOAT(long, _rtz) TO_FLOAT(long, _rtp) TO_FLOAT(long, _rtn)
TO_FLOAT(ulong, _rte) TO_FLOAT(ulong, _rtz) TO_FLOAT(ulong, _rtp) TO_FLOAT(ulong, _rtn)
float from_half(ushort a) { return __baltra_from_half(a); }
ushort to_half_rte(float a) { return __baltra_to_half(a, true, false, false); }
ushort to_half_rtz(float a) { return __baltra_to_half(a, false, false, false); }
ushort to_half_rtp(float a) { return __baltra_to_half(a, false, true, false); }
ushort to_half_rtn(float a) { return __baltra_to_half(a, false, false, true); }
