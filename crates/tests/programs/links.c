/* Compiles and links programs: prints codes and types, which are the same on all devices, and the
 * logs of failures. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

static struct clu cl;

static const char header[] =
    "#define STEP 3\n"
    "int twice(int x);\n"
    "typedef struct { int a, b; } pair;\n"
    "pair swapped(pair p);\n";
static const char uses[] =
    "#include \"shared/parts.h\"\n"
    "kernel void k(global int *out, int n) {\n"
    "  size_t i = get_global_id(0);\n"
    "  pair p = {n, (int)i};\n"
    "  p = swapped(p);\n"
    "  out[i] = twice(p.a) * STEP + p.b;\n"
    "  if (i == 0) printf(\"%d\\n\", n);\n"
    "}\n";
static const char defines[] =
    "#include \"shared/parts.h\"\n"
    "static int one(void) { return 1; }\n"
    "int twice(int x) { if (x < 0) printf(\"%d\\n\", x); return x + x + one() - 1; }\n"
    "pair swapped(pair p) { pair q = {p.b, p.a}; return q; }\n";
static const char broken[] = "kernel void k(global int *out) {\n  out[0] = undeclared_name;\n}\n";

static cl_program source(const char *text) {
  cl_int code;
  cl_program program = clCreateProgramWithSource(cl.context, 1, &text, NULL, &code);
  clu_must(code, "clCreateProgramWithSource");
  return program;
}

static cl_program_binary_type type(cl_program program) {
  cl_program_binary_type type = 0;
  CLU(clGetProgramBuildInfo(program, cl.device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
  return type;
}

static void print_log(cl_program program, const char *name) {
  size_t size = 0;
  CLU(clGetProgramBuildInfo(program, cl.device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size));
  char *log = clu_alloc(size + 1);
  CLU(clGetProgramBuildInfo(program, cl.device, CL_PROGRAM_BUILD_LOG, size, log, NULL));
  printf("log of %s: %s\n", name, log);
  free(log);
}

static cl_program compiled(const char *text, cl_program with, const char *name) {
  cl_program program = source(text);
  const char *path = "shared/parts.h";
  printf("%s compile %d", name, clCompileProgram(program, 1, &cl.device, "", 1, &with, &path, NULL, NULL));
  printf(" type %u\n", type(program));
  return program;
}

static cl_program linked(const char *options, cl_uint count, const cl_program *inputs, const char *name) {
  cl_int code;
  cl_program program = clLinkProgram(cl.context, 1, &cl.device, options, count, inputs, NULL, NULL, &code);
  printf("%s link %d", name, code);
  printf(" type %u\n", program ? type(program) : 99);
  return program;
}

/* The program again, by its binary. */
static cl_program reloaded(cl_program program) {
  size_t size;
  CLU(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
  unsigned char *bytes = clu_alloc(size);
  CLU(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL));
  cl_int code, status;
  const unsigned char *binary = bytes;
  cl_program copy = clCreateProgramWithBinary(cl.context, 1, &cl.device, &size, &binary, &status, &code);
  clu_must(code, "clCreateProgramWithBinary");
  free(bytes);
  return copy;
}

static void run(cl_program program, const char *name) {
  enum { ITEMS = 5 };
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_kernel kernel = clu_kernel(program, "k");
  cl_mem out = clu_buffer(&cl, CL_MEM_READ_WRITE, ITEMS * sizeof(cl_int));
  cl_int n = 100, values[ITEMS];
  size_t items = ITEMS;
  clu_arg(kernel, 0, sizeof out, &out);
  clu_arg(kernel, 1, sizeof n, &n);
  CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
  CLU(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
  int wrong = 0;
  for (int i = 0; i < ITEMS; i++) wrong += values[i] != 6 * i + 100;
  printf("%s wrong %d\n", name, wrong);
}

int main(void) {
  clu_open(&cl, NULL);
  cl_bool linker = CL_FALSE;
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_LINKER_AVAILABLE, sizeof linker, &linker, NULL));
  printf("linker %u\n", linker);
  cl_program shared = source(header);
  cl_program user = compiled(uses, shared, "user"), definer = compiled(defines, shared, "definer");
  cl_program both[] = {user, definer};
  run(linked("", 2, both, "whole"), "whole");
  cl_program library = linked("-create-library", 1, &definer, "library");
  cl_program with_library[] = {user, library};
  run(linked("", 2, with_library, "with-library"), "with-library");
  cl_program again[] = {reloaded(user), reloaded(library)};
  run(linked("", 2, again, "reloaded"), "reloaded");
  cl_program wrong = compiled(broken, shared, "broken");
  print_log(wrong, "broken");
  cl_program alone = linked("", 1, &user, "alone");
  if (alone) print_log(alone, "alone");
  cl_program twice[] = {user, definer, compiled(defines, shared, "second")};
  cl_program doubled = linked("", 3, twice, "doubled");
  if (doubled) print_log(doubled, "doubled");
  clu_close(&cl);
  return 0;
}
