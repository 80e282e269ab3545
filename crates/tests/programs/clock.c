/* Event times beside the host's clock: a command is queued after its call, and ends before the
 * program sees its end. */
#define CL_TARGET_OPENCL_VERSION 210
#include <CL/cl.h>
#undef CL_TARGET_OPENCL_VERSION
#include "clu.h"

enum { ROUNDS = 40, PAUSE_MS = 25, ITEMS = 64 };

static const char source[] = "kernel void add_one(global uint *a) { a[get_global_id(0)]++; }\n";

int main(void) {
  struct clu cl;
  clu_open(&cl, NULL);
  cl_command_queue queue = clu_queue(&cl, CL_QUEUE_PROFILING_ENABLE);
  cl_mem bytes = clu_buffer(&cl, CL_MEM_READ_WRITE, ITEMS * 4);
  cl_kernel add_one = clu_kernel(clu_program(&cl, source, NULL), "add_one");
  clu_arg(add_one, 0, sizeof bytes, &bytes);
  size_t items = ITEMS;
  cl_ulong device = 0, host = 0, before = 0, after = 0;
  CLU(clGetDeviceAndHostTimer(cl.device, &device, &host));
  for (int round = 0; round < ROUNDS; round++) {
    cl_event event;
    clu_sleep_ms(PAUSE_MS);
    CLU(clGetHostTimer(cl.device, &before));
    CLU(clEnqueueNDRangeKernel(queue, add_one, 1, NULL, &items, NULL, 0, NULL, &event));
    CLU(clFinish(queue));
    CLU(clGetHostTimer(cl.device, &after));
    cl_ulong queued = 0, ended = 0;
    CLU(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, NULL));
    CLU(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof ended, &ended, NULL));
    clReleaseEvent(event);
    /* The driver's clock may run faster during the command. */
    cl_ulong drift = (ended - queued) / 500;
    if (queued - device + drift < before - host || ended - device > after - host) {
      printf("round %d: queued %+lld ns after the call, ended %+lld ns before its end was seen\n",
             round, (long long)(queued - device - (before - host)),
             (long long)(after - host - (ended - device)));
      return EXIT_WRONG;
    }
  }
  puts("done");
  return 0;
}
