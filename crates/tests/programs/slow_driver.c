/* An OpenCL driver for tests: PoCL, but loading a binary takes LOAD_MS (30 ms), as if it programmed
   a device. */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 200
#include <time.h>

#include "wrapped_pocl.h"

#ifndef LOAD_MS
#define LOAD_MS 30
#endif

static cl_program CL_API_CALL load(cl_context context, cl_uint count, const cl_device_id *devices,
                                   const size_t *sizes, const unsigned char **binaries,
                                   cl_int *status, cl_int *code) {
  const struct timespec time = {LOAD_MS / 1000, LOAD_MS % 1000 * 1000 * 1000};
  nanosleep(&time, NULL);
  return pocl.clCreateProgramWithBinary(context, count, devices, sizes, binaries, status, code);
}

static void replace(void) {
  own.clCreateProgramWithBinary = load;
}
