/* A kernel that prints: its output is delivered before the call that waits for it returns. */
#define _POSIX_C_SOURCE 200809L
#include "clu.h"

int main(void) {
  struct clu cl;
  clu_open(&cl, NULL);
  cl_command_queue queue = clu_queue(&cl, 0);
  const char *source =
      "kernel void print_number(global int *a, int n) { printf(\"kernel %d\\n\", n); a[0] = n; }\n";
  cl_program program = clu_program(&cl, source, "");
  cl_kernel kernel = clu_kernel(program, "print_number");
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, sizeof(cl_int));
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  for (cl_int n = 0; n < 3; n++) {
    size_t one = 1;
    cl_event event;
    cl_int value = -1;
    clu_arg(kernel, 1, sizeof n, &n);
    printf("enqueue %d\n", n);
    fflush(stdout);
    CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
    if (n == 0) CLU(clFinish(queue));
    if (n == 1) CLU(clWaitForEvents(1, &event));
    if (n == 2) CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    printf("complete %d\n", n);
    fflush(stdout);
    CLU(clReleaseEvent(event));
  }
  return 0;
}
