/* An OpenCL driver for tests: PoCL, but launching a kernel named `slow` takes LAUNCH_MS (400 ms).
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 200
#include <string.h>
#include <time.h>

#include "wrapped_pocl.h"

#ifndef LAUNCH_MS
#define LAUNCH_MS 400
#endif

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                 const size_t *offset, const size_t *global, const size_t *local,
                                 cl_uint waits, const cl_event *wait_list, cl_event *event) {
  const struct timespec time = {LAUNCH_MS / 1000, LAUNCH_MS % 1000 * 1000 * 1000};
  char name[64] = "";
  pocl.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
  if (!strcmp(name, "slow")) nanosleep(&time, NULL);
  return pocl.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, waits,
                                     wait_list, event);
}

static void replace(void) { own.clEnqueueNDRangeKernel = launch; }
