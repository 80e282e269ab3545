/* Functions of floats that are computed as doubles (kernels.rs). */
kernel void transcendental(global const float *a, global const float *b, global float *out)
{
    int i = get_global_id(0);
    global float *o = out + 16 * i;
    float x = a[i], y = b[i];
    int exponent;
    o[0] = sin(x);
    o[1] = cos(x);
    o[2] = tan(x);
    o[3] = asin(x);
    o[4] = acos(x);
    o[5] = atan(x);
    o[6] = atan2(x, y);
    o[7] = pow(x, y);
    o[8] = cbrt(x);
    o[9] = hypot(x, y);
    o[10] = fma(x, y, x);
    o[11] = fmod(x, y);
    o[12] = ldexp(x, (int)clamp(y, -300.0f, 300.0f));
    o[13] = frexp(x, &exponent);
    o[14] = exponent;
    o[15] = fma(x, x, -y);
}
