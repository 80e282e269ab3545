/* Queries of programs and kernels of every origin: one line each, which must be the same
   natively and through Baltra. See parts.h. */
#define _GNU_SOURCE
#include "parts.h"
#include <string.h>

#ifndef CL_PROGRAM_IL
#define CL_PROGRAM_IL 0x1169
#endif
#ifndef CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT
#define CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT 0x116A
#define CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT 0x116B
#endif
#ifndef CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE
#define CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE 0x1185
#endif

static const char source[] =
    "kernel void plain(global int *out, constant float *table, local int *room, int number, float4 "
    "vector) {\n"
    "  room[get_local_id(0)] = number;\n"
    "  out[get_global_id(0)] = room[get_local_id(0)] + (int)table[0] + (int)vector.x;\n"
    "}\n"
    "kernel void nothing(void) {}\n"
    "kernel __attribute__((reqd_work_group_size(8, 1, 1))) void demanding(global const uchar *in, "
    "volatile global int *out) {\n"
    "  out[get_global_id(0)] = in[get_global_id(0)];\n"
    "}\n";

static struct clu cl;

struct word {
  int param;
  const char *name;
};

/* Formats of a value. */
enum show { NUMBERS, TEXT, LENGTH, PRESENCE };

static void show(const char *what, const char *name, cl_int code, enum show how,
                 const unsigned char *value, size_t size) {
  printf("%s: %s: %d", what, name, code);
  if (code == CL_SUCCESS && how == PRESENCE) printf(" %s", size > 1 ? "some" : "none");
  if (code == CL_SUCCESS && how == LENGTH) printf(" %zu", size);
  if (code == CL_SUCCESS && how == TEXT)
    printf(" %zu '%.*s'", size, size ? (int)size - 1 : 0, (const char *)value);
  if (code == CL_SUCCESS && how == NUMBERS) {
    printf(" %zu:", size);
    for (size_t i = 0; i < size; i++) printf("%02x", value[i]);
  }
  printf("\n");
}

static unsigned char room[1 << 20];

static void program_info(const char *what, cl_program program) {
  static const struct {
    struct word word;
    enum show how;
  } all[] = {
      {{CL_PROGRAM_NUM_DEVICES, "devices"}, NUMBERS},
      {{CL_PROGRAM_SOURCE, "source"}, PRESENCE},
      {{CL_PROGRAM_NUM_KERNELS, "kernels"}, NUMBERS},
      {{CL_PROGRAM_KERNEL_NAMES, "names"}, LENGTH},
      {{CL_PROGRAM_IL, "language"}, PRESENCE},
      {{CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT, "constructors"}, NUMBERS},
      {{CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT, "destructors"}, NUMBERS},
      {{0x1234, "unknown"}, NUMBERS},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    size_t size = 0;
    cl_int code =
        clGetProgramInfo(program, (cl_program_info)all[i].word.param, sizeof room, room, &size);
    show(what, all[i].word.name, code, all[i].how, room, size);
  }
  size_t bytes = 0;
  cl_int code = clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
  unsigned char *binary = bytes && bytes < sizeof room ? room : NULL;
  printf("%s: sizes: %d %s\n", what, code, bytes ? "some" : "none");
  code = clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
  printf("%s: binaries: %d\n", what, code);
}

static void build_info(const char *what, cl_program program) {
  static const struct {
    struct word word;
    enum show how;
  } all[] = {
      {{CL_PROGRAM_BUILD_STATUS, "status"}, NUMBERS},
      {{CL_PROGRAM_BUILD_OPTIONS, "options"}, TEXT},
      {{CL_PROGRAM_BINARY_TYPE, "type"}, NUMBERS},
      {{CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, "globals"}, NUMBERS},
      {{0x1234, "unknown build"}, NUMBERS},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    size_t size = 0;
    cl_int code = clGetProgramBuildInfo(
        program, cl.device, (cl_program_build_info)all[i].word.param, sizeof room, room, &size);
    show(what, all[i].word.name, code, all[i].how, room, size);
  }
}

