/* Pictures in memory: eight bits per channel, RGB, rows from the top. */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdint.h>

struct image {
  int width, height;
  uint8_t *rgb; /* width * height * 3, owned; image_free frees it */
};

/* Reads a binary PGM (P5) or PPM (P6) of 8 bits. Ends the process with a message on failure. */
struct image image_read(const char *path);
/* Selects the format by the file name: .png (stored, not compressed), .pgm (the red channel),
 * otherwise PPM. */
void image_write(const char *path, const struct image *image);
/* Bilinear, in integers, so that every machine computes the same picture. */
struct image image_resize(const struct image *image, int width, int height);
/* A synthetic picture: a gradient with edges. */
struct image image_pattern(int width, int height);
void image_free(struct image *image);

#endif
