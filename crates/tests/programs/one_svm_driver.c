/* An OpenCL driver for tests: PoCL, but allocations of shared virtual memory fail where another
 * one is in progress in the process, as in NVIDIA's driver. */
#define _DEFAULT_SOURCE
#define CL_TARGET_OPENCL_VERSION 200
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "wrapped_pocl.h"

/* Long enough for a second call to meet the first. */
#define CALL_US 500

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

static void replace(void) {
  own.clSVMAlloc = allocate;
  own.clSVMFree = release;
}
