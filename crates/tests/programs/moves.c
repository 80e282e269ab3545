/* Several devices of a context use buffers in turn: each command sees the results of the previous
   one, for all combinations of waits. The arguments are sizes in words. */
#include "clu.h"
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 3 };
static const char source[] =
    "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }\n"
    "kernel void set(global int *a, int n) { a[get_global_id(0)] = n + (int)get_global_id(0); }\n";

static cl_context context;
static cl_command_queue queues[DEVICES];
static cl_program program;
static int failures;

static void open_devices(void) {
  cl_platform_id platform;
  cl_device_id devices[DEVICES];
  cl_uint count = 0;
  cl_int code;
  CLU(clGetPlatformIDs(1, &platform, NULL));
  CLU(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES, devices, &count));
  if (count < DEVICES) {
    fprintf(stderr, "%u devices, %d are needed\n", count, DEVICES);
    exit(EXIT_USAGE);
  }
  context = clCreateContext(NULL, DEVICES, devices, NULL, NULL, &code);
  clu_must(code, "clCreateContext");
  for (int i = 0; i < DEVICES; i++) {
    queues[i] = clCreateCommandQueue(context, devices[i], 0, &code);
    clu_must(code, "clCreateCommandQueue");
  }
  const char *text = source;
  program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
  clu_must(code, "clCreateProgramWithSource");
  CLU(clBuildProgram(program, 0, NULL, "", NULL, NULL));
}

static cl_mem buffer(size_t words) {
  cl_int code;
  cl_mem made = clCreateBuffer(context, CL_MEM_READ_WRITE, words * sizeof(cl_int), NULL, &code);
  clu_must(code, "clCreateBuffer");
  return made;
}

static void launch(int device, const char *name, cl_mem memory, cl_int n, size_t words,
                   cl_event after, cl_event *event) {
  cl_kernel kernel = clu_kernel(program, name);
  clu_arg(kernel, 0, sizeof memory, &memory);
  clu_arg(kernel, 1, sizeof n, &n);
  CLU(clEnqueueNDRangeKernel(queues[device], kernel, 1, NULL, &words, NULL, after != NULL,
                             after ? &after : NULL, event));
  clReleaseKernel(kernel);
}

static void flush(void) {
  for (int i = 0; i < DEVICES; i++) CLU(clFlush(queues[i]));
}

static cl_event user(void) {
  cl_int code;
  cl_event event = clCreateUserEvent(context, &code);
  clu_must(code, "clCreateUserEvent");
  return event;
}

/* Whether values[i] is first + i * step everywhere. */
static void check(const char *what, size_t words, const cl_int *values, cl_int first, cl_int step) {
  for (size_t i = 0; i < words; i++)
    if (values[i] != first + step * (cl_int)i) {
      printf("%s, %zu words: %d at %zu\n", what, words, values[i], i);
      failures++;
      return;
    }
}

static void in_turn(size_t words, cl_int *values) {
  cl_mem memory = buffer(words);
  cl_event before, after;
  launch(0, "set", memory, 7, words, NULL, &before);
  for (int round = 1; round <= 2 * DEVICES; round++) {
    launch(round % DEVICES, "add", memory, 1, words, before, &after);
    clReleaseEvent(before);
    before = after;
  }
  flush();
  CLU(clEnqueueReadBuffer(queues[1], memory, CL_TRUE, 0, words * sizeof *values, values, 1, &before,
                          NULL));
  clReleaseEvent(before);
  check("in turn", words, values, 7 + 2 * DEVICES, 1);
  clReleaseMemObject(memory);
}

/* A write that waits for a user event, followed by another device. */
static void gated(size_t words, cl_int *values) {
  cl_mem memory = buffer(words);
  cl_event gate = user(), written, added;
  for (size_t i = 0; i < words; i++) values[i] = 3 * (cl_int)i;
  CLU(clEnqueueWriteBuffer(queues[0], memory, CL_FALSE, 0, words * sizeof *values, values, 1, &gate,
                           &written));
  launch(1, "add", memory, 5, words, written, &added);
  flush();
  CLU(clSetUserEventStatus(gate, CL_COMPLETE));
  CLU(clEnqueueReadBuffer(queues[2], memory, CL_TRUE, 0, words * sizeof *values, values, 1, &added,
                          NULL));
  check("gated", words, values, 5, 3);
  clReleaseEvent(gate), clReleaseEvent(written), clReleaseEvent(added);
  clReleaseMemObject(memory);
}

