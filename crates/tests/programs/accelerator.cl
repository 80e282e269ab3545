/* Kernels of programs/accelerator.c. */

/* Each work-item's place, as it sees it. */
kernel void places(global uint *out) {
  uint x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);
  uint z = get_global_id(2) - get_global_offset(2);
  uint at = (z * (uint)get_global_size(1) + y) * (uint)get_global_size(0) + x;
  global uint *own = out + 12 * at;
  own[0] = get_global_id(0), own[1] = get_global_id(1), own[2] = get_global_id(2);
  own[3] = get_local_id(0), own[4] = get_local_id(1), own[5] = get_local_id(2);
  own[6] = get_group_id(0), own[7] = get_group_id(1), own[8] = get_group_id(2);
  own[9] = get_local_size(0), own[10] = get_local_size(1), own[11] = get_local_size(2);
}

/* Counts words that differ from the pattern, and writes the next one. */
kernel void watch(global uint *data, global uint *wrong, uint pattern, uint next) {
  size_t at = get_global_id(0);
  if (data[at] != pattern) atomic_inc(wrong);
  data[at] = next;
}

/* Stores one word anywhere. */
kernel void stray(global uint *before, global uint *target, ulong at) {
  before[0] = 1;
  target[at] = 0x5a5a5a5au;
}

kernel void endless(global uint *word) {
  volatile global uint *seen = word;
  while (*seen != 0xffffffffu) *seen = 0;
}

/* A barrier that all work-items of a group reach, or not. */
kernel void diverge(global uint *out, uint limit) {
  if (get_local_id(0) < limit) barrier(CLK_LOCAL_MEM_FENCE);
  out[get_global_id(0)] = 1;
}
