/* A program with many objects of which it writes few, while its session moves.

   resident COUNT BYTES DIRTY

   Has COUNT buffers of BYTES, one of an odd size beyond 32 MiB, an image with several slices and one
   of a single row. Each pass adds 1 to every word of the first DIRTY buffers and waits. Every 20
   passes all bytes of all objects are compared, and a line `checked N` is printed. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { ODD = (33 << 20) + 4, WIDTH = 300, HEIGHT = 70, SLICES = 11, ROW = 5000, PASSES = 20 };

static const char source[] =
    "kernel void increase(global uint *words) { words[get_global_id(0)] += 1u; }\n";

static struct clu cl;
static cl_command_queue queue;

static cl_uint word(size_t object, size_t at) {
  return (cl_uint)(at * 2654435761u + object * 40503u + 17u);
}

/* Compares words that `added` was added to. */
static void compare(const char *what, size_t object, const cl_uint *got, size_t count, cl_uint added) {
  for (size_t i = 0; i < count; i++)
    if (got[i] != word(object, i) + added) {
      printf("wrong %s %zu at %zu: %u, not %u\n", what, object, i, got[i], word(object, i) + added);
      exit(EXIT_WRONG);
    }
}

static cl_uint *pattern(size_t object, size_t bytes) {
  cl_uint *words = clu_alloc(bytes);
  for (size_t i = 0; i < bytes / 4; i++) words[i] = word(object, i);
  return words;
}

static cl_mem buffer(size_t object, size_t bytes) {
  cl_int code;
  cl_uint *words = pattern(object, bytes);
  cl_mem made = clCreateBuffer(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, words, &code);
  clu_must(code, "clCreateBuffer");
  free(words);
  return made;
}

static cl_mem picture(size_t object, cl_image_desc desc, size_t pixels) {
  cl_int code;
  cl_image_format format = {CL_R, CL_UNSIGNED_INT32};
  cl_uint *words = pattern(object, pixels * 4);
  cl_mem made =
      clCreateImage(cl.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &desc, words, &code);
  clu_must(code, "clCreateImage");
  free(words);
  return made;
}

static void check_image(size_t object, cl_mem image, const size_t region[3]) {
  size_t origin[3] = {0, 0, 0}, count = region[0] * region[1] * region[2];
  cl_uint *got = clu_alloc(count * 4);
  CLU(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, got, 0, NULL, NULL));
  compare("image", object, got, count, 0);
  free(got);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  size_t count = strtoul(argv[1], NULL, 10), bytes = strtoul(argv[2], NULL, 10);
  size_t dirty = strtoul(argv[3], NULL, 10), words = bytes / 4;
  clu_open(&cl, NULL);
  queue = clu_queue(&cl, 0);
  cl_program program = clu_program(&cl, source, "");
  cl_kernel increase = clu_kernel(program, "increase");
  cl_mem *all = clu_alloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) all[i] = buffer(i, bytes);
  cl_mem odd = buffer(count, ODD);
  cl_image_desc many = {.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY, .image_width = WIDTH,
                        .image_height = HEIGHT, .image_array_size = SLICES};
  cl_image_desc single = {.image_type = CL_MEM_OBJECT_IMAGE1D, .image_width = ROW};
  cl_mem slices = picture(count + 1, many, (size_t)WIDTH * HEIGHT * SLICES);
  cl_mem row = picture(count + 2, single, ROW);
  cl_uint *got = clu_alloc(ODD > bytes ? ODD : bytes);
  for (cl_uint pass = 1;; pass++) {
    for (size_t i = 0; i < dirty; i++) {
      clu_arg(increase, 0, sizeof all[i], &all[i]);
      CLU(clEnqueueNDRangeKernel(queue, increase, 1, NULL, &words, NULL, 0, NULL, NULL));
    }
    CLU(clFinish(queue));
    if (pass % PASSES) continue;
    for (size_t i = 0; i < count; i++) {
      CLU(clEnqueueReadBuffer(queue, all[i], CL_TRUE, 0, bytes, got, 0, NULL, NULL));
      compare("buffer", i, got, words, i < dirty ? pass : 0);
    }
    CLU(clEnqueueReadBuffer(queue, odd, CL_TRUE, 0, ODD, got, 0, NULL, NULL));
    compare("buffer", count, got, ODD / 4, 0);
    check_image(count + 1, slices, (size_t[]){WIDTH, HEIGHT, SLICES});
    check_image(count + 2, row, (size_t[]){ROW, 1, 1});
    printf("checked %u\n", pass);
    fflush(stdout);
  }
}
