/* An OpenCL client of the soak test, well-behaved or not. Prints one line and ends.
 *
 *   client good SECONDS    tasks (write, kernel, read) whose bytes are checked, on queues of both
 *                          kinds, until SECONDS have passed
 *   client endless         starts a kernel that does not end, prints "started", waits
 *   client crash           runs a kernel that writes to address 8,
 *                          which ends the executor of its tenant
 *   client leak            leaves contexts, queues, buffers, programs,
 *                          kernels and mapped memory behind
 *   client busy            keeps the device busy until it is killed, prints "started" first
 *   client misuse          calls with arguments that the specification forbids;
 *                          each has to return an error
 *
 * Exit code: 0 as expected, 1 wrong bytes or an unexpected result, 3 an OpenCL error. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_OPENCL = 3 };
enum { WORDS = 1 << 14 };

static const char *SOURCE =
    "kernel void scale(global const uint *in, global uint *out, uint factor) {\n"
    "  size_t i = get_global_id(0);\n"
    "  out[i] = in[i] * factor + (uint)i;\n"
    "}\n"
    "kernel void endless(global volatile uint *in, global uint *out, uint factor) {\n"
    "  while (in[0] != factor) out[get_global_id(0)] += 1;\n"
    "}\n"
    "kernel void crash(global const uint *in, global uint *out, uint factor) {\n"
    "  *(global uint *)(size_t)(8 + 0 * factor) = in[0];\n"
    "  out[0] = 1;\n"
    "}\n";

static void must(cl_int code, const char *call) {
  if (code == CL_SUCCESS) return;
  printf("%s: error %d\n", call, code);
  exit(EXIT_OPENCL);
}

static cl_device_id device;
static cl_context context;
static cl_program program;

static void open_device(void) {
  cl_platform_id platforms[8];
  cl_uint count = 0;
  must(clGetPlatformIDs(8, platforms, &count), "clGetPlatformIDs");
  must(clGetDeviceIDs(platforms[0], CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
  cl_int code;
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  must(code, "clCreateContext");
  program = clCreateProgramWithSource(context, 1, &SOURCE, NULL, &code);
  must(code, "clCreateProgramWithSource");
  must(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
}

static cl_command_queue make_queue(cl_command_queue_properties properties) {
  cl_int code;
  cl_command_queue queue = clCreateCommandQueue(context, device, properties, &code);
  must(code, "clCreateCommandQueue");
  return queue;
}

static cl_mem make_buffer(size_t bytes) {
  cl_int code;
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &code);
  must(code, "clCreateBuffer");
  return buffer;
}

static cl_kernel make_kernel(const char *name, cl_mem in, cl_mem out, cl_uint factor) {
  cl_int code;
  cl_kernel kernel = clCreateKernel(program, name, &code);
  must(code, "clCreateKernel");
  must(clSetKernelArg(kernel, 0, sizeof in, &in), "clSetKernelArg 0");
  must(clSetKernelArg(kernel, 1, sizeof out, &out), "clSetKernelArg 1");
  must(clSetKernelArg(kernel, 2, sizeof factor, &factor), "clSetKernelArg 2");
  return kernel;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int good(double seconds) {
  static cl_uint in[WORDS], out[WORDS];
  uint32_t seed = (uint32_t)getpid();
  unsigned long tasks = 0;
  double end = now() + seconds;
  cl_command_queue queues[2] = {make_queue(0), make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)};
  do {
    cl_command_queue queue = queues[tasks % 2];
    size_t count = 1 + seed % WORDS;
    cl_uint factor = seed | 1;
    for (size_t i = 0; i < count; i++) in[i] = seed = seed * 1664525u + 1013904223u;
    cl_mem a = make_buffer(count * sizeof *in), b = make_buffer(count * sizeof *out);
    cl_kernel kernel = make_kernel("scale", a, b, factor);
    cl_event written, ran;
    must(clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, count * sizeof *in, in, 0, NULL, &written), "clEnqueueWriteBuffer");
    must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 1, &written, &ran), "clEnqueueNDRangeKernel");
    must(clEnqueueReadBuffer(queue, b, CL_TRUE, 0, count * sizeof *out, out, 1, &ran, NULL), "clEnqueueReadBuffer");
    for (size_t i = 0; i < count; i++)
      if (out[i] != in[i] * factor + (cl_uint)i) {
        printf("task %lu, word %zu of %zu: %u instead of %u\n", tasks, i, count, out[i], in[i] * factor + (cl_uint)i);
        return EXIT_WRONG;
      }
    clReleaseEvent(written);
    clReleaseEvent(ran);
    clReleaseKernel(kernel);
    clReleaseMemObject(a);
    clReleaseMemObject(b);
    tasks++;
  } while (now() < end);
  for (int i = 0; i < 2; i++) clReleaseCommandQueue(queues[i]);
  clReleaseProgram(program);
  clReleaseContext(context);
  printf("tasks %lu\n", tasks);
  return 0;
}

/* A kernel that ends only with its executor: the wait ends when the executor ends,
 * or with this process. */
