/* Measures several devices in one context, or a pool of devices that the program sees as one
 * (`baltra run --pool N`): a buffer that kernels in several queues change in turn, and independent
 * kernels in one queue and in all.
 *
 *   devices [--queues N] [--sizes 1M,16M,256M] [--rounds 5] [--launches 100] [--work 20000] [--json]
 *
 * The queues, by default one for each device, are made for the devices in turn. In a round, a kernel
 * in each queue increments every word of the buffer, after the one before: the contents move from
 * device to device. Prints the median time of a round for each size, and the rate of independent
 * kernels, which all read one buffer and write their own. Exits with 1 if a word is wrong. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "../../apps/common/clu.h"

enum { DEVICES_MAX = 16, QUEUES_MAX = 64, SIZES_MAX = 16, ITEMS = 1 << 18 };

static const char *source =
    "kernel void increment(global uint *a) { a[get_global_id(0)] += get_global_id(0) % 7; }\n"
    "kernel void burn(global float *a, global const float *input, int n) {\n"
    "  float x = input[get_global_id(0)];\n"
    "  for (int i = 0; i < n; i++) x = x * 1.0001f + 0.5f;\n"
    "  a[get_global_id(0)] = x;\n"
    "}\n";

struct bench {
  struct clu cl;
  cl_device_id device[DEVICES_MAX];
  cl_command_queue queue[QUEUES_MAX];
  cl_uint devices, queues;
  int work; /* iterations of an independent kernel's item */
  bool json;
  cl_program program;
};

static void open_all(struct bench *b) {
  clu_open(&b->cl, NULL);
  clReleaseContext(b->cl.context);
  CLU(clGetDeviceIDs(b->cl.platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, b->device, &b->devices));
  if (b->devices > DEVICES_MAX) b->devices = DEVICES_MAX;
  if (!b->queues) b->queues = b->devices;
  cl_int code;
  b->cl.context = clCreateContext(NULL, b->devices, b->device, NULL, NULL, &code);
  clu_must(code, "clCreateContext");
  for (cl_uint i = 0; i < b->queues; i++) {
    b->queue[i] = clCreateCommandQueue(b->cl.context, b->device[i % b->devices], 0, &code);
    clu_must(code, "clCreateCommandQueue");
  }
  b->program = clCreateProgramWithSource(b->cl.context, 1, &source, NULL, &code);
  clu_must(code, "clCreateProgramWithSource");
  CLU(clBuildProgram(b->program, b->devices, b->device, "", NULL, NULL));
}

