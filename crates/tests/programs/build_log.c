/* Prints the error and the log of a program that does not compile. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

int main(void) {
  struct clu cl;
  clu_open(&cl, NULL);
  const char *source = "kernel void broken(global int *a) {\n  a[0] = undeclared_name;\n  int unused\n}\n";
  cl_int code;
  cl_program program = clCreateProgramWithSource(cl.context, 1, &source, NULL, &code);
  clu_must(code, "clCreateProgramWithSource");
  printf("build %d\n", clBuildProgram(program, 1, &cl.device, "-DWIDTH=4", NULL, NULL));
  cl_build_status status = CL_BUILD_NONE;
  CLU(clGetProgramBuildInfo(program, cl.device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
  printf("status %d\n", status);
  size_t size = 0;
  CLU(clGetProgramBuildInfo(program, cl.device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size));
  char *log = clu_alloc(size + 1);
  CLU(clGetProgramBuildInfo(program, cl.device, CL_PROGRAM_BUILD_LOG, size, log, NULL));
  printf("log:\n%s\n", log);
  cl_kernel kernel = clCreateKernel(program, "broken", &code);
  printf("kernel %d %s\n", code, kernel ? "there" : "none");
  free(log);
  clReleaseProgram(program);
  clu_close(&cl);
  return 0;
}
