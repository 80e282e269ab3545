/* An OpenCL driver for tests: PoCL, but every program has variables of its own. */
#define CL_TARGET_OPENCL_VERSION 200
#include "wrapped_pocl.h"

static cl_int CL_API_CALL build_info(cl_program program, cl_device_id device, cl_program_build_info name,
                                     size_t bytes, void *value, size_t *needed) {
  const size_t total = sizeof(cl_uint);
  if (name != CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE)
    return pocl.clGetProgramBuildInfo(program, device, name, bytes, value, needed);
  if (needed) *needed = sizeof total;
  if (!value) return CL_SUCCESS;
  if (bytes < sizeof total) return CL_INVALID_VALUE;
  memcpy(value, &total, sizeof total);
  return CL_SUCCESS;
}

static void replace(void) {
  own.clGetProgramBuildInfo = build_info;
}