static void argument_info(const char *what, cl_kernel kernel) {
  static const struct {
    struct word word;
    enum show how;
  } all[] = {
      {{CL_KERNEL_ARG_ADDRESS_QUALIFIER, "address"}, NUMBERS},
      {{CL_KERNEL_ARG_ACCESS_QUALIFIER, "access"}, NUMBERS},
      {{CL_KERNEL_ARG_TYPE_NAME, "type"}, TEXT},
      {{CL_KERNEL_ARG_TYPE_QUALIFIER, "qualifier"}, NUMBERS},
      {{CL_KERNEL_ARG_NAME, "name"}, TEXT},
      {{0x1234, "unknown"}, NUMBERS},
  };
  cl_uint count = 0;
  clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL);
  for (cl_uint at = 0; at <= count; at++) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
      char name[64];
      size_t size = 0;
      cl_int code = clGetKernelArgInfo(kernel, at, (cl_kernel_arg_info)all[i].word.param,
                                       sizeof room, room, &size);
      snprintf(name, sizeof name, "%u %s", at, all[i].word.name);
      show(what, name, code, all[i].how, room, size);
    }
  }
}

static void kernel_info(const char *what, cl_kernel kernel) {
  static const struct {
    struct word word;
    enum show how;
  } all[] = {
      {{CL_KERNEL_FUNCTION_NAME, "function"}, TEXT},
      {{CL_KERNEL_NUM_ARGS, "arguments"}, NUMBERS},
      {{CL_KERNEL_ATTRIBUTES, "attributes"}, TEXT},
      {{0x1234, "unknown"}, NUMBERS},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    size_t size = 0;
    cl_int code =
        clGetKernelInfo(kernel, (cl_kernel_info)all[i].word.param, sizeof room, room, &size);
    show(what, all[i].word.name, code, all[i].how, room, size);
  }
}