static int endless(void) {
  cl_command_queue queue = make_queue(0);
  cl_uint word = 0;
  size_t one = 1;
  cl_mem a = make_buffer(sizeof word), b = make_buffer(sizeof word);
  must(clEnqueueWriteBuffer(queue, a, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL), "clEnqueueWriteBuffer");
  cl_kernel kernel = make_kernel("endless", a, b, 1);
  must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
  must(clFlush(queue), "clFlush");
  puts("started");
  fflush(stdout);
  cl_int code = clFinish(queue);
  printf("clFinish: %d\n", code);
  return code == CL_SUCCESS ? EXIT_WRONG : 0;
}

static int crash(void) {
  cl_command_queue queue = make_queue(0);
  size_t one = 1;
  cl_mem a = make_buffer(64), b = make_buffer(64);
  cl_kernel kernel = make_kernel("crash", a, b, 0);
  cl_int code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
  if (code == CL_SUCCESS) code = clFinish(queue);
  printf("crash: %d\n", code);
  return code == CL_SUCCESS ? EXIT_WRONG : 0;
}

static int leak(void) {
  for (int i = 0; i < 8; i++) {
    cl_int code;
    cl_context c = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    must(code, "clCreateContext");
    cl_command_queue queue = make_queue(i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
    cl_mem a = make_buffer(1 << 20), b = make_buffer(1 << 20);
    make_kernel("scale", a, b, 3);
    void *mapped = clEnqueueMapBuffer(queue, a, CL_TRUE, CL_MAP_WRITE, 0, 1 << 20, 0, NULL, NULL, &code);
    must(code, "clEnqueueMapBuffer");
    memset(mapped, i, 1 << 20);
    cl_event never = clCreateUserEvent(context, &code);
    must(code, "clCreateUserEvent");
    must(clEnqueueFillBuffer(queue, b, &i, sizeof i, 0, 1 << 20, 1, &never, NULL), "clEnqueueFillBuffer");
    must(clFlush(queue), "clFlush");
    (void)c;
  }
  puts("left");
  fflush(stdout);
  _exit(0);
}

static _Noreturn void busy(void) {
  cl_command_queue queue = make_queue(0);
  size_t count = WORDS;
  cl_mem a = make_buffer(WORDS * 4), b = make_buffer(WORDS * 4);
  cl_kernel kernel = make_kernel("scale", a, b, 5);
  puts("started");
  fflush(stdout);
  for (;;) {
    for (int i = 0; i < 64; i++)
      must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    must(clFinish(queue), "clFinish");
  }
}

#define REFUSED(call)                                              \
  do {                                                             \
    if ((call) == CL_SUCCESS) {                                    \
      printf("accepted: %s\n", #call);                             \
      return EXIT_WRONG;                                           \
    }                                                              \
  } while (0)

static int misuse(void) {
  cl_command_queue queue = make_queue(0);
  cl_mem a = make_buffer(64), b = make_buffer(64);
  cl_kernel kernel = make_kernel("scale", a, b, 1);
  size_t one = 1, huge = (size_t)1 << 40;
  char bytes[128] = {0};
  cl_int code;
  REFUSED(clEnqueueWriteBuffer(queue, a, CL_TRUE, 32, 64, bytes, 0, NULL, NULL));
  REFUSED(clEnqueueReadBuffer(queue, a, CL_TRUE, 0, huge, bytes, 0, NULL, NULL));
  REFUSED(clEnqueueNDRangeKernel(queue, kernel, 9, NULL, &one, NULL, 0, NULL, NULL));
  REFUSED(clSetKernelArg(kernel, 7, sizeof a, &a));
  REFUSED(clEnqueueWriteBuffer(queue, a, CL_TRUE, 0, 64, bytes, 1, NULL, NULL));
  REFUSED((clCreateBuffer(context, CL_MEM_READ_WRITE, 0, NULL, &code), code));
  REFUSED((clCreateKernel(program, "absent", &code), code));
  puts("all refused");
  return 0;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  open_device();
  if (!strcmp(what, "good")) return good(argc > 2 ? atof(argv[2]) : 1);
  if (!strcmp(what, "endless")) return endless();
  if (!strcmp(what, "crash")) return crash();
  if (!strcmp(what, "leak")) return leak();
  if (!strcmp(what, "busy")) busy();
  if (!strcmp(what, "misuse")) return misuse();
  fprintf(stderr, "usage: client good SECONDS | endless | crash | leak | busy | misuse\n");
  return EXIT_USAGE;
}
