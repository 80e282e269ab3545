/* Runs the kernels of accelerator.cl from an image, and prints their results and errors. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { WORDS = 1024 };

static struct clu cl;
static cl_command_queue queue;

static unsigned char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) exit(EXIT_FILE);
  *size = (size_t)ftell(file);
  rewind(file);
  unsigned char *bytes = clu_alloc(*size);
  if (fread(bytes, 1, *size, file) != *size) exit(EXIT_FILE);
  fclose(file);
  return bytes;
}

static cl_program load(const unsigned char *image, size_t size, cl_int *code) {
  cl_int status;
  return clCreateProgramWithBinary(cl.context, 1, &cl.device, &size, &image, &status, code);
}

static cl_program built(const char *path) {
  size_t size;
  unsigned char *image = read_file(path, &size);
  cl_int code;
  cl_program program = load(image, size, &code);
  clu_must(code, "clCreateProgramWithBinary");
  CLU(clBuildProgram(program, 1, &cl.device, "", NULL, NULL));
  free(image);
  return program;
}

static cl_mem zeroed(size_t bytes) {
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, bytes);
  cl_uint zero = 0;
  CLU(clEnqueueFillBuffer(queue, buffer, &zero, sizeof zero, 0, bytes, 0, NULL, NULL));
  return buffer;
}

static void places(cl_program program) {
  static const struct {
    cl_uint dimensions;
    size_t offset[3], global[3], local[3];
  } launches[] = {
      {1, {1000}, {24}, {8}},
      {2, {3, 70000}, {12, 6}, {4, 3}},
      {3, {7, 0, 100}, {4, 3, 6}, {2, 3, 2}},
  };
  cl_kernel kernel = clu_kernel(program, "places");
  for (size_t n = 0; n < sizeof launches / sizeof *launches; n++) {
    size_t global[3] = {1, 1, 1}, local[3] = {1, 1, 1}, offset[3] = {0};
    cl_uint dimensions = launches[n].dimensions;
    memcpy(global, launches[n].global, dimensions * sizeof *global);
    memcpy(local, launches[n].local, dimensions * sizeof *local);
    memcpy(offset, launches[n].offset, dimensions * sizeof *offset);
    size_t items = global[0] * global[1] * global[2];
    cl_mem out = zeroed(items * 48);
    clu_arg(kernel, 0, sizeof out, &out);
    CLU(clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, 0, NULL, NULL));
    cl_uint *seen = clu_alloc(items * 48);
    CLU(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, items * 48, seen, 0, NULL, NULL));
    size_t wrong = 0;
    for (size_t at = 0; at < items; at++) {
      size_t place[3] = {at % global[0], at / global[0] % global[1], at / global[0] / global[1]};
      for (size_t d = 0; d < 3; d++) {
        const cl_uint *own = seen + 12 * at + d;
        wrong += own[0] != offset[d] + place[d] || own[3] != place[d] % local[d] || own[6] != place[d] / local[d] ||
                 own[9] != local[d];
      }
    }
    printf("places %u wrong %zu\n", dimensions, wrong);
    free(seen);
    clReleaseMemObject(out);
  }
}

/* A store beyond the end of its buffer, between two others. */
static void stray(cl_program program) {
  cl_mem below = zeroed(4 * WORDS), target = zeroed(4 * WORDS), above = zeroed(4 * WORDS);
  cl_kernel kernel = clu_kernel(program, "stray");
  size_t one = 1;
  cl_ulong places[] = {WORDS, WORDS + 16, 1 << 20, (cl_ulong)-1, WORDS - 1};
  for (size_t n = 0; n < 5; n++) {
    cl_event event;
    clu_arg(kernel, 0, sizeof below, &below);
    clu_arg(kernel, 1, sizeof target, &target);
    clu_arg(kernel, 2, sizeof places[n], &places[n]);
    CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, &event));
    clFinish(queue);
    cl_int status = 99;
    CLU(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    printf("stray %zu status %d\n", n, status);
    clReleaseEvent(event);
  }
  cl_uint seen[WORDS], touched = 0;
  cl_mem all[] = {below, target, above};
  for (size_t n = 0; n < 3; n++) {
    CLU(clEnqueueReadBuffer(queue, all[n], CL_TRUE, 0, sizeof seen, seen, 0, NULL, NULL));
    for (size_t at = 0; at < WORDS; at++) touched += seen[at] == 0x5a5a5a5au;
  }
  printf("touched %u\n", touched);
}

