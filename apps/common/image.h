/* Pictures in memory: eight bits a channel, RGB, rows from the top. */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdint.h>

struct image {
  int width, height;
  uint8_t *rgb; /* width * height * 3, owned; image_free frees it */
};

/* Reads a binary PGM (P5) or PPM (P6) of 8 bits. Ends the process with a message when it cannot. */
struct image image_read(const char *path);
/* By the name's ending: .png (stored, not compressed), .pgm (the red channel), anything else PPM. */
void image_write(const char *path, const struct image *image);
/* Bilinear, in integers, so that every machine makes the same picture. */
struct image image_resize(const struct image *image, int width, int height);
/* A picture without a file: a gradient with edges in it. */
struct image image_pattern(int width, int height);
void image_free(struct image *image);

#endif
