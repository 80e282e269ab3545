/* Edges of a picture of 8-bit gray pixels; pixels beyond its border are those of the border. */
int at(global const uchar *picture, int x, int y, int width, int height) {
  return picture[clamp(y, 0, height - 1) * width + clamp(x, 0, width - 1)];
}

kernel void sobel(global const uchar *restrict picture, global uchar *restrict edges, int width,
                  int height) {
  int x = get_global_id(0), y = get_global_id(1);
  int a = at(picture, x - 1, y - 1, width, height), b = at(picture, x, y - 1, width, height);
  int c = at(picture, x + 1, y - 1, width, height), d = at(picture, x - 1, y, width, height);
  int e = at(picture, x + 1, y, width, height), f = at(picture, x - 1, y + 1, width, height);
  int g = at(picture, x, y + 1, width, height), h = at(picture, x + 1, y + 1, width, height);
  int across = c + 2 * e + h - a - 2 * d - f, down = f + 2 * g + h - a - 2 * b - c;
  edges[y * width + x] = min(abs(across) + abs(down), 255u);
}
