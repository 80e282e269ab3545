/* Runs a kernel with a table of MIB mebibytes from the binary in FILE, which it writes first if the
   file is missing. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

static const char *SOURCE =
    "constant uchar table[MIB << 20] = {7, 11, 13};\n"
    "kernel void look_up(global const uint *at, global uint *found) {\n"
    "  size_t i = get_global_id(0);\n"
    "  found[i] = table[at[i]];\n"
    "}\n";

static void save(cl_program program, const char *path) {
  size_t size = 0;
  CLU(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
  unsigned char *binary = clu_alloc(size);
  CLU(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(binary, 1, size, file) != size || fclose(file)) {
    fprintf(stderr, "cannot write %s\n", path);
    exit(1);
  }
  free(binary);
}

static cl_program restore(struct clu *cl, FILE *file) {
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  rewind(file);
  unsigned char *binary = clu_alloc(size);
  if (fread(binary, 1, size, file) != size) {
    fprintf(stderr, "cannot read the binary\n");
    exit(1);
  }
  cl_int status, code;
  const unsigned char *bytes = binary;
  cl_program program =
      clCreateProgramWithBinary(cl->context, 1, &cl->device, &size, &bytes, &status, &code);
  clu_must(code, "clCreateProgramWithBinary");
  clu_must(status, "binary_status");
  printf("binary %zu\n", size);
  free(binary);
  return program;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s FILE MIB\n", argv[0]);
    return 2;
  }
  struct clu cl;
  clu_open(&cl, NULL);
  char options[64];
  snprintf(options, sizeof options, "-DMIB=%d", atoi(argv[2]));
  cl_int code;
  FILE *file = fopen(argv[1], "rb");
  cl_program program =
      file ? restore(&cl, file) : clCreateProgramWithSource(cl.context, 1, &SOURCE, NULL, &code);
  CLU(clBuildProgram(program, 1, &cl.device, options, NULL, NULL));
  if (file) {
    fclose(file);
  } else {
    save(program, argv[1]);
  }

  cl_uint at[4] = {2, 1, 0, 3}, found[4] = {99, 99, 99, 99};
  size_t global = 4;
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_kernel kernel = clu_kernel(program, "look_up");
  cl_mem in = clu_buffer(&cl, CL_MEM_READ_ONLY, sizeof at), out = clu_buffer(&cl, CL_MEM_WRITE_ONLY, sizeof found);
  CLU(clEnqueueWriteBuffer(queue, in, CL_TRUE, 0, sizeof at, at, 0, NULL, NULL));
  clu_arg(kernel, 0, sizeof in, &in);
  clu_arg(kernel, 1, sizeof out, &out);
  CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
  CLU(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof found, found, 0, NULL, NULL));
  printf("found %u %u %u %u\n", found[0], found[1], found[2], found[3]);
  clReleaseMemObject(in);
  clReleaseMemObject(out);
  clReleaseKernel(kernel);
  clReleaseCommandQueue(queue);
  clReleaseProgram(program);
  clu_close(&cl);
  return 0;
}