static void group_info(const char *what, cl_kernel kernel) {
  static const struct word all[] = {
      {CL_KERNEL_WORK_GROUP_SIZE, "group"},
      {CL_KERNEL_COMPILE_WORK_GROUP_SIZE, "demanded"},
      {CL_KERNEL_LOCAL_MEM_SIZE, "local"},
      {CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, "multiple"},
      {CL_KERNEL_PRIVATE_MEM_SIZE, "private"},
      {CL_KERNEL_GLOBAL_WORK_SIZE, "global"},
      {0x1234, "unknown"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    size_t size = 0;
    cl_kernel_work_group_info param = (cl_kernel_work_group_info)all[i].param;
    cl_int code = clGetKernelWorkGroupInfo(kernel, cl.device, param, sizeof room, room, &size);
    show(what, all[i].name, code, NUMBERS, room, size);
  }
}

static void each_kernel(const char *what, cl_program program,
                        void (*ask)(const char *, cl_kernel)) {
  static const char *names[] = {"plain", "nothing", "demanding"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char label[256];
    cl_int code;
    cl_kernel kernel = clCreateKernel(program, names[i], &code);
    snprintf(label, sizeof label, "%s: %s", what, names[i]);
    printf("%s: %d\n", label, code);
    if (!kernel) continue;
    ask(label, kernel);
    clReleaseKernel(kernel);
  }
}

static void kernel_and_group_info(const char *what, cl_kernel kernel) {
  kernel_info(what, kernel);
  group_info(what, kernel);
}

static void ask_arguments(const char *what, cl_program program) {
  each_kernel(what, program, argument_info);
}
static void ask_kernels(const char *what, cl_program program) {
  each_kernel(what, program, kernel_and_group_info);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

/* Kernels sorted by name: drivers use their own order, which may vary. */
static void creation(const char *what, cl_program program) {
  enum { MOST = 8 };
  cl_kernel all[MOST];
  char found[MOST][64];
  cl_uint count = 0;
  cl_int code = clCreateKernelsInProgram(program, 0, NULL, &count);
  printf("%s: how many: %d %u\n", what, code, count);
  if (count > 1 && count <= MOST) {
    printf("%s: too few: %d\n", what, clCreateKernelsInProgram(program, count - 1, all, NULL));
    code = clCreateKernelsInProgram(program, count, all, NULL);
    printf("%s: all: %d\n", what, code);
    for (cl_uint i = 0; code == CL_SUCCESS && i < count; i++) {
      CLU(clGetKernelInfo(all[i], CL_KERNEL_FUNCTION_NAME, sizeof found[i], found[i], NULL));
      clReleaseKernel(all[i]);
    }
    qsort(found, count, sizeof *found, by_name);
    for (cl_uint i = 0; code == CL_SUCCESS && i < count; i++)
      printf("%s: kernel '%s'\n", what, found[i]);
  }
  static const char *names[] = {"plain", "none", ""};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    cl_kernel kernel = clCreateKernel(program, names[i], &code);
    printf("%s: named '%s': %d\n", what, names[i], code);
    if (kernel) clReleaseKernel(kernel);
  }
}

static cl_program made(const char *text) {
  cl_int code;
  cl_program program = clCreateProgramWithSource(cl.context, 1, &text, NULL, &code);
  clu_must(code, "clCreateProgramWithSource");
  return program;
}

static cl_program from_bytes(const char *what, const unsigned char *bytes, size_t size) {
  cl_int status = 77, code;
  cl_program program =
      clCreateProgramWithBinary(cl.context, 1, &cl.device, &size, &bytes, &status, &code);
  printf("%s: made: %d %d\n", what, code, status);
  return program;
}

static cl_program from_binary(const char *what, cl_program origin) {
  size_t size = 0;
  CLU(clGetProgramInfo(origin, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
  unsigned char *bytes = malloc(size + 1);
  CLU(clGetProgramInfo(origin, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL));
  cl_program program = from_bytes(what, bytes, size);
  free(bytes);
  return program;
}

static cl_program built(const char *what, cl_program program, const char *options) {
  if (program)
    printf("%s: build: %d\n", what, clBuildProgram(program, 1, &cl.device, options, NULL, NULL));
  return program;
}

static cl_program linked(const char *what, cl_program input, const char *options) {
  cl_int code;
  cl_program program =
      clLinkProgram(cl.context, 1, &cl.device, options, 1, &input, NULL, NULL, &code);
  printf("%s: link: %d %d\n", what, code, program != NULL);
  return program;
}

static const char broken[] = "kernel void f() { int x = ; }";
static const char helper[] = "int helper(int a) { return a; }";
static const char options[] = "-cl-kernel-arg-info";

static cl_program unbuilt_source(const char *what) { return what ? made(source) : NULL; }
static cl_program built_source(const char *what) { return built(what, made(source), options); }
static cl_program broken_source(const char *what) { return built(what, made(broken), ""); }
static cl_program kernelless_source(const char *what) { return built(what, made(helper), ""); }
static cl_program unbuilt_binary(const char *what) { return from_binary(what, built_source(what)); }
static cl_program built_binary(const char *what) { return built(what, unbuilt_binary(what), ""); }
static cl_program binary_of_binary(const char *what) {
  return built(what, from_binary(what, built_binary(what)), "");
}
static cl_program rebuilt_binary(const char *what) {
  return built(what, built_binary(what), "-DX=1");
}
static cl_program compiled_source(const char *what) {
  cl_program program = made(source);
  printf("%s: compile: %d\n", what,
         clCompileProgram(program, 1, &cl.device, options, 0, NULL, NULL, NULL, NULL));
  return program;
}
static cl_program executable(const char *what) { return linked(what, compiled_source(what), ""); }
static cl_program binary_of_executable(const char *what) {
  return built(what, from_binary(what, executable(what)), "");
}
static cl_program executable_of_binary(const char *what) {
  return linked(what, from_binary(what, compiled_source(what)), "");
}
static cl_program junk(const char *what) {
  static const unsigned char bytes[] = "this is not a program";
  return from_bytes(what, bytes, sizeof bytes);
}

static const struct origin {
  const char *name;
  cl_program (*make)(const char *what);
} origins[] = {
    {"unbuilt source", unbuilt_source},
    {"source", built_source},
    {"broken source", broken_source},
    {"source without kernels", kernelless_source},
    {"unbuilt binary", unbuilt_binary},
    {"binary", built_binary},
    {"rebuilt binary", rebuilt_binary},
    {"a binary's binary", binary_of_binary},
    {"executable", executable},
    {"an executable's binary", binary_of_executable},
    {"a binary's executable", executable_of_binary},
    {"junk", junk},
};

static void build_and_program_info(const char *what, cl_program program) {
  build_info(what, program);
  program_info(what, program);
}

static const struct subject {
  const char *name;
  void (*ask)(const char *what, cl_program program);
} subjects[] = {{"program", build_and_program_info},
                {"kernels", ask_kernels},
                {"arguments", ask_arguments},
                {"creation", creation}};

struct question {
  const struct origin *origin;
  const struct subject *subject;
};

static void ask(const char *name, const void *argument) {
  const struct question *question = argument;
  clu_open(&cl, NULL);
  cl_program program = question->origin->make(name);
  if (program) question->subject->ask(name, program);
}

int main(void) {
  for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
    for (size_t j = 0; j < sizeof subjects / sizeof *subjects; j++) {
      char name[128];
      snprintf(name, sizeof name, "%s of %s", subjects[j].name, origins[i].name);
      part(name, ask, &(struct question){&origins[i], &subjects[j]});
    }
  printf("done\n");
  return 0;
}
