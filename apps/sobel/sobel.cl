/* Sobel's edge detector, per channel, |gx| + |gy| saturated. One work-item per pixel; four bytes
 * per pixel in and out; border pixels extend the picture. */
static int4 pixel(global const uchar4 *in, int x, int y, int width, int height) {
  return convert_int4(in[clamp(y, 0, height - 1) * width + clamp(x, 0, width - 1)]);
}

kernel void sobel(global const uchar4 *restrict in, global uchar4 *restrict out, int width, int height) {
  int x = get_global_id(0);
  int y = get_global_id(1);
  if (x >= width || y >= height) return;
  int4 nw = pixel(in, x - 1, y - 1, width, height);
  int4 n = pixel(in, x, y - 1, width, height);
  int4 ne = pixel(in, x + 1, y - 1, width, height);
  int4 w = pixel(in, x - 1, y, width, height);
  int4 e = pixel(in, x + 1, y, width, height);
  int4 sw = pixel(in, x - 1, y + 1, width, height);
  int4 s = pixel(in, x, y + 1, width, height);
  int4 se = pixel(in, x + 1, y + 1, width, height);
  int4 gx = ne + 2 * e + se - nw - 2 * w - sw;
  int4 gy = sw + 2 * s + se - nw - 2 * n - ne;
  out[y * width + x] = convert_uchar4_sat(convert_int4(abs(gx)) + convert_int4(abs(gy)));
}
