/* Cases in which the answers of drivers differ, one line each. The lines are the same natively and
   through Baltra. The argument names an empty directory, which becomes the working directory. */
#define _GNU_SOURCE
#include "clu.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct clu cl;
static cl_command_queue queue;

static void write_file(const char *name, const char *text) {
  FILE *file = fopen(name, "w");
  if (!file || fputs(text, file) < 0 || fclose(file)) exit(EXIT_FILE);
}

static int builds(const char *source, const char *options) {
  cl_int code;
  cl_program program = clCreateProgramWithSource(cl.context, 1, &source, NULL, &code);
  if (code) return code;
  code = clBuildProgram(program, 1, &cl.device, options, NULL, NULL);
  clReleaseProgram(program);
  return code;
}

/* Ways to name a header; %s is the directory. */
static void includes(const char *directory) {
  static const char *ways[][2] = {
      {"#include \"m.h\"", "-I%s"},
      {"#define H \"m.h\"\n#include H", "-I%s"},
      {"#define Q(x) #x\n#define S(x) Q(x)\n#include S(m.h)", "-I%s"},
      {"#define Q(x) #x\n#define S(x) Q(x)\n#include S(PLACE/m.h)", "-D PLACE=%s"},
      {"#include \"a/../m.h\"", "-I%s"},
      {"#include \"../m.h\"", "-I%s/a"},
      {"#if defined(A) && A > 1\n#include <m.h>\n#else\n#include <none.h>\n#endif", "-I%s -DA=2"},
      {"#include \"none.h\"", "-I%s"},
  };
  if (chdir(directory)) exit(EXIT_FILE);
  mkdir("a", 0755);
  write_file("m.h", "#define M 3\n");
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    char source[512], options[4500];
    snprintf(source, sizeof source, "%s\nkernel void f(global int *a) { a[0] = M; }\n", ways[i][0]);
    snprintf(options, sizeof options, ways[i][1], directory);
    printf("include %zu: %s\n", i, builds(source, options) ? "refused" : "built");
  }
}

static void sources(void) {
  static const char *texts[] = {"", " ", "\n", "// c\n", "", "kernel void f() { int x = ; }", "kernel void f(void) {}"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) printf("source %zu: %d\n", i, builds(texts[i], ""));
}

/* Launches of many shapes. */
static void launches(void) {
  static const size_t shapes[][2] = {{1, 0}, {1, 1}, {7, 0}, {7, 7}, {64, 16}, {1000, 0}, {100, 3}, {12, 13}};
  cl_program program = clu_program(&cl, "kernel void f(global int *a) { a[get_global_id(0)] += 1; }", "");
  cl_kernel kernel = clu_kernel(program, "f");
  cl_int *values = calloc(4096, sizeof *values);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, 4096 * sizeof *values);
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    memset(values, 0, 4096 * sizeof *values);
    CLU(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4096 * sizeof *values, values, 0, NULL, NULL));
    const size_t *local = shapes[i][1] ? &shapes[i][1] : NULL;
    cl_int code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &shapes[i][0], local, 0, NULL, NULL);
    CLU(clFinish(queue));
    CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4096 * sizeof *values, values, 0, NULL, NULL));
    size_t sum = 0;
    for (size_t j = 0; j < 4096; j++) sum += (size_t)values[j];
    printf("launch %zu by %zu: %d, %zu\n", shapes[i][0], shapes[i][1], code, sum);
  }
  free(values);
  clReleaseMemObject(buffer);
  clReleaseKernel(kernel);
  clReleaseProgram(program);
}

/* Transfers, fills, copies, maps. */
static void memory(void) {
  enum { COUNT = 1000 };
  cl_int a[COUNT], b[COUNT], pattern = 7, code;
  for (int i = 0; i < COUNT; i++) a[i] = i;
  cl_mem one = clCreateBuffer(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof a, a, &code);
  printf("buffer %d\n", code);
  cl_mem other = clu_buffer(&cl, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, sizeof a);
  printf("copy %d\n", clEnqueueCopyBuffer(queue, one, other, 0, 0, sizeof a, 0, NULL, NULL));
  printf("fill %d\n", clEnqueueFillBuffer(queue, other, &pattern, sizeof pattern, 400, 400, 0, NULL, NULL));
  cl_int *mapped = clEnqueueMapBuffer(queue, other, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, sizeof a, 0, NULL, NULL, &code);
  printf("map %d: %d %d %d\n", code, mapped[99], mapped[100], mapped[999]);
  mapped[0] = -1;
  printf("unmap %d\n", clEnqueueUnmapMemObject(queue, other, mapped, 0, NULL, NULL));
  printf("read %d\n", clEnqueueReadBuffer(queue, other, CL_TRUE, 0, sizeof b, b, 0, NULL, NULL));
  printf("values %d %d %d %d\n", b[0], b[1], b[150], b[500]);
  printf("beyond %d\n", clEnqueueReadBuffer(queue, other, CL_TRUE, 4, sizeof b, b, 0, NULL, NULL));
  clReleaseMemObject(one);
  clReleaseMemObject(other);
}

static const char *text(char *room, size_t size, cl_int code) {
  room[size - 1] = 0;
  return code ? "refused" : room;
}

static void names(void) {
  char room[4096];
  printf("name %s\n", text(room, sizeof room, clGetDeviceInfo(cl.device, CL_DEVICE_NAME, sizeof room, room, NULL)));
  printf("version %s\n", text(room, sizeof room, clGetDeviceInfo(cl.device, CL_DEVICE_VERSION, sizeof room, room, NULL)));
  cl_program program = clu_program(&cl, "kernel void f(global int *a, int b) { a[0] = b; } kernel void g(void) {}", "");
  cl_kernel kernel = clu_kernel(program, "f");
  cl_uint count = 0;
  CLU(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
  printf("arguments %u\n", count);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, 64);
  cl_int value = 42;
  printf("set %d %d %d %d\n", clSetKernelArg(kernel, 0, sizeof buffer, &buffer), clSetKernelArg(kernel, 1, sizeof value, &value),
         clSetKernelArg(kernel, 2, sizeof value, &value), clSetKernelArg(kernel, 1, 1, &value));
  cl_int code;
  cl_kernel none = clCreateKernel(program, "none", &code);
  printf("none %d %d\n", none == NULL, code);
  clReleaseMemObject(buffer);
  clReleaseKernel(kernel);
  clReleaseProgram(program);
}

int main(int count, char **arguments) {
  if (count < 2) return EXIT_USAGE;
  clu_open(&cl, NULL);
  queue = clu_queue(&cl, 0);
  names();
  sources();
  includes(arguments[1]);
  launches();
  memory();
  printf("done\n");
  return 0;
}
