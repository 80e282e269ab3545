/* Sixty-four characters per work-item. */
kernel void uppercase(global const uchar *restrict text, global uchar *restrict upper, ulong length) {
  size_t first = get_global_id(0) * 64;
  size_t end = first + 64 < length ? first + 64 : length;
  for (size_t i = first; i < end; i++) {
    uchar c = text[i];
    upper[i] = c >= 'a' && c <= 'z' ? c - 32 : c;
  }
}
