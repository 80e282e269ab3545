/* Builds a program on an accelerator twice, and prints the seconds of each clBuildProgram: the
 * compilation, and the image from the cache. usage: build PROGRAM.cl IMAGE; writes the image. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void check(cl_int status, const char *what) {
  if (status == CL_SUCCESS) return;
  fprintf(stderr, "build: %s: error %d\n", what, status);
  exit(1);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static char *contents(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) return NULL;
  *size = (size_t)ftell(file);
  rewind(file);
  char *text = malloc(*size + 1);
  if (text == NULL || fread(text, 1, *size, file) != *size) return NULL;
  fclose(file);
  return text;
}

static cl_program build(cl_context context, cl_device_id device, const char *text, size_t size) {
  cl_int status;
  cl_program program = clCreateProgramWithSource(context, 1, &text, &size, &status);
  check(status, "clCreateProgramWithSource");
  double begin = seconds();
  status = clBuildProgram(program, 1, &device, "", NULL, NULL);
  double end = seconds();
  if (status != CL_SUCCESS) {
    static char log[65536];
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
    fputs(log, stderr);
  }
  check(status, "clBuildProgram");
  printf("%.4f\n", end - begin);
  return program;
}

int main(int argc, char **argv) {
  size_t size = 0;
  char *text = argc == 3 ? contents(argv[1], &size) : NULL;
  if (text == NULL) {
    fprintf(stderr, "usage: build PROGRAM.cl IMAGE\n");
    return 2;
  }
  cl_platform_id platform;
  cl_device_id device;
  cl_int status;
  check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
  check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ACCELERATOR, 1, &device, NULL), "clGetDeviceIDs");
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
  check(status, "clCreateContext");
  clReleaseProgram(build(context, device, text, size));
  cl_program program = build(context, device, text, size);
  size_t bytes = 0;
  status = clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
  check(status, "CL_PROGRAM_BINARY_SIZES");
  unsigned char *image = malloc(bytes);
  status = clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof image, &image, NULL);
  check(status, "CL_PROGRAM_BINARIES");
  FILE *file = fopen(argv[2], "wb");
  if (file == NULL || fwrite(image, 1, bytes, file) != bytes || fclose(file) != 0) {
    perror(argv[2]);
    return 1;
  }
  return 0;
}
