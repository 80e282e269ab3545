/* One pixel a work-item. The arguments stand in the order of 'args' in function.yaml. */
kernel void negative(global const uchar *restrict picture, global uchar *restrict negative, uint width) {
  size_t i = get_global_id(1) * width + get_global_id(0);
  negative[i] = 255 - picture[i];
}
