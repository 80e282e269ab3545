/* Kernels that misbehave; prints the result of each call. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

static const char source[] =
    "kernel void fault(global uint *a, ulong n) {\n"
    "  ((volatile global uint *)(size_t)n)[get_global_id(0)] = 1;\n"
    "}\n"
    "kernel void endless(global uint *a, ulong n) {\n"
    "  volatile global uint *word = a;\n"
    "  while (*word != 0xffffffffu || n) *word = 0;\n"
    "}\n"
    "kernel void stray(global uint *a, ulong n) {\n"
    "  for (ulong i = 1; i <= n; i++) ((volatile global uint *)a)[i] = 0x5a5a5a5au;\n"
    "}\n"
    "kernel void hoard(global uint *a, ulong n) {\n"
    "  for (ulong i = 0; i < n; i += 4096) ((volatile global uchar *)a)[i] = 1;\n"
    "}\n";

/* harm fault|endless|stray|hoard [N [GROUPS]]: the last line is "survived" if the session is usable
 * afterwards. */
int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "fault";
  cl_ulong n = argc > 2 ? strtoull(argv[2], NULL, 0) : 64;
  struct clu cl;
  clu_open(&cl, NULL);
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_program program = clu_program(&cl, source, "");
  cl_kernel kernel = clu_kernel(program, name);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, strcmp(name, "hoard") ? 4096 : n);
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  clu_arg(kernel, 1, sizeof n, &n);
  cl_uint word = 7;
  CLU(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL));
  printf("ready\n");
  fflush(stdout);

  size_t one = 1, groups = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
  cl_event event = NULL;
  cl_int code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &groups, &one, 0, NULL, &event);
  printf("enqueue %d\n", code);
  printf("finish %d\n", clFinish(queue));
  cl_int status = 99;
  if (event && clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL) == CL_SUCCESS)
    printf("event %d\n", status);
  code = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL);
  printf("read %d\n", code);
  printf(code == CL_SUCCESS ? "survived\n" : "ended\n");
  return 0;
}
