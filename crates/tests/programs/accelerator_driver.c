/* An OpenCL driver for tests: PoCL as an accelerator's driver. */
#define CL_TARGET_OPENCL_VERSION 120
#include "wrapped_pocl.h"

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info param, size_t size, void *out, size_t *needed) {
  cl_device_type type = CL_DEVICE_TYPE_ACCELERATOR;
  if (param != CL_DEVICE_TYPE) return pocl.clGetDeviceInfo(device, param, size, out, needed);
  if (needed) *needed = sizeof type;
  if (out && size < sizeof type) return CL_INVALID_VALUE;
  if (out) memcpy(out, &type, sizeof type);
  return CL_SUCCESS;
}

static void replace(void) {
  own.clGetDeviceInfo = device_info;
}
