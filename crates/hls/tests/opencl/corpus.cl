/* Kernels whose results are compared with references (kernels.rs). */

kernel void add(global const float *a, global const float *b, global float *c)
{
    int i = get_global_id(0);
    c[i] = a[i] + b[i];
}

/* Stores outside of its buffer if `far` is large. */
kernel void stray(global int *out, int far) { out[get_global_id(0) + far] = 1; }

/* Identifiers in all dimensions. */
kernel void identify(global uint *out)
{
    size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1), z = get_global_id(2) - get_global_offset(2);
    size_t at = (z * get_global_size(1) + y) * get_global_size(0) + x;
    out[at] = get_global_id(0) | get_local_id(0) << 8 | get_group_id(0) << 12 | get_global_id(1) << 16 | get_group_id(1) << 24 |
              get_num_groups(2) << 28;
}

/* The dimension is a variable, and exceeds the last one. */
kernel void dimensions(global uint *out, uint end)
{
    uint sum = 0;
    for (uint d = 0; d < end; d++)
        sum = sum * 7 + get_global_id(d) + 2 * get_local_id(d) + 3 * get_group_id(d) + 4 * get_global_size(d) +
              5 * get_global_offset(d) + 6 * get_local_size(d);
    size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);
    out[y * get_global_size(0) + x] = sum;
}

