/* A program that needs something of its device, and computes on: needs
 * group|depth|local|image|nothing. Prints "round N" until it is ended. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { ITEMS = 256, LOCAL_BYTES = 24 << 10, PAUSE_MS = 10 };

static const char source[] =
    "kernel void count(global uint *sum, local uint *room) {\n"
    "  size_t i = get_global_id(0) + get_global_id(2);\n"
    "  room[get_local_id(0) + get_local_id(2)] = sum[i] + 1;\n"
    "  sum[i] = room[get_local_id(0) + get_local_id(2)];\n"
    "}\n";

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "nothing";
  int is_deep = !strcmp(what, "depth");
  size_t side = !strcmp(what, "group") ? 256 : is_deep ? 128 : 64;
  size_t global[3] = {is_deep ? 1 : ITEMS, 1, is_deep ? ITEMS : 1};
  size_t local[3] = {is_deep ? 1 : side, 1, is_deep ? side : 1};
  size_t room = strcmp(what, "local") ? side * sizeof(cl_uint) : LOCAL_BYTES;
  struct clu cl;
  clu_open(&cl, NULL);
  /* The program may rely on the sizes that it has read. */
  size_t sizes[3];
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL));
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_mem sum = clu_buffer(&cl, CL_MEM_READ_WRITE, ITEMS * sizeof(cl_uint));
  if (!strcmp(what, "image")) {
    cl_int code;
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    clCreateImage(cl.context, CL_MEM_READ_WRITE, &format, &desc, NULL, &code);
    clu_must(code, "clCreateImage");
  }
  cl_kernel count = clu_kernel(clu_program(&cl, source, ""), "count");
  clu_arg(count, 0, sizeof sum, &sum);
  clu_arg(count, 1, room, NULL);
  cl_uint values[ITEMS] = {0};
  CLU(clEnqueueWriteBuffer(queue, sum, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
  for (cl_uint round = 1;; round++) {
    CLU(clEnqueueNDRangeKernel(queue, count, 3, NULL, global, local, 0, NULL, NULL));
    CLU(clEnqueueReadBuffer(queue, sum, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL));
    for (size_t i = 0; i < ITEMS; i++)
      if (values[i] != round) return EXIT_WRONG;
    printf("round %u\n", round);
    fflush(stdout);
    clu_sleep_ms(PAUSE_MS);
  }
}
