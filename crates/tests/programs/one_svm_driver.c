/* An OpenCL driver for tests: PoCL, but allocations of shared virtual memory fail where another
 * one is in progress in the process, as in NVIDIA's driver. */
#define _DEFAULT_SOURCE
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Long enough for a second call to meet the first. */
#define CALL_US 500

static cl_icd_dispatch own;
static cl_icd_dispatch pocl;
static atomic_int calls;

static void *CL_API_CALL allocate(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
  int others = atomic_fetch_add(&calls, 1);
  usleep(CALL_US);
  void *address = others ? NULL : pocl.clSVMAlloc(context, flags, size, alignment);
  atomic_fetch_sub(&calls, 1);
  return address;
}

static void CL_API_CALL release(cl_context context, void *address) {
  atomic_fetch_add(&calls, 1);
  usleep(CALL_US);
  pocl.clSVMFree(context, address);
  atomic_fetch_sub(&calls, 1);
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
  own.clSVMAlloc = allocate;
  own.clSVMFree = release;
  *table = &own;
  return code;
}

void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
  return strcmp(name, "clIcdGetPlatformIDsKHR") ? NULL : (void *)platforms;
}
