kernel void factorial(global const uint *restrict n, global ulong *restrict result, ulong count) {
  size_t item = get_global_id(0);
  if (item >= count) return;
  ulong product = 1;
  for (uint i = 2; i <= n[item] && product; i++) product *= i;
  result[item] = product;
}
