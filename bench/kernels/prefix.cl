/* Inclusive prefix sums in blocks of 256; `sums` receives each block's sum. `add` adds the sums of
 * the blocks before. */
kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void scan(global const int *restrict in, global int *restrict out, global int *restrict sums) {
  local int values[256];
  uint item = get_local_id(0), at = get_global_id(0);
  int sum = in[at];
  values[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint by = 1; by < 256; by *= 2) {
    int more = item >= by ? values[item - by] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum += more;
    values[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  out[at] = sum;
  if (item == 255) sums[get_group_id(0)] = sum;
}

kernel void add(global int *restrict out, global const int *restrict sums) {
  uint at = get_global_id(0);
  if (at >= 256) out[at] += sums[at / 256 - 1];
}