/* A kernel in each queue in turn, each after the one before; the host waits for the last only. */
static void turn(struct bench *b, cl_kernel kernel, size_t words) {
  cl_event last = NULL;
  for (cl_uint i = 0; i < b->queues; i++) {
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
static bool move(struct bench *b, size_t bytes, long rounds, bool first) {
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
  CLU(clEnqueueReadBuffer(b->queue[b->queues - 1], buffer, CL_TRUE, 0, words * 4, read, 0, NULL, NULL));
  size_t wrong = 0;
  for (size_t i = 0; i < words; i++)
    wrong += read[i] != five + (cl_uint)(i % 7) * (cl_uint)(rounds + 1) * b->queues;
  double half = samples_percentile(&ms, 50), least = samples_percentile(&ms, 0), most = samples_percentile(&ms, 100);
  if (b->json)
    printf("%s{\"bytes\": %zu, \"round_ms\": %.3f, \"least_ms\": %.3f, \"most_ms\": %.3f, \"wrong_words\": %zu}",
           first ? "" : ", ", bytes, half, least, most, wrong);
  else
    printf("%zu bytes: round %.3f ms (%.3f to %.3f)%s\n", bytes, half, least, most, wrong ? " WRONG" : "");
  samples_free(&ms);
  free(read);
  clReleaseKernel(kernel);
  clReleaseMemObject(buffer);
  return !wrong;
}

/* Independent kernels in the first `used` queues; returns whether their results are right. */
static bool independent(struct bench *b, cl_uint used, long launches, bool first) {
  cl_kernel kernel[QUEUES_MAX];
  cl_mem buffer[QUEUES_MAX], input = clu_buffer(&b->cl, CL_MEM_READ_WRITE, (size_t)ITEMS * 4);
  size_t items = ITEMS, wrong = 0;
  float one = 1, expected = one, *read = clu_alloc(items * 4);
  CLU(clEnqueueFillBuffer(b->queue[0], input, &one, 4, 0, items * 4, 0, NULL, NULL));
  CLU(clFinish(b->queue[0]));
  for (cl_uint i = 0; i < used; i++) {
    kernel[i] = clu_kernel(b->program, "burn");
    buffer[i] = clu_buffer(&b->cl, CL_MEM_READ_WRITE, items * 4);
    clu_arg(kernel[i], 0, sizeof buffer[i], &buffer[i]);
    clu_arg(kernel[i], 1, sizeof input, &input);
    clu_arg(kernel[i], 2, sizeof b->work, &b->work);
    CLU(clEnqueueNDRangeKernel(b->queue[i], kernel[i], 1, NULL, &items, NULL, 0, NULL, NULL));
    CLU(clFinish(b->queue[i]));
  }
  double began = clu_now_ms();
  for (long r = 0; r < launches; r++)
    for (cl_uint i = 0; i < used; i++)
      CLU(clEnqueueNDRangeKernel(b->queue[i], kernel[i], 1, NULL, &items, NULL, 0, NULL, NULL));
  for (cl_uint i = 0; i < used; i++) CLU(clFlush(b->queue[i]));
  for (cl_uint i = 0; i < used; i++) CLU(clFinish(b->queue[i]));
  double rate = (double)launches * used * 1e3 / (clu_now_ms() - began);
  for (cl_uint i = 0; i < used; i++) {
    CLU(clEnqueueReadBuffer(b->queue[i], buffer[i], CL_TRUE, 0, items * 4, read, 0, NULL, NULL));
    /* All items compute the same, as the first one of the first queue. */
    if (i == 0) expected = read[0];
    for (size_t at = 0; at < items; at++) wrong += read[at] != expected;
    clReleaseMemObject(buffer[i]);
    clReleaseKernel(kernel[i]);
  }
  clReleaseMemObject(input);
  free(read);
  if (b->json)
    printf("%s{\"queues\": %u, \"kernels_per_s\": %.1f, \"wrong_words\": %zu}", first ? "" : ", ", used, rate, wrong);
  else
    printf("%u %s: %.1f kernels/s%s\n", used, b->queues == b->devices ? "devices" : "queues", rate,
           wrong ? " WRONG" : "");
  return !wrong;
}

int main(int argc, char **argv) {
  size_t sizes[SIZES_MAX] = {1 << 20, 16 << 20, 256 << 20};
  size_t count = 3;
  long rounds = 5, launches = 100;
  struct bench b = {.work = 20000};
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--json")) {
      b.json = true;
      continue;
    }
    const char *option = argv[i++], *value = i < argc ? argv[i] : "";
    if (!strcmp(option, "--sizes") && i < argc) {
      count = 0;
      for (char *s = strtok(argv[i], ","); s && count < SIZES_MAX; s = strtok(NULL, ","))
        sizes[count++] = parse_bytes(s);
    } else if (!strcmp(option, "--queues")) {
      b.queues = (cl_uint)parse_long("--queues", value, 1, QUEUES_MAX);
    } else if (!strcmp(option, "--rounds")) {
      rounds = parse_long("--rounds", value, 1, 1000);
    } else if (!strcmp(option, "--work")) {
      b.work = (int)parse_long("--work", value, 1, 1000000000);
    } else if (!strcmp(option, "--launches")) {
      launches = parse_long("--launches", value, 0, 100000);
    } else {
      fprintf(stderr, "error: unknown option %s (see the head of devices.c)\n", option);
      return EXIT_USAGE;
    }
  }
  open_all(&b);
  if (b.json)
    printf("{\"device\": \"%s\", \"devices\": %u, \"queues\": %u, \"moves\": [", b.cl.device_name, b.devices, b.queues);
  else
    printf("%u devices of %s\n", b.devices, b.cl.device_name);
  bool right = true;
  for (size_t i = 0; i < count; i++) right &= move(&b, sizes[i], rounds, i == 0);
  if (b.json) printf("], \"independent\": [");
  for (cl_uint used = 1; launches && used <= b.queues; used *= 2) right &= independent(&b, used, launches, used == 1);
  if (b.json) printf("]}\n");
  clReleaseProgram(b.program);
  for (cl_uint i = 0; i < b.queues; i++) clReleaseCommandQueue(b.queue[i]);
  clu_close(&b.cl);
  return right ? 0 : EXIT_WRONG;
}
