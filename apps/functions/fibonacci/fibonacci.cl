kernel void fibonacci(global const uint *restrict n, global ulong *restrict result, ulong count) {
  size_t item = get_global_id(0);
  if (item >= count) return;
  ulong before = 1, number = 0;
  for (uint i = 0; i < n[item]; i++) {
    ulong next = before + number;
    before = number;
    number = next;
  }
  result[item] = number;
}
