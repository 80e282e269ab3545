/* Builds programs from files, one after the other, and prints each one's code and log.
 *
 * builds FILE... */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "clu.h"

static char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) exit(EXIT_FILE);
  *size = (size_t)ftell(file);
  rewind(file);
  char *text = clu_alloc(*size);
  if (fread(text, 1, *size, file) != *size) exit(EXIT_FILE);
  fclose(file);
  return text;
}

int main(int argc, char **argv) {
  struct clu cl;
  clu_open(&cl, NULL);
  for (int n = 1; n < argc; n++) {
    size_t size = 0;
    char *text = read_file(argv[n], &size);
    const char *source = text;
    cl_int code;
    cl_program program = clCreateProgramWithSource(cl.context, 1, &source, &size, &code);
    clu_must(code, "clCreateProgramWithSource");
    printf("begin %d\n", n);
    fflush(stdout);
    printf("build %d code %d\n", n, clBuildProgram(program, 1, &cl.device, "", NULL, NULL));
    size_t length = 0;
    CLU(clGetProgramBuildInfo(program, cl.device, CL_PROGRAM_BUILD_LOG, 0, NULL, &length));
    char *log = clu_alloc(length + 1);
    CLU(clGetProgramBuildInfo(program, cl.device, CL_PROGRAM_BUILD_LOG, length, log, NULL));
    printf("%s\n", log);
    fflush(stdout);
    free(log);
    free(text);
    clReleaseProgram(program);
  }
  clu_close(&cl);
  return 0;
}