kernel void histogram(global const uchar *in, global uint *bins, local uint *own, int n)
{
    for (int i = get_local_id(0); i < 64; i += get_local_size(0)) own[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    int i = get_global_id(0);
    if (i < n) atomic_inc(&own[in[i] & 63]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_local_id(0); i < 64; i += get_local_size(0)) atomic_add(&bins[i], own[i]);
}

/* Inclusive sums within groups. */
kernel void scan(global const int *in, global int *out)
{
    local int sums[64];
    int i = get_local_id(0), n = get_local_size(0);
    sums[i] = in[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int by = 1; by < n; by *= 2) {
        int other = i >= by ? sums[i - by] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[i] += other;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[get_global_id(0)] = sums[i];
}

kernel __attribute__((reqd_work_group_size(32, 1, 1))) void reduce(global const float *in, global float *out)
{
    local float part[32];
    int i = get_local_id(0);
    part[i] = in[get_global_id(0)];
    for (int n = 16; n > 0; n >>= 1) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (i < n) part[i] += part[i + n];
    }
    if (i == 0) out[get_group_id(0)] = part[0];
}

kernel void spmv(global const int *rows, global const int *columns, global const float *values, global const float *x, global float *y)
{
    int row = get_global_id(0);
    float sum = 0;
    for (int i = rows[row]; i < rows[row + 1]; i++) sum += values[i] * x[columns[i]];
    y[row] = sum;
}

typedef struct {
    int count;
    float scale;
    char bias[3];
    long wide;
} parameters;

/* The nearest center of each point; a structure by value, a table, private arrays. */
constant float weights[4] = {1.0f, 2.0f, 0.5f, 4.0f};
kernel void nearest(global const float2 *points, constant float2 *centers, global int *out, parameters p, float4 shift)
{
    int i = get_global_id(0);
    float distances[8];
    float2 at = points[i] * p.scale + shift.yw;
    for (int k = 0; k < p.count; k++) {
        float2 d = at - centers[k];
        distances[k] = dot(d, d) * weights[k & 3];
    }
    int best = 0;
    for (int k = 1; k < p.count; k++)
        if (distances[k] < distances[best]) best = k;
    out[i] = best + p.bias[i % 3] + (int)(p.wide >> 32);
}

kernel void integers(global const char *a, global const short *b, global const long *c, global long *out)
{
    int i = get_global_id(0);
    long sum = a[i] * b[i] + c[i] / (a[i] | 1) + c[i] % 1000;
    sum ^= rotate((ulong)c[i], (ulong)(b[i] & 63)) + clz((int)b[i]) + popcount((uchar)a[i]);
    sum += add_sat(a[i], (char)b[i]) + mul_hi((int)c[i], (int)b[i]) + abs_diff(b[i], (short)a[i]) + hadd((uint)c[i], (uint)b[i]);
    out[i] = sum + ((uint)c[i] / 7u) + (uchar)a[i] % 5 + max(b[i], (short)3) + clamp((int)a[i], -5, 5);
}

kernel void vectors(global const uchar4 *in, global uchar4 *out, global int *sums)
{
    int i = get_global_id(0);
    int4 v = convert_int4(in[i]) * 3 - (int4)(10, 20, 30, 40);
    uchar4 s = convert_uchar4_sat(v);
    int4 less = v < (int4)100;
    out[i] = select(s, s.wzyx, convert_uchar4(less));
    int3 t = v.xyz + vload3(i, sums);
    uint bits = as_uint(s) ^ as_uint((uchar4)(v.x & 1, 2, 3, any(less)));
    vstore3(t + (int)bits, i, sums);
    int at[4] = {v.x, v.y, v.z, v.w};
    sums[3 * i] += v[i & 3] + at[3 - (i & 3)] + all(less);
}

kernel void floats(global const float *a, global const float *b, global float *out)
{
    int i = get_global_id(0);
    global float *o = out + 8 * i;
    o[0] = a[i] / b[i];
    o[1] = sqrt(a[i]);
    o[2] = fmin(a[i], b[i]);
    o[3] = floor(a[i]) + rint(b[i]);
    o[4] = exp(b[i]);
    o[5] = log(a[i]);
    o[6] = (int)clamp(a[i], -1e9f, 1e9f) + convert_uchar_sat(b[i]);
    o[7] = mad(a[i], b[i], 1.0f) + isnan(a[i]) + trunc(b[i]);
}

kernel void report(global const int *in, float f)
{
    int i = get_global_id(0);
    printf("item %d: %5d|%-4x|%c %.2f %v4d %s\n", i, in[i], in[i], 'a' + i, f * i, (int4)(i, 1, -2, in[i]), "end");
}

/* Not all work-items reach a barrier. */
kernel void diverge(global int *out, int n)
{
    local int sum;
    int i = get_local_id(0);
    if (i == 0) sum = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < n) {
        atomic_add(&sum, i);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[get_global_id(0)] = sum;
}

/* Values and variables of each work-item across barriers, in a loop. */
kernel void exchange(global const int *in, global int *out, int rounds)
{
    local int shared[16];
    int history[4] = {0, 0, 0, 0};
    int i = get_local_id(0) + get_local_id(1) * get_local_size(0), n = get_local_size(0) * get_local_size(1);
    int value = in[get_global_id(1) * get_global_size(0) + get_global_id(0)];
    for (int r = 0; r < rounds; r++) {
        shared[i] = value;
        barrier(CLK_LOCAL_MEM_FENCE);
        int next = shared[(i + 1) % n];
        if (r & 1) next ^= value * 3;
        history[r & 3] += next;
        barrier(CLK_LOCAL_MEM_FENCE);
        value = next + r;
    }
    out[get_global_id(1) * get_global_size(0) + get_global_id(0)] = value + history[0] + 2 * history[1] + 3 * history[2] + 4 * history[3];
}

/* Work-items change an argument, and have copies of their own across barriers. */
typedef struct {
    int value, steps[3];
} mark;

kernel void marks(global int *out, mark m)
{
    local int passed[8];
    uint lid = get_local_id(0), n = get_local_size(0);
    m.value += (int)get_global_id(0);
    for (int i = 0; i < 3; i++) {
        m.steps[(lid + i) % 3] += m.value;
        passed[lid] = m.steps[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        m.value += passed[(lid + 1) % n];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    /* Variables are aligned to their size; the device has no images and no doubles. */
    char first;
    float16 vector;
    local int16 all;
    vector.s0 = first = lid;
    all = (int)lid;
#if defined(__IMAGE_SUPPORT__) || defined(cl_khr_fp64) || !defined(__EMBEDDED_PROFILE__)
    m.value = 0;
#endif
    uint unaligned = ((uint)(size_t)&vector | (uint)(size_t)&all) & 63;
    out[get_global_id(0)] = m.value + unaligned;
}
