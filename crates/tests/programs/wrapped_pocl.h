/* For OpenCL drivers of tests: PoCL with other functions in its table. A driver defines `replace`. */
#pragma once
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <string.h>

static cl_icd_dispatch own;  /* the driver's table */
static cl_icd_dispatch pocl; /* PoCL's table */

/* Replaces functions of `own`, which begins as a copy of PoCL's table. */
static void replace(void);

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
  replace();
  *table = &own;
  return code;
}

void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
  return strcmp(name, "clIcdGetPlatformIDsKHR") ? NULL : (void *)platforms;
}
