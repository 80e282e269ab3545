/* Measures several devices in one context: a buffer that kernels on each device change in turn, and
 * independent kernels on one device and on all.
 *
 *   devices [--sizes 1M,16M,256M] [--rounds 5] [--launches 100]
 *
 * In a round, a kernel on each device increments every word of the buffer, after the one before: the
 * contents move from device to device. Prints the median time of a round for each size, and the rate
 * of independent kernels. Exits with 1 if a word of the buffer is wrong at the end. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "../../apps/common/clu.h"

enum { DEVICES_MAX = 8, SIZES_MAX = 16, ITEMS = 1 << 18 };

static const char *source =
    "kernel void increment(global uint *a) { a[get_global_id(0)] += get_global_id(0) % 7; }\n"
    "kernel void burn(global float *a, int n) {\n"
    "  float x = a[get_global_id(0)];\n"
    "  for (int i = 0; i < n; i++) x = x * 1.0001f + 0.5f;\n"
    "  a[get_global_id(0)] = x;\n"
    "}\n";

struct bench {
  struct clu cl;
  cl_device_id device[DEVICES_MAX];
  cl_command_queue queue[DEVICES_MAX];
  cl_uint devices;
  cl_program program;
};

static void open_all(struct bench *b) {
  clu_open(&b->cl, NULL);
  clReleaseContext(b->cl.context);
  CLU(clGetDeviceIDs(b->cl.platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, b->device, &b->devices));
  if (b->devices > DEVICES_MAX) b->devices = DEVICES_MAX;
  cl_int code;
  b->cl.context = clCreateContext(NULL, b->devices, b->device, NULL, NULL, &code);
  clu_must(code, "clCreateContext");
  for (cl_uint i = 0; i < b->devices; i++) {
    b->queue[i] = clCreateCommandQueue(b->cl.context, b->device[i], 0, &code);
    clu_must(code, "clCreateCommandQueue");
  }
  b->program = clCreateProgramWithSource(b->cl.context, 1, &source, NULL, &code);
  clu_must(code, "clCreateProgramWithSource");
  CLU(clBuildProgram(b->program, b->devices, b->device, "", NULL, NULL));
}

/* A kernel on each device in turn, each after the one before; the host waits for the last only. */
static void turn(struct bench *b, cl_kernel kernel, size_t words) {
  cl_event last = NULL;
  for (cl_uint i = 0; i < b->devices; i++) {
    cl_event event;
    CLU(clEnqueueNDRangeKernel(b->queue[i], kernel, 1, NULL, &words, NULL, last ? 1 : 0, last ? &last : NULL,
                               &event));
    CLU(clFlush(b->queue[i]));
    if (last) clReleaseEvent(last);
    last = event;
  }
  CLU(clWaitForEvents(1, &last));
  clReleaseEvent(last);
}

/* Returns whether the buffer is right at the end. */
static bool move(struct bench *b, size_t bytes, long rounds) {
  size_t words = bytes / 4;
  cl_mem buffer = clu_buffer(&b->cl, CL_MEM_READ_WRITE, bytes);
  cl_kernel kernel = clu_kernel(b->program, "increment");
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  cl_uint five = 5;
  CLU(clEnqueueFillBuffer(b->queue[0], buffer, &five, 4, 0, words * 4, 0, NULL, NULL));
  CLU(clFinish(b->queue[0]));
  struct samples ms = {0};
  for (long r = -1; r < rounds; r++) {
    double began = clu_now_ms();
    turn(b, kernel, words);
    /* The first round creates the buffer's memory on each device. */
    if (r >= 0) samples_add(&ms, clu_now_ms() - began);
  }
  cl_uint *read = clu_alloc(words * 4);
  CLU(clEnqueueReadBuffer(b->queue[b->devices - 1], buffer, CL_TRUE, 0, words * 4, read, 0, NULL, NULL));
  size_t wrong = 0;
  for (size_t i = 0; i < words; i++)
    wrong += read[i] != five + (cl_uint)(i % 7) * (cl_uint)(rounds + 1) * b->devices;
  printf("%zu bytes: round %.3f ms (%.3f to %.3f)%s\n", bytes, samples_percentile(&ms, 50),
         samples_percentile(&ms, 0), samples_percentile(&ms, 100), wrong ? " WRONG" : "");
  samples_free(&ms);
  free(read);
  clReleaseKernel(kernel);
  clReleaseMemObject(buffer);
  return !wrong;
}

static void independent(struct bench *b, cl_uint used, long launches) {
  cl_kernel kernel[DEVICES_MAX];
  cl_mem buffer[DEVICES_MAX];
  size_t items = ITEMS;
  int n = 20000;
  for (cl_uint i = 0; i < used; i++) {
    kernel[i] = clu_kernel(b->program, "burn");
    buffer[i] = clu_buffer(&b->cl, CL_MEM_READ_WRITE, items * 4);
    clu_arg(kernel[i], 0, sizeof buffer[i], &buffer[i]);
    clu_arg(kernel[i], 1, sizeof n, &n);
    CLU(clEnqueueNDRangeKernel(b->queue[i], kernel[i], 1, NULL, &items, NULL, 0, NULL, NULL));
    CLU(clFinish(b->queue[i]));
  }
  double began = clu_now_ms();
  for (long r = 0; r < launches; r++)
    for (cl_uint i = 0; i < used; i++)
      CLU(clEnqueueNDRangeKernel(b->queue[i], kernel[i], 1, NULL, &items, NULL, 0, NULL, NULL));
  for (cl_uint i = 0; i < used; i++) CLU(clFlush(b->queue[i]));
  for (cl_uint i = 0; i < used; i++) CLU(clFinish(b->queue[i]));
  printf("%u devices: %.1f kernels/s\n", used, (double)launches * used * 1e3 / (clu_now_ms() - began));
  for (cl_uint i = 0; i < used; i++) {
    clReleaseMemObject(buffer[i]);
    clReleaseKernel(kernel[i]);
  }
}

int main(int argc, char **argv) {
  size_t sizes[SIZES_MAX] = {1 << 20, 16 << 20, 256 << 20};
  size_t count = 3;
  long rounds = 5, launches = 100;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--sizes")) {
      count = 0;
      for (char *s = strtok(argv[i + 1], ","); s && count < SIZES_MAX; s = strtok(NULL, ","))
        sizes[count++] = parse_bytes(s);
    } else if (!strcmp(argv[i], "--rounds")) {
      rounds = parse_long("--rounds", argv[i + 1], 1, 1000);
    } else if (!strcmp(argv[i], "--launches")) {
      launches = parse_long("--launches", argv[i + 1], 0, 100000);
    } else {
      fprintf(stderr, "error: unknown option %s (see the head of devices.c)\n", argv[i]);
      return EXIT_USAGE;
    }
  }
  struct bench b = {0};
  open_all(&b);
  printf("%u devices of %s\n", b.devices, b.cl.device_name);
  bool right = true;
  for (size_t i = 0; i < count; i++) right &= move(&b, sizes[i], rounds);
  for (cl_uint used = 1; launches && used <= b.devices; used *= 2) independent(&b, used, launches);
  clReleaseProgram(b.program);
  for (cl_uint i = 0; i < b.devices; i++) clReleaseCommandQueue(b.queue[i]);
  clu_close(&b.cl);
  return right ? 0 : EXIT_WRONG;
}
