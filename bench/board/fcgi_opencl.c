// A function behind nginx: passes the body of each FastCGI request through an OpenCL kernel, one
// work-item per byte, and returns the result. One request at a time, like a card with one kernel.
//
// usage: fcgi_opencl SOCKET SOURCE.cl KERNEL
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <fcgiapp.h>
#include <stdio.h>
#include <stdlib.h>

#define BODY_BYTES 65536

static void check(cl_int status, const char *what) {
  if (status == CL_SUCCESS) return;
  fprintf(stderr, "error: %s: %d\n", what, status);
  exit(1);
}

static char *text_of(const char *path) {
  FILE *file = fopen(path, "rb");
  char *text = calloc(1, BODY_BYTES);
  if (!file || !text || fread(text, 1, BODY_BYTES - 1, file) == 0) {
    perror(path);
    exit(1);
  }
  fclose(file);
  return text;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fputs("usage: fcgi_opencl SOCKET SOURCE.cl KERNEL\n", stderr);
    return 2;
  }
  cl_int status;
  cl_platform_id platform;
  cl_device_id device;
  check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
  check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
  check(status, "clCreateContext");
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
  check(status, "clCreateCommandQueue");
  const char *source = text_of(argv[2]);
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
  check(status, "clCreateProgramWithSource");
  check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
  cl_kernel kernel = clCreateKernel(program, argv[3], &status);
  check(status, "clCreateKernel");
  cl_mem body = clCreateBuffer(context, CL_MEM_READ_ONLY, BODY_BYTES, NULL, &status);
  check(status, "clCreateBuffer");
  cl_mem answer = clCreateBuffer(context, CL_MEM_WRITE_ONLY, BODY_BYTES, NULL, &status);
  check(status, "clCreateBuffer");
  check(clSetKernelArg(kernel, 0, sizeof body, &body), "clSetKernelArg");
  check(clSetKernelArg(kernel, 1, sizeof answer, &answer), "clSetKernelArg");

  static char bytes[BODY_BYTES];
  FCGX_Request request;
  int listening = -1;
  if (FCGX_Init() != 0 || (listening = FCGX_OpenSocket(argv[1], 16)) < 0 || FCGX_InitRequest(&request, listening, 0) != 0) {
    fprintf(stderr, "error: cannot listen on %s\n", argv[1]);
    return 1;
  }
  while (FCGX_Accept_r(&request) == 0) {
    const char *length = FCGX_GetParam("CONTENT_LENGTH", request.envp);
    const size_t size = length ? strtoul(length, NULL, 10) : 0;
    if (size == 0 || size > BODY_BYTES || FCGX_GetStr(bytes, (int)size, request.in) != (int)size) {
      FCGX_FPrintF(request.out, "Status: 400 Bad Request\r\n\r\n");
    } else {
      check(clEnqueueWriteBuffer(queue, body, CL_FALSE, 0, size, bytes, 0, NULL, NULL), "clEnqueueWriteBuffer");
      check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &size, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
      check(clEnqueueReadBuffer(queue, answer, CL_TRUE, 0, size, bytes, 0, NULL, NULL), "clEnqueueReadBuffer");
      FCGX_FPrintF(request.out, "Content-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", (int)size);
      FCGX_PutStr(bytes, (int)size, request.out);
    }
    FCGX_Finish_r(&request);
  }
  return 0;
}
