kernel void crash(global const uint *a, global uint *b) {
  size_t i = get_global_id(0);
  if (a[0] == 7) *(global volatile uint *)(size_t)8 = 1;
  b[i] = a[i] + 1;
}
