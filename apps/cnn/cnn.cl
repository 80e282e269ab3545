/* One kernel per layer type, and the data mover. Feature maps are planes of float, one per channel;
 * a plane may have a border of zeros for the convolution that reads it next: `stride` floats per
 * row, `plane` floats per channel, the first real pixel at `offset`. */

/* Unpacks an RGB picture of bytes into three normalized planes. */
kernel void mem_read(global const uchar *restrict rgb, global float *restrict out, int stride, int plane, int offset) {
  int x = get_global_id(0), y = get_global_id(1), c = get_global_id(2);
  int width = get_global_size(0);
  out[c * plane + y * stride + x + offset] = ((float)rgb[(y * width + x) * 3 + c] - 118.0f) * (1.0f / 64.0f);
}

/* Sixteen neighboring pixels of eight output channels. Weights are stored as [channel /
 * 8][c][ky][kx][8]. Reads of the last block of a row go past its end;
 * those lanes are not stored. */
kernel void conv(global const float *restrict in, global const float *restrict weights, global const float *restrict bias,
                 global float *restrict out, int channels_in, int size, int step, int in_stride, int in_plane,
                 int group_channels_out, int first_block, int out_width, int out_stride, int out_plane, int out_offset) {
  int x = get_global_id(0) * 16, y = get_global_id(1), block = first_block + get_global_id(2);
  global const float *from = in + (size_t)(block * 8 / group_channels_out) * channels_in * in_plane + y * step * in_stride + x * step;
  global const float *w = weights + (size_t)block * channels_in * size * size * 8;
  bias += block * 8;
  float16 a0 = bias[0], a1 = bias[1], a2 = bias[2], a3 = bias[3], a4 = bias[4], a5 = bias[5], a6 = bias[6], a7 = bias[7];
#define ACCUMULATE(v)                                                                                          \
  a0 = mad(v, (float16)w[0], a0); a1 = mad(v, (float16)w[1], a1); a2 = mad(v, (float16)w[2], a2);              \
  a3 = mad(v, (float16)w[3], a3); a4 = mad(v, (float16)w[4], a4); a5 = mad(v, (float16)w[5], a5);              \
  a6 = mad(v, (float16)w[6], a6); a7 = mad(v, (float16)w[7], a7); w += 8
  if (step == 1) {
    for (int c = 0; c < channels_in; c++)
      for (int ky = 0; ky < size; ky++)
        for (int kx = 0; kx < size; kx++) {
          float16 v = vload16(0, from + c * in_plane + ky * in_stride + kx);
          ACCUMULATE(v);
        }
  } else {
    for (int c = 0; c < channels_in; c++)
      for (int ky = 0; ky < size; ky++)
        for (int kx = 0; kx < size; kx++) {
          global const float *p = from + c * in_plane + ky * in_stride + kx;
          float16 v = (float16)(p[0], p[step], p[2 * step], p[3 * step], p[4 * step], p[5 * step], p[6 * step], p[7 * step],
                                p[8 * step], p[9 * step], p[10 * step], p[11 * step], p[12 * step], p[13 * step], p[14 * step],
                                p[15 * step]);
          ACCUMULATE(v);
        }
  }
  float16 sums[8] = {a0, a1, a2, a3, a4, a5, a6, a7};
  global float *to = out + (size_t)block * 8 * out_plane + y * out_stride + x + out_offset;
  for (int i = 0; i < 8; i++, to += out_plane) {
    float16 r = fmax(sums[i], (float16)0.0f);
    if (x + 16 <= out_width) {
      vstore16(r, 0, to);
    } else {
      float lanes[16];
      vstore16(r, 0, lanes);
      for (int lane = 0; x + lane < out_width; lane++) to[lane] = lanes[lane];
    }
  }
}

kernel void pool(global const float *restrict in, global float *restrict out, int size, int step, int in_stride, int in_plane,
                 int out_stride, int out_plane, int out_offset) {
  int x = get_global_id(0), y = get_global_id(1), c = get_global_id(2);
  global const float *from = in + (size_t)c * in_plane + y * step * in_stride + x * step;
  float most = from[0];
  for (int ky = 0; ky < size; ky++)
    for (int kx = 0; kx < size; kx++) most = fmax(most, from[ky * in_stride + kx]);
  out[(size_t)c * out_plane + y * out_stride + x + out_offset] = most;
}

/* Local response normalization over five channels (Krizhevsky 2012: k 2, alpha 1e-4, beta 3/4). */
kernel void lrn(global const float *restrict in, global float *restrict out, int channels, int in_stride, int in_plane,
                int out_stride, int out_plane, int out_offset) {
  int x = get_global_id(0), y = get_global_id(1), c = get_global_id(2);
  global const float *at = in + y * in_stride + x;
  float sum = 0.0f;
  for (int i = max(c - 2, 0); i <= min(c + 2, channels - 1); i++) {
    float v = at[(size_t)i * in_plane];
    sum += v * v;
  }
  float root = sqrt(2.0f + 1e-4f * sum);
  out[(size_t)c * out_plane + y * out_stride + x + out_offset] = at[(size_t)c * in_plane] / (root * sqrt(root));
}

/* One output per work-item; count_in is a multiple of 16. */
kernel void fully_connected(global const float *restrict in, global const float *restrict weights,
                            global const float *restrict bias, global float *restrict out, int count_in, int first, int relu) {
  int row = first + get_global_id(0);
  global const float *w = weights + (size_t)row * count_in;
  float16 a = 0.0f, b = 0.0f;
  int i = 0;
  for (; i + 32 <= count_in; i += 32) {
    a = mad(vload16(0, in + i), vload16(0, w + i), a);
    b = mad(vload16(0, in + i + 16), vload16(0, w + i + 16), b);
  }
  if (i < count_in) a = mad(vload16(0, in + i), vload16(0, w + i), a);
  float8 s8 = (a + b).lo + (a + b).hi;
  float4 s4 = s8.lo + s8.hi;
  float sum = bias[row] + (s4.x + s4.y) + (s4.z + s4.w);
  out[row] = relu ? fmax(sum, 0.0f) : sum;
}

/* A single work-item: a reduction would not pay for a thousand classes. */
kernel void softmax(global const float *restrict in, global float *restrict out, int count) {
  float most = in[0], sum = 0.0f;
  for (int i = 1; i < count; i++) most = fmax(most, in[i]);
  for (int i = 0; i < count; i++) {
    out[i] = exp(in[i] - most);
    sum += out[i];
  }
  for (int i = 0; i < count; i++) out[i] /= sum;
}
