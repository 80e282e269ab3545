#define _POSIX_C_SOURCE 200809L
#include "image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { SIDE_MAX = 32768 };

static _Noreturn void fail(const char *path, const char *what) {
  fprintf(stderr, "error: %s: %s\n", path, what);
  exit(EXIT_FILE);
}

static struct image blank(int width, int height) {
  return (struct image){width, height, clu_alloc((size_t)width * (size_t)height * 3)};
}

/* The next number of a PNM header, past white space and comments; -1 when there is none. */
static long header_number(FILE *file) {
  int c = fgetc(file);
  while (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '#') {
    if (c == '#')
      while (c != '\n' && c != EOF) c = fgetc(file);
    else
      c = fgetc(file);
  }
  if (c < '0' || c > '9') return -1;
  long value = 0;
  while (c >= '0' && c <= '9' && value < 1000000) {
    value = value * 10 + (c - '0');
    c = fgetc(file);
  }
  return value;
}

struct image image_read(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail(path, strerror(errno));
  int p = fgetc(file), kind = fgetc(file);
  if (p != 'P' || (kind != '5' && kind != '6')) fail(path, "is not a binary PGM or PPM (P5, P6); convert it first");
  long width = header_number(file), height = header_number(file), depth = header_number(file);
  if (width < 1 || height < 1 || width > SIDE_MAX || height > SIDE_MAX) fail(path, "has no usable width and height");
  if (depth != 255) fail(path, "does not have 8 bits per channel");
  struct image image = blank((int)width, (int)height);
  size_t pixels = (size_t)width * (size_t)height;
  size_t channels = kind == '6' ? 3 : 1;
  if (fread(image.rgb, channels, pixels, file) != pixels) fail(path, "ends before its last pixel");
  fclose(file);
  if (channels == 1)
    for (size_t i = pixels; i-- > 0;) image.rgb[3 * i] = image.rgb[3 * i + 1] = image.rgb[3 * i + 2] = image.rgb[i];
  return image;
}

static uint32_t crc_table[256];

static uint32_t crc(uint32_t crc, const uint8_t *data, size_t length) {
  if (!crc_table[1])
    for (uint32_t n = 0; n < 256; n++) {
      uint32_t c = n;
      for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
      crc_table[n] = c;
    }
  crc = ~crc;
  for (size_t i = 0; i < length; i++) crc = crc_table[(crc ^ data[i]) & 255] ^ (crc >> 8);
  return ~crc;
}

