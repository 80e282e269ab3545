/* Writes, computes, reads and checks, repeatedly: a well-behaved tenant. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

static const char source[] =
    "kernel void advance(global const uint *from, global uint *to, uint round) {\n"
    "  size_t i = get_global_id(0);\n"
    "  to[i] = from[i] * 3u + round;\n"
    "}\n";

static void must(cl_int code, const char *call) {
  if (code == CL_SUCCESS) return;
  printf("error %d in %s\n", code, call);
  exit(EXIT_OPENCL);
}

/* work ROUNDS [BYTES [PAUSE_MS]]: number of rounds, 0: indefinitely; prints a line regularly, flushed. */
int main(int argc, char **argv) {
  unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
  size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 4096;
  double pause_ms = argc > 3 ? strtod(argv[3], NULL) : 0;
  size_t count = bytes / sizeof(cl_uint);
  cl_uint *in = clu_alloc(bytes), *out = clu_alloc(bytes);

  struct clu cl;
  clu_open(&cl, NULL);
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_program program = clu_program(&cl, source, "");
  cl_kernel kernel = clu_kernel(program, "advance");
  cl_mem from = clu_buffer(&cl, CL_MEM_READ_ONLY, bytes), to = clu_buffer(&cl, CL_MEM_WRITE_ONLY, bytes);
  clu_arg(kernel, 0, sizeof from, &from);
  clu_arg(kernel, 1, sizeof to, &to);
  printf("device %s\n", cl.device_name);
  fflush(stdout);

  double printed_ms = 0;
  for (unsigned long round = 1; !rounds || round <= rounds; round++) {
    for (size_t i = 0; i < count; i++) in[i] = (cl_uint)(i * 2654435761u + round);
    cl_uint number = (cl_uint)round;
    must(clSetKernelArg(kernel, 2, sizeof number, &number), "clSetKernelArg");
    must(clEnqueueWriteBuffer(queue, from, CL_FALSE, 0, bytes, in, 0, NULL, NULL), "clEnqueueWriteBuffer");
    must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    must(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, bytes, out, 0, NULL, NULL), "clEnqueueReadBuffer");
    for (size_t i = 0; i < count; i++) {
      if (out[i] == in[i] * 3u + number) continue;
      printf("wrong at %zu in round %lu: %u\n", i, round, out[i]);
      return EXIT_WRONG;
    }
    if (clu_now_ms() - printed_ms > 20) {
      printed_ms = clu_now_ms();
      printf("round %lu\n", round);
      fflush(stdout);
    }
    if (pause_ms > 0) clu_sleep_ms(pause_ms);
  }
  printf("done\n");

  clReleaseMemObject(from);
  clReleaseMemObject(to);
  clReleaseKernel(kernel);
  clReleaseProgram(program);
  clReleaseCommandQueue(queue);
  clu_close(&cl);
  free(in);
  free(out);
  return 0;
}
