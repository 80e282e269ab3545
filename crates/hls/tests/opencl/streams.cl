/* Kernels whose work-items are a pipeline, with loads that have ports of their own (streams.rs). */

kernel void grey(global const uchar *in, global uchar *out, int width, int height)
{
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height) return;
    int p[3][3];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) p[i][j] = in[clamp(y + i - 1, 0, height - 1) * width + clamp(x + j - 1, 0, width - 1)];
    int gx = p[0][2] + 2 * p[1][2] + p[2][2] - p[0][0] - 2 * p[1][0] - p[2][0];
    int gy = p[2][0] + 2 * p[2][1] + p[2][2] - p[0][0] - 2 * p[0][1] - p[0][2];
    out[y * width + x] = min((int)(abs(gx) + abs(gy)), 255);
}

kernel void add(global const float *a, global const float *b, global float *c)
{
    int i = get_global_id(0);
    c[i] = a[i] + b[i];
}

/* `a` and `b` may be one buffer: the work-item loads what it has stored. */
kernel void own(global int *a, global int *b, global int *c)
{
    int i = get_global_id(0);
    a[i] = i * 7;
    c[i] = b[i] + 1;
    b[i] = c[i] * 2;
}

/* Loads come before the stores of their work-item. */
kernel void swap(global int *a, global int *b)
{
    int i = get_global_id(0), x = a[i], y = b[i];
    a[i] = y;
    b[i] = x + 5;
}

/* Loads and stores of both branches have conditions. */
kernel void choose(global const int *which, global const int *few, global const short *table, global int *out, int n)
{
    int i = get_global_id(0);
    if (i >= n) return;
    int k = which[i];
    if (k < 4)
        out[i] = few[k] * 3;
    else if (k < 8) {
        out[i] = table[k * k];
    }
}

kernel void far(global const int *in, global int *out, int by)
{
    int i = get_global_id(0);
    out[i] = in[i * by];
}

kernel void pairs(global const long *in, global uchar *low, global int *high)
{
    int i = get_global_id(0);
    low[i] = in[i];
    high[2 * i] = in[i] >> 32;
}
