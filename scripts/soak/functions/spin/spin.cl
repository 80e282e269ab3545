kernel void spin(global const volatile uint *a, global uint *b) {
  size_t i = get_global_id(0);
  while (a[0] == 7) b[i] += 1;
  b[i] = a[i] + 1;
}
