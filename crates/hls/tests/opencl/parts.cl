/* A hash of each work-item's row of `count` words, which begins `stride` words after the one before. The
 * multiplication of an iteration waits for the one before, and for the private array. */
kernel void hashes(global const uint *restrict rows, global uint *restrict out, uint count, uint stride)
{
    size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1), z = get_global_id(2) - get_global_offset(2);
    size_t at = (z * get_global_size(1) + y) * get_global_size(0) + x;
    uint a = get_global_id(0), b = get_global_id(1) ^ get_global_id(2) << 16;
    uint last[4] = {0};
    for (uint i = 0; i < count; i++) {
        a = rotate((a ^ rows[at * stride + i]) * 0x9e3779b1u + last[i & 3], 7u);
        last[a & 3] = b;
        b += a >> 3;
    }
    out[at] = a ^ b;
}

/* The same loop, but each work-item has another number of iterations. */
kernel void lengths(global const uint *restrict rows, global uint *restrict out, uint count)
{
    uint at = get_global_id(0), a = at;
    for (uint i = 0; i < (count + at) % 5; i++) a = rotate((a ^ rows[i]) * 0x9e3779b1u, 7u);
    out[at] = a;
}

/* A loop without memory. */
kernel void powers(global uint *out, uint count)
{
    uint a = get_global_id(0) | 1, b = a;
    for (uint i = 0; i < count; i++) a = a * b + (a >> 5), b ^= a;
    out[get_global_id(0)] = a;
}

/* Work-items keep their form in a kernel with atomic functions, and in one that prints. */
kernel void counted(global int *counts, uint count)
{
    int a = get_global_id(0);
    for (uint i = 0; i < count; i++) a = a * 77 + counts[8 + (a & 3)];
    atomic_add(&counts[get_global_id(0) & 7], a);
}

kernel void printed(global const int *restrict in, uint count)
{
    int a = get_global_id(0);
    for (uint i = 0; i < count; i++) a = a * 77 + in[a & 3];
    printf("%d\n", a);
}
