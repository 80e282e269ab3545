/* A kernel that prints a line in each of many work-groups, which run on several threads: each line
   must be complete when the wait for the kernel returns. The last round is complete only at the end
   of the program. */
#define _POSIX_C_SOURCE 200809L
#include "clu.h"
#include <stdlib.h>

int main(int count, char **arguments) {
  size_t lines = count > 1 ? strtoul(arguments[1], NULL, 10) : 1, one = 1;
  struct clu cl;
  clu_open(&cl, NULL);
  cl_command_queue queue = clu_queue(&cl, 0);
  const char *source =
      "kernel void print_lines(global int *a, int n) {\n"
      "  printf(\"round %d line %d of many many many\\n\", n, (int)get_global_id(0));\n"
      "}\n";
  cl_program program = clu_program(&cl, source, "");
  cl_kernel kernel = clu_kernel(program, "print_lines");
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, sizeof(cl_int));
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  for (cl_int n = 0; n < 4; n++) {
    cl_event event;
    cl_int value = -1;
    clu_arg(kernel, 1, sizeof n, &n);
    CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &lines, &one, 0, NULL, &event));
    if (n == 0 || n == 3) CLU(clFinish(queue));
    if (n == 1) CLU(clWaitForEvents(1, &event));
    if (n == 2) CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    CLU(clReleaseEvent(event));
    if (n == 3) return 0;
    printf("complete %d\n", n);
    fflush(stdout);
  }
}
