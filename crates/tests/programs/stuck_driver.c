/* An OpenCL driver for tests: PoCL, but the load of a binary that begins with "stuck" never ends. */
#define _DEFAULT_SOURCE
#define CL_TARGET_OPENCL_VERSION 200
#include <string.h>
#include <unistd.h>

#include "wrapped_pocl.h"

static cl_program CL_API_CALL load(cl_context context, cl_uint count, const cl_device_id *devices, const size_t *sizes,
                                   const unsigned char **binaries, cl_int *status, cl_int *code) {
  while (sizes[0] >= 5 && !memcmp(binaries[0], "stuck", 5)) pause();
  return pocl.clCreateProgramWithBinary(context, count, devices, sizes, binaries, status, code);
}

static void replace(void) {
  own.clCreateProgramWithBinary = load;
}
