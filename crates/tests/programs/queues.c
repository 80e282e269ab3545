/* Many queues, in one context and in contexts that are never released. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "clu.h"

static struct clu cl;

/* The result of a fill and a read through a queue. */
static cl_int use(cl_context context, cl_command_queue queue, cl_uint value) {
  cl_int code;
  cl_uint back = 0;
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 64, NULL, &code);
  if (code != CL_SUCCESS) return code;
  cl_event filled;
  code = clEnqueueFillBuffer(queue, buffer, &value, sizeof value, 0, 64, 0, NULL, &filled);
  if (code == CL_SUCCESS) {
    code = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 60, 4, &back, 1, &filled, NULL);
    clReleaseEvent(filled);
  }
  clReleaseMemObject(buffer);
  if (code == CL_SUCCESS && back != value) {
    printf("wrong: %u instead of %u\n", back, value);
    exit(EXIT_WRONG);
  }
  return code;
}

/* queues QUEUES CONTEXTS PAUSE_MS: prints how many of each could be created; uses all of them,
 * before and after a pause. */
int main(int argc, char **argv) {
  int wanted = argc > 1 ? atoi(argv[1]) : 400, contexts = argc > 2 ? atoi(argv[2]) : 0;
  double pause_ms = argc > 3 ? strtod(argv[3], NULL) : 0;
  clu_open(&cl, NULL);
  cl_command_queue *queues = clu_alloc((size_t)wanted * sizeof *queues), first = clu_queue(&cl, 0);
  cl_int code = CL_SUCCESS;
  int had = 0;
  for (; had < wanted; had++) {
    queues[had] = clCreateCommandQueue(cl.context, cl.device, had % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &code);
    if (code != CL_SUCCESS) break;
    /* Some queues are used, some are never used. */
    if (had % 3 && (code = use(cl.context, queues[had], (cl_uint)had)) != CL_SUCCESS) {
      printf("queue %d: error %d\n", had, code);
      return EXIT_OPENCL;
    }
  }
  printf("queues %d %d\n", had, code);
  fflush(stdout);
  /* The following calls need objects, too. */
  if (had < wanted && had > 0) CLU(clReleaseCommandQueue(queues[--had]));
  clu_sleep_ms(pause_ms);
  for (int i = 0; i < had; i++) CLU(use(cl.context, queues[i], (cl_uint)i + 1));
  for (int i = 0; i < contexts; i++) {
    cl_context context = clCreateContext(NULL, 1, &cl.device, NULL, NULL, &code);
    clu_must(code, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, cl.device, 0, &code);
    clu_must(code, "clCreateCommandQueue");
    CLU(use(context, queue, (cl_uint)i));
  }
  printf("contexts %d\n", contexts);
  CLU(use(cl.context, first, 7));
  for (int i = 0; i < had; i++) CLU(clReleaseCommandQueue(queues[i]));
  /* Released queues can be created again. */
  cl_command_queue again = clCreateCommandQueue(cl.context, cl.device, 0, &code);
  for (int i = 0; i < 500 && code != CL_SUCCESS; i++) {
    clu_sleep_ms(10);
    again = clCreateCommandQueue(cl.context, cl.device, 0, &code);
  }
  clu_must(code, "clCreateCommandQueue");
  CLU(use(cl.context, again, 8));
  printf("done\n");
  return 0;
}
