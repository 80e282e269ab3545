/* An OpenCL driver for tests: PoCL, but of another version. */
#define CL_TARGET_OPENCL_VERSION 200
#include "wrapped_pocl.h"

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info name, size_t bytes, void *value,
                                      size_t *needed) {
  static const char version[] = "99.0";
  if (name != CL_DRIVER_VERSION) return pocl.clGetDeviceInfo(device, name, bytes, value, needed);
  if (needed) *needed = sizeof version;
  if (!value) return CL_SUCCESS;
  if (bytes < sizeof version) return CL_INVALID_VALUE;
  memcpy(value, version, sizeof version);
  return CL_SUCCESS;
}

static void replace(void) {
  own.clGetDeviceInfo = device_info;
}
