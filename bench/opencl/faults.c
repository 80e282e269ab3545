/* Programs that break a device's context, and one that tests whether it works.
 *
 *   faults [--device TEXT] good [SECONDS]   correct results for this time (default 0: once)
 *   faults [--device TEXT] stray            stores far outside its buffer
 *   faults [--device TEXT] null             stores to a null buffer
 *   faults [--device TEXT] endless          a kernel that does not end; prints the process id
 *
 * Exit status: 0 correct, or the fault was reported as an error; 1 wrong results, or an unreported
 * fault; 3 an OpenCL call failed. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../apps/common/clu.h"

enum { ITEMS = 1024, FAR_BITS = 40 };

static const char *const source =
    "kernel void add(global int *a) { a[get_global_id(0)] += 1; }\n"
    "kernel void stray(global int *a, ulong far) { *(global int *)((global char *)a + far) = 7; }\n"
    "kernel void null(global int *a) { a[get_global_id(0)] = 7; }\n"
    "kernel void endless(global volatile int *a) { while (a[0] == 0) ; }\n";

struct fault {
  struct clu cl;
  cl_command_queue queue;
  cl_program program;
  cl_mem buffer;
};

static void launch(struct fault *f, cl_kernel kernel, size_t items) {
  CLU(clEnqueueNDRangeKernel(f->queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

static int good(struct fault *f, double seconds) {
  cl_kernel kernel = clu_kernel(f->program, "add");
  clu_arg(kernel, 0, sizeof f->buffer, &f->buffer);
  double until = clu_now_ms() + seconds * 1e3;
  int rounds = 0;
  do {
    int result[ITEMS];
    launch(f, kernel, ITEMS);
    CLU(clEnqueueReadBuffer(f->queue, f->buffer, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL));
    rounds++;
    for (int i = 0; i < ITEMS; i++) {
      if (result[i] != rounds) {
        printf("wrong: item %d is %d after %d rounds\n", i, result[i], rounds);
        return EXIT_WRONG;
      }
    }
  } while (clu_now_ms() < until);
  printf("%d rounds right\n", rounds);
  return 0;
}

/* The launch or the following wait fails; the codes differ between drivers. */
static int fault(struct fault *f, const char *name) {
  cl_kernel kernel = clu_kernel(f->program, name);
  cl_ulong far = 1ull << FAR_BITS;
  cl_mem nothing = NULL;
  int is_null = !strcmp(name, "null");
  clu_arg(kernel, 0, sizeof f->buffer, is_null ? &nothing : &f->buffer);
  if (!is_null) clu_arg(kernel, 1, sizeof far, &far);
  size_t one = 1;
  cl_int code = clEnqueueNDRangeKernel(f->queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
  cl_int end = clFinish(f->queue);
  printf("%s: launch %d, finish %d\n", name, code, end);
  return code || end ? 0 : EXIT_WRONG;
}

static int endless(struct fault *f) {
  cl_kernel kernel = clu_kernel(f->program, "endless");
  clu_arg(kernel, 0, sizeof f->buffer, &f->buffer);
  launch(f, kernel, 1);
  CLU(clFlush(f->queue));
  clu_sleep_ms(500);
  printf("%ld\n", (long)getpid());
  fflush(stdout);
  CLU(clFinish(f->queue));
  return EXIT_WRONG;
}

int main(int argc, char **argv) {
  const char *device = NULL;
  int at = 1;
  if (at + 1 < argc && !strcmp(argv[at], "--device")) {
    device = argv[at + 1];
    at += 2;
  }
  const char *mode = at < argc ? argv[at] : "";
  if (strcmp(mode, "good") && strcmp(mode, "stray") && strcmp(mode, "null") &&
      strcmp(mode, "endless")) {
    fprintf(stderr, "usage: faults [--device TEXT] good [SECONDS] | stray | null | endless\n");
    return EXIT_USAGE;
  }
  struct fault f = {0};
  clu_open(&f.cl, device);
  f.queue = clu_queue(&f.cl, 0);
  f.program = clu_program(&f.cl, source, "");
  f.buffer = clu_buffer(&f.cl, CL_MEM_READ_WRITE, ITEMS * sizeof(cl_int));
  cl_int zero = 0;
  size_t bytes = ITEMS * sizeof zero;
  CLU(clEnqueueFillBuffer(f.queue, f.buffer, &zero, sizeof zero, 0, bytes, 0, NULL, NULL));
  CLU(clFinish(f.queue));
  if (!strcmp(mode, "good")) return good(&f, at + 1 < argc ? strtod(argv[at + 1], NULL) : 0);
  if (!strcmp(mode, "endless")) return endless(&f);
  return fault(&f, mode);
}