/* A read from one device into host memory, from which a write to another device, which waits for
 * the read, takes the bytes. */
static void through_the_host(size_t words, cl_int *values) {
  cl_mem from = buffer(words), to = buffer(words);
  cl_event gate = user(), set, brought, written;
  memset(values, 0xee, words * sizeof *values);
  launch(0, "set", from, 11, words, gate, &set);
  CLU(clEnqueueReadBuffer(queues[0], from, CL_FALSE, 0, words * sizeof *values, values, 1, &set,
                          &brought));
  CLU(clEnqueueWriteBuffer(queues[1], to, CL_FALSE, 0, words * sizeof *values, values, 1, &brought,
                           &written));
  cl_int *out = clu_alloc(words * sizeof *out);
  flush();
  CLU(clSetUserEventStatus(gate, CL_COMPLETE));
  CLU(clEnqueueReadBuffer(queues[2], to, CL_TRUE, 0, words * sizeof *out, out, 1, &written, NULL));
  check("through the host", words, out, 11, 1);
  free(out);
  clReleaseEvent(gate), clReleaseEvent(set), clReleaseEvent(brought), clReleaseEvent(written);
  clReleaseMemObject(from);
  clReleaseMemObject(to);
}

static void through_a_map(size_t words, cl_int *values) {
  cl_mem memory = buffer(words);
  cl_int code;
  cl_event set;
  launch(0, "set", memory, 1, words, NULL, &set);
  flush();
  cl_int *mapped = clEnqueueMapBuffer(queues[1], memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                      words * sizeof *values, 1, &set, NULL, &code);
  clu_must(code, "clEnqueueMapBuffer");
  check("a map", words, mapped, 1, 1);
  for (size_t i = 0; i < words; i++) mapped[i] = 4 * (cl_int)i;
  cl_event unmapped;
  CLU(clEnqueueUnmapMemObject(queues[1], memory, mapped, 0, NULL, &unmapped));
  launch(2, "add", memory, 9, words, unmapped, NULL);
  flush();
  CLU(clEnqueueReadBuffer(queues[2], memory, CL_TRUE, 0, words * sizeof *values, values, 0, NULL,
                          NULL));
  check("through a map", words, values, 9, 4);
  clReleaseEvent(set), clReleaseEvent(unmapped);
  clReleaseMemObject(memory);
}

/* A failed command fails commands on other devices that need its result. (PoCL itself ends the
 * process here.) */
static void failing(size_t words, cl_int *values) {
  cl_mem memory = buffer(words);
  cl_event gate = user(), set, brought;
  cl_int status = 1;
  launch(0, "set", memory, 1, words, gate, &set);
  CLU(clEnqueueReadBuffer(queues[1], memory, CL_FALSE, 0, words * sizeof *values, values, 1, &set,
                          &brought));
  flush();
  CLU(clSetUserEventStatus(gate, -5));
  clWaitForEvents(1, &brought);
  CLU(clGetEventInfo(brought, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
  if (status >= 0) {
    printf("failing, %zu words: %d\n", words, status);
    failures++;
  }
  clReleaseEvent(gate), clReleaseEvent(set), clReleaseEvent(brought);
  clReleaseMemObject(memory);
  for (int i = 0; i < DEVICES; i++) clFinish(queues[i]);
}

int main(int count, char **arguments) {
  static void (*const cases[])(size_t, cl_int *) = {in_turn, gated, through_the_host, through_a_map,
                                                    failing};
  if (count < 2) return EXIT_USAGE;
  open_devices();
  for (int at = 1; at < count; at++) {
    size_t words = (size_t)parse_long("words", arguments[at], 1, 1 << 26);
    cl_int *values = clu_alloc(words * sizeof *values);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) cases[i](words, values);
    free(values);
  }
  printf(failures ? "failed\n" : "done\n");
  return failures ? EXIT_WRONG : 0;
}
