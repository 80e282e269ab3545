/* Runs the kernels of channels.cl from an image in several ways, and prints what they return. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { COUNT = 300 };

static struct clu cl;
static cl_program program;
static cl_mem in, out;
static cl_kernel produce, multiply, consume;

static void load(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) exit(EXIT_FILE);
  size_t size = (size_t)ftell(file);
  rewind(file);
  unsigned char *image = clu_alloc(size);
  if (fread(image, 1, size, file) != size) exit(EXIT_FILE);
  fclose(file);
  cl_int code, status;
  const unsigned char *bytes = image;
  program = clCreateProgramWithBinary(cl.context, 1, &cl.device, &size, &bytes, &status, &code);
  clu_must(code, "clCreateProgramWithBinary");
  CLU(clBuildProgram(program, 1, &cl.device, "", NULL, NULL));
  free(image);
}

static void set(cl_int read, cl_int count, cl_int by) {
  clu_arg(produce, 0, sizeof in, &in);
  clu_arg(produce, 1, sizeof read, &read);
  clu_arg(multiply, 0, sizeof by, &by);
  clu_arg(multiply, 1, sizeof count, &count);
  clu_arg(consume, 0, sizeof out, &out);
  clu_arg(consume, 1, sizeof count, &count);
}

static cl_event start(cl_command_queue queue, cl_kernel kernel) {
  size_t one = 1;
  cl_event event;
  CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, &event));
  CLU(clFlush(queue));
  return event;
}

/* Waits for a kernel, and returns its status. */
static cl_int end(cl_event event) {
  cl_int status = 0;
  clWaitForEvents(1, &event);
  CLU(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
  CLU(clReleaseEvent(event));
  return status;
}

static int wrong(cl_command_queue queue, cl_int by, cl_uint waits, const cl_event *events) {
  cl_long found[COUNT];
  memset(found, 0, sizeof found);
  CLU(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof found, found, waits, events, NULL));
  int wrong = 0;
  for (int i = 0; i < COUNT; i++) wrong += found[i] != (cl_long)(7 * i - 300) * by;
  return wrong;
}

/* Kernels in queues of their own, and in one out-of-order queue, the last one first. */
static void queues(void) {
  cl_command_queue own[3];
  for (int i = 0; i < 3; i++) own[i] = clu_queue(&cl, 0);
  set(COUNT, COUNT, 3);
  cl_event third = start(own[2], consume), second = start(own[1], multiply), first = start(own[0], produce);
  printf("own wrong %d\n", wrong(own[0], 3, 1, &third));
  printf("own status %d\n", end(first) | end(second) | end(third));

  cl_command_queue any = clu_queue(&cl, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  for (int round = 0; round < 3; round++) {
    set(COUNT, COUNT, 5 + round);
    third = start(any, consume), second = start(any, multiply);
    /* Not before the kernels, of which one is not launched yet. */
    CLU(clEnqueueMarkerWithWaitList(any, 0, NULL, NULL));
    first = start(any, produce);
    printf("any wrong %d\n", wrong(any, 5 + round, 1, &third));
    printf("any status %d\n", end(first) | end(second) | end(third));
  }
  CLU(clFinish(any));
}

/* Elements stay in their channel until a later launch reads them. */
static void stays(void) {
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_long found[4] = {0};
  set(4, 4, 11);
  int status = end(start(queue, produce));
  CLU(clFinish(queue));
  status |= end(start(queue, multiply));
  status |= end(start(queue, consume));
  CLU(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof found, found, 0, NULL, NULL));
  int wrong = 0;
  for (int i = 0; i < 4; i++) wrong += found[i] != (7 * i - 300) * 11;
  printf("stays wrong %d status %d\n", wrong, status);
}

/* One that reads outside of its buffer, before and after the others are launched. */
static void fails(void) {
  cl_command_queue own[3];
  for (int i = 0; i < 3; i++) own[i] = clu_queue(&cl, 0);
  for (int late = 0; late < 2; late++) {
    set(COUNT + 5000, COUNT + 5000, 3);
    cl_event first, second, third;
    if (late) {
      cl_mem none = NULL;
      clu_arg(produce, 0, sizeof none, &none);
      first = start(own[0], produce);
      clFinish(own[0]);
    }
    third = start(own[2], consume), second = start(own[1], multiply);
    if (!late) first = start(own[0], produce);
    int all = (end(first) < 0) + (end(second) < 0) + (end(third) < 0);
    printf("failed %d\n", all);
  }
  queues();
}

/* Without the kernel that it reads from. */
static void alone(void) {
  set(COUNT, COUNT, 3);
  cl_command_queue queue = clu_queue(&cl, 0);
  start(queue, consume);
  puts("ready");
  fflush(stdout);
  printf("finish %d\n", clFinish(queue));
}

int main(int argc, char **argv) {
  if (argc < 3) return EXIT_USAGE;
  clu_open(&cl, NULL);
  load(argv[1]);
  produce = clu_kernel(program, "produce");
  multiply = clu_kernel(program, "multiply");
  consume = clu_kernel(program, "consume");
  cl_int numbers[COUNT];
  for (int i = 0; i < COUNT; i++) numbers[i] = 7 * i - 300;
  in = clu_buffer(&cl, CL_MEM_READ_WRITE, sizeof numbers);
  out = clu_buffer(&cl, CL_MEM_READ_WRITE, 8 * COUNT);
  cl_command_queue queue = clu_queue(&cl, 0);
  CLU(clEnqueueWriteBuffer(queue, in, CL_TRUE, 0, sizeof numbers, numbers, 0, NULL, NULL));
  /* A blocking write ends once its bytes are copied, which may be before the device has them. */
  CLU(clFinish(queue));
  for (int i = 2; i < argc; i++) {
    if (!strcmp(argv[i], "queues")) queues();
    if (!strcmp(argv[i], "stays")) stays();
    if (!strcmp(argv[i], "fails")) fails();
    if (!strcmp(argv[i], "alone")) alone();
  }
  return 0;
}
