/* An OpenCL driver for tests: PoCL, but every build fails. */
#define CL_TARGET_OPENCL_VERSION 200
#include "wrapped_pocl.h"

static cl_int CL_API_CALL build(cl_program program, cl_uint count, const cl_device_id *devices,
                                const char *options, void(CL_CALLBACK *then)(cl_program, void *),
                                void *data) {
  (void)program, (void)count, (void)devices, (void)options, (void)then, (void)data;
  return CL_BUILD_PROGRAM_FAILURE;
}

static void replace(void) {
  own.clBuildProgram = build;
}
