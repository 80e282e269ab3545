/* Sobel's edge detector on gray pixels, |gx| + |gy| saturated. One work-item per pixel. */
static int pixel(global const uchar *in, int x, int y, int width, int height) {
  return in[(size_t)clamp(y, 0, height - 1) * width + clamp(x, 0, width - 1)];
}

kernel void sobel(global const uchar *restrict in, global uchar *restrict out, int width, int height) {
  int x = get_global_id(0);
  int y = get_global_id(1);
  if (x >= width || y >= height) return;
  int nw = pixel(in, x - 1, y - 1, width, height);
  int n = pixel(in, x, y - 1, width, height);
  int ne = pixel(in, x + 1, y - 1, width, height);
  int w = pixel(in, x - 1, y, width, height);
  int e = pixel(in, x + 1, y, width, height);
  int sw = pixel(in, x - 1, y + 1, width, height);
  int s = pixel(in, x, y + 1, width, height);
  int se = pixel(in, x + 1, y + 1, width, height);
  int gx = ne + 2 * e + se - nw - 2 * w - sw;
  int gy = sw + 2 * s + se - nw - 2 * n - ne;
  out[(size_t)y * width + x] = convert_uchar_sat(abs(gx) + abs(gy));
}
