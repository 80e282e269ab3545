/* Commands of an out-of-order queue that do not depend on one which waits for a user event. */
#include <string.h>

#include "clu.h"

enum { BYTES = 4 << 20 };

static struct clu cl;
static cl_command_queue queue;

/* Maps all of a buffer, writes `value` to it if `writes`, and unmaps it; waits for both. */
static void map(cl_mem buffer, cl_map_flags flags, cl_bool blocking, int value) {
  cl_int code;
  cl_event mapped, unmapped;
  unsigned char *bytes = clEnqueueMapBuffer(queue, buffer, blocking, flags, 0, BYTES, 0, NULL, &mapped, &code);
  clu_must(code, "clEnqueueMapBuffer");
  CLU(clWaitForEvents(1, &mapped));
  if (flags == CL_MAP_READ) {
    if (bytes[0] != value || bytes[BYTES - 1] != value) exit(EXIT_WRONG);
  } else {
    memset(bytes, value, BYTES);
  }
  CLU(clEnqueueUnmapMemObject(queue, buffer, bytes, 0, NULL, &unmapped));
  CLU(clWaitForEvents(1, &unmapped));
  clReleaseEvent(mapped);
  clReleaseEvent(unmapped);
}

int main(void) {
  clu_open(&cl, NULL);
  queue = clu_queue(&cl, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, BYTES), held = clu_buffer(&cl, CL_MEM_READ_WRITE, BYTES);
  unsigned char *bytes = clu_alloc(BYTES);
  cl_int code;
  cl_event gate = clCreateUserEvent(cl.context, &code);
  clu_must(code, "clCreateUserEvent");
  unsigned char one = 1, last = 0;
  cl_event done, filled;
  CLU(clEnqueueFillBuffer(queue, held, &one, 1, 0, BYTES, 1, &gate, &done));

  memset(bytes, 3, BYTES);
  CLU(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, BYTES, bytes, 0, NULL, NULL));
  memset(bytes, 0, BYTES);
  CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, BYTES, bytes, 0, NULL, NULL));
  if (bytes[0] != 3 || bytes[BYTES - 1] != 3) return EXIT_WRONG;
  for (int blocking = 0; blocking < 2; blocking++) {
    map(buffer, CL_MAP_READ, blocking, 3 + blocking);
    map(buffer, CL_MAP_WRITE_INVALIDATE_REGION, blocking, 4 + blocking);
    map(buffer, CL_MAP_READ, blocking, 4 + blocking);
  }
  CLU(clEnqueueFillBuffer(queue, buffer, &one, 1, 0, BYTES, 0, NULL, &filled));
  CLU(clWaitForEvents(1, &filled));

  /* A barrier holds what comes after it. */
  cl_event mapped;
  CLU(clEnqueueBarrierWithWaitList(queue, 0, NULL, NULL));
  unsigned char *after = clEnqueueMapBuffer(queue, held, CL_FALSE, CL_MAP_READ, 0, BYTES, 0, NULL, &mapped, &code);
  clu_must(code, "clEnqueueMapBuffer");
  CLU(clFlush(queue));
  cl_int status = CL_COMPLETE;
  CLU(clGetEventInfo(mapped, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
  if (status == CL_COMPLETE) return EXIT_WRONG;
  CLU(clSetUserEventStatus(gate, CL_COMPLETE));
  CLU(clWaitForEvents(1, &mapped));
  last = after[BYTES - 1];
  CLU(clEnqueueUnmapMemObject(queue, held, after, 0, NULL, NULL));
  CLU(clFinish(queue));
  if (last != 1) return EXIT_WRONG;
  puts("done");
  return 0;
}
