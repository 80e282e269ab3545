/* A tenant that keeps buffers on a device and computes when a line of its input requests it.
 *
 *   tenant [--bytes 2G] [--piece 64M] [--device TEXT]
 *
 * Fills --bytes of device memory in buffers of --piece, then prints "ready". Each line of its input
 * is a number of milliseconds, for which it adds 1 to every word, one buffer and task after the
 * other; it prints "tasks N" every 100 ms, and "done" at the end. At the end of the input it checks
 * all words.
 *
 * Exit status: 0 all bytes are right, 1 some are wrong, 2 usage, 3 OpenCL failed, 4 no memory. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "../../apps/common/clu.h"

static const char source[] =
    "kernel void fill(global uint *words, uint seed) {\n"
    "  size_t i = get_global_id(0);\n"
    "  words[i] = (uint)i * 2654435761u + seed;\n"
    "}\n"
    "kernel void increase(global uint *words) { words[get_global_id(0)] += 1u; }\n";

static const double REPORT_MS = 100;

struct tenant {
  cl_command_queue queue;
  cl_kernel fill, increase;
  cl_mem *pieces;
  cl_uint *added;
  size_t count, words;
};

static void must(cl_int code, const char *call) {
  if (code == CL_SUCCESS) return;
  printf("error %d in %s\n", code, call);
  exit(EXIT_OPENCL);
}

static void fill(struct tenant *t, struct clu *cl, size_t piece) {
  for (size_t at = 0; at < t->count; at++) {
    cl_int code;
    t->pieces[at] = clCreateBuffer(cl->context, CL_MEM_READ_WRITE, piece, NULL, &code);
    must(code, "clCreateBuffer");
    cl_uint seed = (cl_uint)at;
    clu_arg(t->fill, 0, sizeof(cl_mem), &t->pieces[at]);
    clu_arg(t->fill, 1, sizeof seed, &seed);
    must(clEnqueueNDRangeKernel(t->queue, t->fill, 1, NULL, &t->words, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
  }
  must(clFinish(t->queue), "clFinish");
}

static void compute(struct tenant *t, double ms) {
  double start_ms = clu_now_ms(), printed_ms = start_ms;
  unsigned long tasks = 0;
  for (size_t at = 0; clu_now_ms() - start_ms < ms; at = (at + 1) % t->count) {
    clu_arg(t->increase, 0, sizeof(cl_mem), &t->pieces[at]);
    must(clEnqueueNDRangeKernel(t->queue, t->increase, 1, NULL, &t->words, NULL, 0, NULL, NULL),
         "clEnqueueNDRangeKernel");
    must(clFinish(t->queue), "clFinish");
    t->added[at]++;
    tasks++;
    if (clu_now_ms() - printed_ms < REPORT_MS) continue;
    printed_ms = clu_now_ms();
    printf("tasks %lu\n", tasks);
    fflush(stdout);
  }
  printf("tasks %lu\ndone\n", tasks);
  fflush(stdout);
}

static bool is_right(struct tenant *t, size_t piece) {
  cl_uint *words = clu_alloc(piece);
  bool right = true;
  for (size_t at = 0; at < t->count && right; at++) {
    must(clEnqueueReadBuffer(t->queue, t->pieces[at], CL_TRUE, 0, piece, words, 0, NULL, NULL), "clEnqueueReadBuffer");
    for (size_t i = 0; i < t->words && right; i++)
      right = words[i] == (cl_uint)i * 2654435761u + (cl_uint)at + t->added[at];
  }
  free(words);
  return right;
}

static void usage(void) {
  fputs("usage: tenant [--bytes 2G] [--piece 64M] [--device TEXT]\n", stderr);
  exit(EXIT_USAGE);
}

int main(int argc, char **argv) {
  size_t bytes = (size_t)2 << 30, piece = 64 << 20;
  const char *device = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--bytes")) bytes = parse_bytes(argv[i + 1]);
    else if (!strcmp(argv[i], "--piece")) piece = parse_bytes(argv[i + 1]);
    else if (!strcmp(argv[i], "--device")) device = argv[i + 1];
    else usage();
  }
  if (argc % 2 == 0 || piece < sizeof(cl_uint) || piece % sizeof(cl_uint) || bytes < piece) usage();
  struct clu cl;
  clu_open(&cl, device);
  cl_program program = clu_program(&cl, source, "");
  struct tenant t = {
      .queue = clu_queue(&cl, 0),
      .fill = clu_kernel(program, "fill"),
      .increase = clu_kernel(program, "increase"),
      .count = bytes / piece,
      .words = piece / sizeof(cl_uint),
  };
  t.pieces = clu_alloc(t.count * sizeof(cl_mem));
  t.added = clu_alloc(t.count * sizeof(cl_uint));
  memset(t.added, 0, t.count * sizeof(cl_uint));
  fill(&t, &cl, piece);
  printf("ready\n");
  fflush(stdout);
  char line[64];
  while (fgets(line, sizeof line, stdin)) compute(&t, strtod(line, NULL));
  if (!is_right(&t, piece)) return EXIT_WRONG;
  printf("right\n");
  return 0;
}
