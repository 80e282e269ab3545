/* An OpenCL driver for tests: PoCL, but the load of a binary that begins with "stuck" never ends. */
#define _DEFAULT_SOURCE
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

static cl_icd_dispatch own;
static cl_icd_dispatch pocl;

static cl_program CL_API_CALL load(cl_context context, cl_uint count, const cl_device_id *devices, const size_t *sizes,
                                   const unsigned char **binaries, cl_int *status, cl_int *code) {
  while (sizes[0] >= 5 && !memcmp(binaries[0], "stuck", 5)) pause();
  return pocl.clCreateProgramWithBinary(context, count, devices, sizes, binaries, status, code);
}

static cl_int CL_API_CALL platforms(cl_uint count, cl_platform_id *list, cl_uint *found) {
  void *library = dlopen("libpocl.so.2", RTLD_NOW);
  if (!library) return CL_PLATFORM_NOT_FOUND_KHR;
  void *(*address)(const char *) = (void *(*)(const char *))dlsym(library, "clGetExtensionFunctionAddress");
  if (!address) return CL_PLATFORM_NOT_FOUND_KHR;
  cl_int (*theirs)(cl_uint, cl_platform_id *, cl_uint *) =
      (cl_int(*)(cl_uint, cl_platform_id *, cl_uint *))address("clIcdGetPlatformIDsKHR");
  cl_int code = theirs(count, list, found);
  if (code != CL_SUCCESS || !list) return code;
  cl_icd_dispatch **table = (cl_icd_dispatch **)list[0];
  if (*table == &own) return code;
  pocl = own = **table;
  own.clCreateProgramWithBinary = load;
  *table = &own;
  return code;
}

void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
  return strcmp(name, "clIcdGetPlatformIDsKHR") ? NULL : (void *)platforms;
}