/* Fresh buffers hold nothing of others, and kernels see their own bytes alone. */
static void watch(cl_program program, cl_uint rounds) {
  cl_uint seen[WORDS], dirty = 0, wrong = 0;
  cl_kernel kernel = clu_kernel(program, "watch");
  cl_mem count = zeroed(4);
  size_t items = WORDS;
  printf("ready\n");
  fflush(stdout);
  for (cl_uint round = 0; round < rounds; round++) {
    cl_mem data = clu_buffer(&cl, CL_MEM_READ_WRITE, sizeof seen);
    CLU(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof seen, seen, 0, NULL, NULL));
    for (size_t at = 0; at < WORDS; at++) dirty += seen[at] != 0;
    cl_uint patterns[] = {0, 0xa0000000u + round, 0xb0000000u + round};
    clu_arg(kernel, 0, sizeof data, &data);
    clu_arg(kernel, 1, sizeof count, &count);
    for (size_t n = 0; n < 2; n++) {
      clu_arg(kernel, 2, sizeof(cl_uint), &patterns[n]);
      clu_arg(kernel, 3, sizeof(cl_uint), &patterns[n + 1]);
      CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
    }
    CLU(clFinish(queue));
    clReleaseMemObject(data);
  }
  CLU(clEnqueueReadBuffer(queue, count, CL_TRUE, 0, sizeof wrong, &wrong, 0, NULL, NULL));
  printf("dirty %u\nwrong %u\n", dirty, wrong);
}

/* The image that the device returns is the one that was loaded; a damaged one is refused. */
static void image(cl_program program, const char *path) {
  size_t size, returned;
  unsigned char *file = read_file(path, &size);
  CLU(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof returned, &returned, NULL));
  unsigned char *copy = clu_alloc(returned);
  CLU(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof copy, &copy, NULL));
  printf("same %d\n", size == returned && !memcmp(file, copy, size));
  cl_kernel kernels[8];
  cl_uint count = 0;
  CLU(clCreateKernelsInProgram(program, 8, kernels, &count));
  printf("kernels %u\n", count);
  size_t places[] = {0, 8, 40, 60, size / 2, size - 1};
  for (size_t n = 0; n < sizeof places / sizeof *places; n++) {
    cl_int code;
    copy[places[n]] ^= 4;
    load(copy, size, &code);
    copy[places[n]] ^= 4;
    printf("damaged %d\n", code);
  }
  cl_int code;
  load(copy, size - 1, &code);
  printf("truncated %d\n", code);
  free(file);
  free(copy);
}

static void endless(cl_program program) {
  cl_mem word = zeroed(4);
  cl_kernel kernel = clu_kernel(program, "endless");
  clu_arg(kernel, 0, sizeof word, &word);
  size_t one = 1;
  cl_event event;
  CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, &event));
  clFlush(queue);
  printf("ready\n");
  fflush(stdout);
  printf("finish %d\n", clFinish(queue));
}

/* Launches with a barrier that half of the work-items reach, and with one that all reach. */
static void diverge(cl_program program) {
  cl_mem out = zeroed(32);
  cl_kernel kernel = clu_kernel(program, "diverge");
  size_t global = 8, local = 4;
  cl_uint limits[] = {2, 4};
  for (size_t n = 0; n < 2; n++) {
    cl_event event;
    clu_arg(kernel, 0, sizeof out, &out);
    clu_arg(kernel, 1, sizeof limits[n], &limits[n]);
    CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, &event));
    clFinish(queue);
    cl_int status = 99;
    CLU(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    printf("diverge %zu status %d\n", n, status);
    clReleaseEvent(event);
  }
}

/* accelerator IMAGE places|stray|image|endless|diverge|watch [ROUNDS] */
int main(int argc, char **argv) {
  if (argc < 3) return EXIT_USAGE;
  clu_open(&cl, NULL);
  queue = clu_queue(&cl, 0);
  cl_program program = built(argv[1]);
  if (!strcmp(argv[2], "places")) places(program);
  if (!strcmp(argv[2], "stray")) stray(program);
  if (!strcmp(argv[2], "image")) image(program, argv[1]);
  if (!strcmp(argv[2], "endless")) endless(program);
  if (!strcmp(argv[2], "diverge")) diverge(program);
  if (!strcmp(argv[2], "watch")) watch(program, argc > 3 ? (cl_uint)atoi(argv[3]) : 1);
  printf("ended\n");
  return 0;
}