static void big_endian(uint8_t *to, uint32_t value) {
  for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void png_chunk(FILE *file, const char *type, const uint8_t *data, size_t length) {
  uint8_t word[4];
  big_endian(word, (uint32_t)length);
  fwrite(word, 1, 4, file);
  fwrite(type, 1, 4, file);
  fwrite(data, 1, length, file);
  big_endian(word, crc(crc(0, (const uint8_t *)type, 4), data, length));
  fwrite(word, 1, 4, file);
}

/* PNG with stored deflate blocks: no compression library,
 * and the bytes depend on the pixels only. */
static void png_write(FILE *file, const struct image *image) {
  fwrite("\x89PNG\r\n\x1a\n", 1, 8, file);
  uint8_t header[13] = {[8] = 8, [9] = 2};
  big_endian(header, (uint32_t)image->width);
  big_endian(header + 4, (uint32_t)image->height);
  png_chunk(file, "IHDR", header, sizeof header);
  size_t row = (size_t)image->width * 3, raw_size = (row + 1) * (size_t)image->height;
  uint8_t *raw = clu_alloc(raw_size);
  for (int y = 0; y < image->height; y++) {
    raw[(row + 1) * (size_t)y] = 0;
    memcpy(raw + (row + 1) * (size_t)y + 1, image->rgb + row * (size_t)y, row);
  }
  size_t blocks = (raw_size + 65534) / 65535, size = 2 + raw_size + 5 * blocks + 4, at = 0;
  uint8_t *data = clu_alloc(size);
  data[at++] = 0x78;
  data[at++] = 0x01;
  uint32_t a = 1, b = 0;
  for (size_t from = 0; from < raw_size;) {
    size_t length = raw_size - from < 65535 ? raw_size - from : 65535;
    data[at++] = from + length == raw_size;
    data[at++] = (uint8_t)length;
    data[at++] = (uint8_t)(length >> 8);
    data[at++] = (uint8_t)~length;
    data[at++] = (uint8_t)(~length >> 8);
    memcpy(data + at, raw + from, length);
    for (size_t i = 0; i < length; i++) {
      a = (a + raw[from + i]) % 65521;
      b = (b + a) % 65521;
    }
    at += length;
    from += length;
  }
  big_endian(data + at, b << 16 | a);
  png_chunk(file, "IDAT", data, size);
  png_chunk(file, "IEND", NULL, 0);
  free(data);
  free(raw);
}

void image_write(const char *path, const struct image *image) {
  FILE *file = fopen(path, "wb");
  if (!file) fail(path, strerror(errno));
  size_t pixels = (size_t)image->width * (size_t)image->height;
  const char *dot = strrchr(path, '.');
  if (dot && !strcmp(dot, ".png")) {
    png_write(file, image);
  } else if (dot && !strcmp(dot, ".pgm")) {
    fprintf(file, "P5\n%d %d\n255\n", image->width, image->height);
    for (size_t i = 0; i < pixels; i++) fputc(image->rgb[3 * i], file);
  } else {
    fprintf(file, "P6\n%d %d\n255\n", image->width, image->height);
    fwrite(image->rgb, 3, pixels, file);
  }
  bool failed = ferror(file) != 0;
  if (fclose(file) || failed) fail(path, "could not be written completely (check the free disk space)");
}

struct image image_resize(const struct image *image, int width, int height) {
  struct image out = blank(width, height);
  for (int y = 0; y < height; y++) {
    /* 16.16 fixed point, pixel centers aligned. */
    int64_t fy = (((int64_t)(2 * y + 1) * image->height) << 15) / height - 32768;
    if (fy < 0) fy = 0;
    int y0 = (int)(fy >> 16), y1 = y0 + 1 < image->height ? y0 + 1 : y0;
    int64_t wy = fy & 65535;
    for (int x = 0; x < width; x++) {
      int64_t fx = (((int64_t)(2 * x + 1) * image->width) << 15) / width - 32768;
      if (fx < 0) fx = 0;
      int x0 = (int)(fx >> 16), x1 = x0 + 1 < image->width ? x0 + 1 : x0;
      int64_t wx = fx & 65535;
      for (int c = 0; c < 3; c++) {
#define AT(px, py) image->rgb[((size_t)(py) * (size_t)image->width + (size_t)(px)) * 3 + (size_t)c]
        int64_t top = AT(x0, y0) * (65536 - wx) + AT(x1, y0) * wx;
        int64_t low = AT(x0, y1) * (65536 - wx) + AT(x1, y1) * wx;
#undef AT
        out.rgb[((size_t)y * (size_t)width + (size_t)x) * 3 + (size_t)c] =
            (uint8_t)((top * (65536 - wy) + low * wy + ((int64_t)1 << 31)) >> 32);
      }
    }
  }
  return out;
}

struct image image_pattern(int width, int height) {
  struct image out = blank(width, height);
  for (int y = 0; y < height; y++)
    for (int x = 0; x < width; x++) {
      uint8_t *p = out.rgb + ((size_t)y * (size_t)width + (size_t)x) * 3;
      p[0] = (uint8_t)(x * 255 / width);
      p[1] = (uint8_t)(y * 255 / height);
      p[2] = ((x / 16) ^ (y / 16)) & 1 ? 200 : 40;
    }
  return out;
}

void image_free(struct image *image) {
  free(image->rgb);
  *image = (struct image){0};
}
