/* A program that checks everything it does while its session moves.

   moving ROUNDS [BYTES [PAUSE_MS [LONG_MS]]]

   Each round computes with a buffer, a part of it, an image and kernels whose other arguments were
   set once, holds a mapped buffer and a user event that commands of both kinds of queue wait for
   during the pause, and compares all bytes with those of a model. With LONG_MS one kernel of about
   that time runs in each round. Times of a profiling queue must not run backwards. Prints a line
   `round N longest PAUSE` for each round, where the pause is the longest time between the ends of
   two commands in milliseconds, without builds, pauses and the long kernel. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { WIDTH = 32, HEIGHT = 16, PIXELS = WIDTH * HEIGHT, PART = 4096 };

static const char source[] =
    "kernel void advance(global uint *x, constant uint *c, uint round) {\n"
    "  size_t i = get_global_id(0);\n"
    "  x[i] = x[i] * 3u + c[i % 16] + round;\n"
    "}\n"
    "kernel void sum(read_only image2d_t image, sampler_t s, global uint *out) {\n"
    "  int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
    "  uint4 p = read_imageui(image, s, at);\n"
    "  out[at.y * get_global_size(0) + at.x] = p.x + 2u * p.y + 3u * p.z + 4u * p.w;\n"
    "}\n"
    "kernel void spin(global uint *x, ulong count) {\n"
    "  uint a = x[0];\n"
    "  for (ulong i = 0; i < count; i++) a = a * 1664525u + 1013904223u;\n"
    "  x[0] = a;\n"
    "}\n";

static struct clu cl;
static cl_command_queue ordered, unordered, mapper;
static cl_program program;
static cl_kernel advance, sum, spin;
static cl_mem x, part, constants, image, out, spun;
static cl_sampler sampler;
static cl_uint *model, *seen, table[16];
static cl_uchar pixels[PIXELS * 4];
static size_t count;
static cl_ulong last_ns;
static double last_ms, longest_ms;

static void wrong(const char *what, unsigned long round, size_t at, cl_uint got, cl_uint wanted) {
  printf("wrong %s in round %lu at %zu: %u, not %u\n", what, round, at, got, wanted);
  exit(EXIT_WRONG);
}

/* A command has ended. */
static void ended(void) {
  double now_ms = clu_now_ms();
  if (last_ms > 0 && now_ms - last_ms > longest_ms) longest_ms = now_ms - last_ms;
  last_ms = now_ms;
}

static void finish(cl_command_queue queue) {
  CLU(clFinish(queue));
  ended();
}

static void compare(const char *what, unsigned long round, const cl_uint *got, const cl_uint *wanted, size_t n) {
  if (!memcmp(got, wanted, n * sizeof *got)) return;
  for (size_t i = 0; i < n; i++)
    if (got[i] != wanted[i]) wrong(what, round, i, got[i], wanted[i]);
}

/* Times in the order of the commands. */
static void check_times(cl_event event, unsigned long round) {
  cl_ulong start, end;
  CLU(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL));
  CLU(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL));
  /* Offsets of the devices' clocks are known to some microseconds. */
  if (start + 1000000 < last_ns || end < start) {
    printf("time runs backwards in round %lu: %llu, %llu after %llu\n", round, (unsigned long long)start,
           (unsigned long long)end, (unsigned long long)last_ns);
    exit(EXIT_WRONG);
  }
  last_ns = end;
}

static void step_model(unsigned long round) {
  /* Two loops, which the compiler vectorizes. */
  size_t rows = count / 16;
  for (size_t row = 0; row < rows; row++)
    for (size_t i = 0; i < 16; i++) model[16 * row + i] = model[16 * row + i] * 3u + table[i] + (cl_uint)round;
  for (size_t i = 16 * rows; i < count; i++) model[i] = model[i] * 3u + table[i % 16] + (cl_uint)round;
}

