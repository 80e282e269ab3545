/* One pixel of three channels a work-item. */
kernel void NAME_WORD(global const uchar *restrict picture, global uchar *restrict negative, uint width, uint height) {
  size_t x = get_global_id(0), y = get_global_id(1);
  if (x >= width || y >= height) return;
  size_t pixel = (y * width + x) * 3;
  for (int channel = 0; channel < 3; channel++) negative[pixel + channel] = 255 - picture[pixel + channel];
}
