/* One number a work-item. The arguments stand in the order of 'args' in function.yaml. */
kernel void multiply(global const float *restrict numbers, float factor, global float *restrict products) {
  size_t i = get_global_id(0);
  products[i] = numbers[i] * factor;
}
