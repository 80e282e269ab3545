/* Holds shared virtual memory until it is killed. */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
    return 3;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
  if (!context || !clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0)) return 3;
  printf("allocated\n");
  fflush(stdout);
  for (;;) pause();
}
