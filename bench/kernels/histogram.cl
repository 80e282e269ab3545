/* Number of occurrences of each byte. Each group counts in local memory. */
kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void histogram(global const uchar *restrict data, global int *counts, uint each) {
  local int own[256];
  uint item = get_local_id(0), begin = get_group_id(0) * 256 * each;
  own[item] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = 0; i < each; i++) atomic_inc(&own[data[begin + i * 256 + item]]);
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_add(&counts[item], own[item]);
}
