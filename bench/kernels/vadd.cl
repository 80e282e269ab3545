/* c = a + b. */
kernel void vadd(global const float *restrict a, global const float *restrict b,
                 global float *restrict c) {
  size_t i = get_global_id(0);
  c[i] = a[i] + b[i];
}
