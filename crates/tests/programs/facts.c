/* A program that computes, and reads a fact about its device when it is asked to:
 * facts FILE|early. Prints "round N" until it is ended, and "read VERSION" once FILE exists;
 * early: it reads the fact before it has a session. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <unistd.h>

#include "clu.h"

enum { ITEMS = 64, PAUSE_MS = 10 };

static const char source[] =
    "kernel void count(global uint *sum) { sum[get_global_id(0)] += 1; }\n";

static void read_fact(cl_device_id device) {
  char version[64];
  CLU(clGetDeviceInfo(device, CL_DRIVER_VERSION, sizeof version, version, NULL));
  printf("read %s\n", version);
}

int main(int argc, char **argv) {
  const char *file = argc > 1 ? argv[1] : "";
  int has_read = 0;
  size_t items = ITEMS;
  if (!strcmp(file, "early")) {
    cl_platform_id platform;
    cl_device_id device;
    CLU(clGetPlatformIDs(1, &platform, NULL));
    CLU(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    read_fact(device);
  }
  struct clu cl;
  clu_open(&cl, NULL);
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_mem sum = clu_buffer(&cl, CL_MEM_READ_WRITE, ITEMS * sizeof(cl_uint));
  cl_kernel count = clu_kernel(clu_program(&cl, source, ""), "count");
  clu_arg(count, 0, sizeof sum, &sum);
  cl_uint values[ITEMS] = {0};
  CLU(clEnqueueWriteBuffer(queue, sum, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
  for (cl_uint round = 1;; round++) {
    CLU(clEnqueueNDRangeKernel(queue, count, 1, NULL, &items, NULL, 0, NULL, NULL));
    CLU(clEnqueueReadBuffer(queue, sum, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
    for (size_t i = 0; i < ITEMS; i++)
      if (values[i] != round) return EXIT_WRONG;
    if (!has_read && !access(file, F_OK)) {
      read_fact(cl.device);
      has_read = 1;
    }
    printf("round %u\n", round);
    fflush(stdout);
    clu_sleep_ms(PAUSE_MS);
  }
}
