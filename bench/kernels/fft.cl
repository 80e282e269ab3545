/* Transforms of 1,024 complex floats (radix 2, decimation in time), each by a group. `in` is in
 * bit-reversed order; `roots`: exp(-2 pi i k / 1024) for k below 512. */
kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void fft(global const float2 *restrict in, global float2 *restrict out,
         global const float2 *restrict roots) {
  local float2 data[1024], root[512];
  uint item = get_local_id(0), begin = get_group_id(0) * 1024;
  for (uint i = 0; i < 4; i++) data[i * 256 + item] = in[begin + i * 256 + item];
  for (uint i = 0; i < 2; i++) root[i * 256 + item] = roots[i * 256 + item];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint stage = 0; stage < 10; stage++) {
    for (uint i = 0; i < 2; i++) {
      uint pair = i * 256 + item, span = 1 << stage;
      uint low = pair & (span - 1), at = ((pair >> stage) << (stage + 1)) + low;
      float2 w = root[low << (9 - stage)], a = data[at], b = data[at + span];
      float2 c = (float2)(b.x * w.x - b.y * w.y, b.x * w.y + b.y * w.x);
      data[at] = a + c;
      data[at + span] = a - c;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (uint i = 0; i < 4; i++) out[begin + i * 256 + item] = data[i * 256 + item];
}
