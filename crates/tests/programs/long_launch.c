/* Launches of a kernel that takes long, each of which is compared.

   long_launch ROUNDS GROUPS TIMES

   Each round adds to every word of a buffer, in GROUPS work-groups of 16 items, after TIMES steps of
   work, and its number of groups and group numbers, and compares all words. ROUNDS 0: indefinitely.
   Prints `round N` before each launch and `done` at the end. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "clu.h"

enum { ITEMS = 16 };

static const char source[] =
    "uint spend(uint value, uint times) {\n"
    "  for (uint i = 0; i < times; i++) value = value * 1664525u + 1013904223u;\n"
    "  return value / 0xffffffffu;\n"
    "}\n"
    "kernel void add(global uint *words, uint times) {\n"
    "  size_t at = get_global_id(0);\n"
    "  words[at] += spend((uint)at, times) + (uint)(get_num_groups(0) * 7 + get_group_id(0));\n"
    "}\n";

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: long_launch ROUNDS GROUPS TIMES\n");
    return EXIT_USAGE;
  }
  unsigned long rounds = strtoul(argv[1], NULL, 10);
  size_t groups = strtoul(argv[2], NULL, 10), count = groups * ITEMS, local = ITEMS;
  cl_uint times = (cl_uint)strtoul(argv[3], NULL, 10), zero = 0;
  cl_uint *words = clu_alloc(count * sizeof *words);

  struct clu cl;
  clu_open(&cl, NULL);
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_program program = clu_program(&cl, source, "");
  cl_kernel kernel = clu_kernel(program, "add");
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, count * sizeof *words);
  CLU(clEnqueueFillBuffer(queue, buffer, &zero, sizeof zero, 0, count * sizeof *words, 0, NULL, NULL));
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  clu_arg(kernel, 1, sizeof times, &times);
  for (unsigned long round = 1; !rounds || round <= rounds; round++) {
    printf("round %lu\n", round);
    fflush(stdout);
    CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, &local, 0, NULL, NULL));
    CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, count * sizeof *words, words, 0, NULL, NULL));
    for (size_t i = 0; i < count; i++) {
      cl_uint wanted = (cl_uint)round * (cl_uint)(groups * 7 + i / ITEMS);
      if (words[i] == wanted) continue;
      printf("wrong at %zu in round %lu: %u, not %u\n", i, round, words[i], wanted);
      return EXIT_WRONG;
    }
  }
  printf("done\n");
  CLU(clReleaseMemObject(buffer));
  CLU(clReleaseKernel(kernel));
  CLU(clReleaseProgram(program));
  CLU(clReleaseCommandQueue(queue));
  clu_close(&cl);
  free(words);
  return 0;
}
