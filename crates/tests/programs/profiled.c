/* Times of a command that a completed command of another queue has waited for, without a wait of
 * the program for the former. */
#include "clu.h"

enum { ROUNDS = 300, BEFORE = 48, ITEMS = 64 };

static const char source[] = "kernel void add_one(global uint *a) { a[get_global_id(0)]++; }\n";

int main(void) {
  struct clu cl;
  clu_open(&cl, NULL);
  cl_command_queue first = clu_queue(&cl, CL_QUEUE_PROFILING_ENABLE);
  cl_command_queue second = clu_queue(&cl, CL_QUEUE_PROFILING_ENABLE);
  cl_mem bytes = clu_buffer(&cl, CL_MEM_READ_WRITE, ITEMS * 4);
  cl_kernel add_one = clu_kernel(clu_program(&cl, source, NULL), "add_one");
  clu_arg(add_one, 0, sizeof bytes, &bytes);
  size_t items = ITEMS, group = 1;
  cl_uint zero = 0;
  CLU(clEnqueueFillBuffer(first, bytes, &zero, 4, 0, ITEMS * 4, 0, NULL, NULL));
  CLU(clFinish(first));
  int missing = 0;
  for (int round = 0; round < ROUNDS; round++) {
    cl_event events[BEFORE], before = NULL, after;
    for (int i = 0; i < BEFORE; i++) {
      CLU(clEnqueueNDRangeKernel(first, add_one, 1, NULL, &items, &group, 0, NULL, &events[i]));
    }
    before = events[BEFORE - 1];
    CLU(clFlush(first));
    CLU(clEnqueueNDRangeKernel(second, add_one, 1, NULL, &items, &group, 1, &before, &after));
    CLU(clWaitForEvents(1, &after));
    cl_ulong began = 0, ended = 0, next = 0;
    cl_int code =
        clGetEventProfilingInfo(before, CL_PROFILING_COMMAND_START, sizeof began, &began, NULL);
    if (code == CL_PROFILING_INFO_NOT_AVAILABLE) {
      missing++;
    } else {
      clu_must(code, "clGetEventProfilingInfo");
      CLU(clGetEventProfilingInfo(before, CL_PROFILING_COMMAND_END, sizeof ended, &ended, NULL));
      CLU(clGetEventProfilingInfo(after, CL_PROFILING_COMMAND_START, sizeof next, &next, NULL));
      if (!began || ended < began || next < ended) return EXIT_WRONG;
    }
    for (int i = 0; i < BEFORE; i++) clReleaseEvent(events[i]);
    clReleaseEvent(after);
  }
  printf("missing %d\n", missing);
  puts("done");
  return 0;
}