static void launch(cl_command_queue queue, unsigned long round, cl_event after, cl_event *event) {
  cl_uint number = (cl_uint)round;
  clu_arg(advance, 2, sizeof number, &number);
  CLU(clEnqueueNDRangeKernel(queue, advance, 1, NULL, &count, NULL, after != NULL, after ? &after : NULL, event));
  step_model(round);
}

static void make(size_t bytes) {
  cl_int code;
  clu_open(&cl, NULL);
  /* A fact that the program may rely on. */
  char version[256];
  CLU(clGetDeviceInfo(cl.device, CL_DRIVER_VERSION, sizeof version, version, NULL));
  ordered = clu_queue(&cl, CL_QUEUE_PROFILING_ENABLE);
  unordered = clu_queue(&cl, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  mapper = clu_queue(&cl, 0);
  program = clu_program(&cl, source, "");
  advance = clu_kernel(program, "advance");
  sum = clu_kernel(program, "sum");
  spin = clu_kernel(program, "spin");
  for (cl_uint i = 0; i < 16; i++) table[i] = i * 7919u + 1;
  for (size_t i = 0; i < count; i++) model[i] = (cl_uint)(i * 2654435761u);
  x = clCreateBuffer(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, model, &code);
  clu_must(code, "clCreateBuffer");
  cl_buffer_region region = {PART, PART};
  part = clCreateSubBuffer(x, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  clu_must(code, "clCreateSubBuffer");
  constants = clCreateBuffer(cl.context, CL_MEM_READ_ONLY | CL_MEM_HOST_NO_ACCESS | CL_MEM_COPY_HOST_PTR,
                             sizeof table, table, &code);
  clu_must(code, "clCreateBuffer");
  out = clu_buffer(&cl, CL_MEM_READ_WRITE, PIXELS * sizeof(cl_uint));
  spun = clu_buffer(&cl, CL_MEM_READ_WRITE, sizeof(cl_uint));
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT};
  for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (cl_uchar)(i * 31);
  image = clCreateImage(cl.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &desc, pixels, &code);
  clu_must(code, "clCreateImage");
  sampler = clCreateSampler(cl.context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &code);
  clu_must(code, "clCreateSampler");
  clu_arg(advance, 0, sizeof x, &x);
  clu_arg(advance, 1, sizeof constants, &constants);
  clu_arg(sum, 0, sizeof image, &image);
  clu_arg(sum, 1, sizeof sampler, &sampler);
  clu_arg(sum, 2, sizeof out, &out);
  clu_arg(spin, 0, sizeof spun, &spun);
}

static void check_image(unsigned long round) {
  size_t origin[3] = {round % WIDTH, round % HEIGHT, 0}, one[3] = {1, 1, 1}, global[2] = {WIDTH, HEIGHT};
  cl_uchar *pixel = pixels + (origin[1] * WIDTH + origin[0]) * 4;
  for (int i = 0; i < 4; i++) pixel[i] = (cl_uchar)(round + (unsigned)i);
  CLU(clEnqueueWriteImage(ordered, image, CL_TRUE, origin, one, 0, 0, pixel, 0, NULL, NULL));
  ended();
  CLU(clEnqueueNDRangeKernel(ordered, sum, 2, NULL, global, NULL, 0, NULL, NULL));
  cl_uint got[PIXELS], wanted[PIXELS];
  CLU(clEnqueueReadBuffer(ordered, out, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));
  ended();
  for (size_t i = 0; i < PIXELS; i++)
    wanted[i] = pixels[4 * i] + 2u * pixels[4 * i + 1] + 3u * pixels[4 * i + 2] + 4u * pixels[4 * i + 3];
  compare("image", round, got, wanted, PIXELS);
}

/* Commands of both queues wait for a user event, and a buffer is mapped, during the pause. */
static void wait_and_map(unsigned long round, double pause_ms) {
  cl_int code;
  cl_event user = clCreateUserEvent(cl.context, &code), done, read;
  clu_must(code, "clCreateUserEvent");
  cl_uint *mapped = clEnqueueMapBuffer(mapper, part, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, PART, 0, NULL,
                                       NULL, &code);
  clu_must(code, "clEnqueueMapBuffer");
  ended();
  compare("mapped", round, mapped, model + PART / 4, PART / 4);
  for (size_t i = 0; i < PART / 4; i++) mapped[i] = model[PART / 4 + i] ^= (cl_uint)round;
  launch(ordered, round, user, &done);
  CLU(clEnqueueReadBuffer(unordered, x, CL_FALSE, 0, count * sizeof(cl_uint), seen, 1, &done, &read));
  CLU(clFlush(ordered));
  CLU(clFlush(unordered));
  if (pause_ms > 0) clu_sleep_ms(pause_ms);
  last_ms = 0;
  CLU(clEnqueueUnmapMemObject(mapper, part, mapped, 0, NULL, NULL));
  CLU(clFinish(mapper));
  CLU(clSetUserEventStatus(user, CL_COMPLETE));
  CLU(clWaitForEvents(1, &read));
  CLU(clWaitForEvents(1, &done));
  ended();
  check_times(done, round);
  compare("after the user event", round, seen, model, count);
  finish(unordered);
  clReleaseEvent(user);
  clReleaseEvent(done);
  clReleaseEvent(read);
}

static void spin_for(double ms) {
  static cl_ulong per_ms;
  cl_ulong turns = per_ms ? (cl_ulong)(ms * (double)per_ms) : 20000000;
  size_t one = 1;
  clu_arg(spin, 1, sizeof turns, &turns);
  double start_ms = clu_now_ms();
  CLU(clEnqueueNDRangeKernel(ordered, spin, 1, NULL, &one, NULL, 0, NULL, NULL));
  CLU(clFlush(ordered));
  if (per_ms) {
    printf("spins\n");
    fflush(stdout);
  }
  CLU(clFinish(ordered));
  last_ms = 0;
  if (!per_ms) per_ms = (cl_ulong)((double)turns / (clu_now_ms() - start_ms)) + 1;
}

/* Objects come and go. */
static void renew(unsigned long round) {
  clReleaseKernel(advance);
  if (round % 10 == 0) {
    clReleaseProgram(program);
    program = clu_program(&cl, source, round % 20 ? "-DROUND" : "");
  }
  advance = clu_kernel(program, "advance");
  clReleaseMemObject(constants);
  cl_int code;
  for (cl_uint i = 0; i < 16; i++) table[i] += (cl_uint)round;
  constants = clCreateBuffer(cl.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof table, table, &code);
  clu_must(code, "clCreateBuffer");
  clu_arg(advance, 0, sizeof x, &x);
  clu_arg(advance, 1, sizeof constants, &constants);
  last_ms = 0;
}

int main(int argc, char **argv) {
  unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 10;
  size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 65536;
  double pause_ms = argc > 3 ? strtod(argv[3], NULL) : 0, long_ms = argc > 4 ? strtod(argv[4], NULL) : 0;
  count = bytes / sizeof(cl_uint);
  model = clu_alloc(bytes);
  seen = clu_alloc(bytes);
  make(bytes);
  if (long_ms > 0) spin_for(0);
  for (unsigned long round = 1; !rounds || round <= rounds; round++) {
    launch(ordered, round, NULL, NULL);
    finish(ordered);
    wait_and_map(round, pause_ms);
    check_image(round);
    if (long_ms > 0) spin_for(long_ms);
    if (round % 3 == 0) renew(round);
    CLU(clEnqueueReadBuffer(ordered, x, CL_TRUE, 0, bytes, seen, 0, NULL, NULL));
    ended();
    compare("buffer", round, seen, model, count);
    printf("round %lu longest %.1f\n", round, longest_ms);
    fflush(stdout);
  }
  printf("done\n");
  return 0;
}
