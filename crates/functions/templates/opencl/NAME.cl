/* One element a work-item. */
kernel void NAME_WORD(global const float *restrict x, global float *restrict y, float a, float b, uint count) {
  size_t i = get_global_id(0);
  if (i < count) y[i] = a * x[i] + b;
}
