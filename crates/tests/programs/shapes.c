/* Launches that exceed a driver's limits, one line each, the same natively and through Baltra. See
   parts.h. */
#define _GNU_SOURCE
#include "parts.h"
#include <string.h>

static const char source[] =
    "kernel void plain(global int *a) { atomic_inc(a); }\n"
    "kernel void grouped(global int *a, local int *room) {\n"
    "  room[get_local_id(0)] = 1;\n"
    "  barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  if (get_local_id(0) + get_local_id(1) + get_local_id(2) == 0) atomic_add(a, "
    "(int)(get_local_size(0)));\n"
    "}\n"
    "kernel __attribute__((reqd_work_group_size(8, 4, 1))) void demanding(global int *a) { "
    "atomic_inc(a); }\n"
    "kernel __attribute__((reqd_work_group_size(8, 1, 1))) void flat(global int *a) { "
    "atomic_inc(a); }\n"
    "kernel __attribute__((work_group_size_hint(8, 1, 1))) void hinted(global int *a) { "
    "atomic_inc(a); }\n";

struct device {
  struct clu cl;
  cl_command_queue queue;
  cl_mem counter;
  cl_kernel kernel;
  size_t group_max, kernel_max, items_max[3];
};

static struct device d;

static void begin(const char *kernel, const char *options) {
  clu_open(&d.cl, NULL);
  d.queue = clu_queue(&d.cl, 0);
  d.counter = clu_buffer(&d.cl, CL_MEM_READ_WRITE, sizeof(cl_int));
  d.kernel = clu_kernel(clu_program(&d.cl, source, options), kernel);
  clu_arg(d.kernel, 0, sizeof d.counter, &d.counter);
  if (!strcmp(kernel, "grouped")) clu_arg(d.kernel, 1, 1024 * sizeof(cl_int), NULL);
  CLU(clGetDeviceInfo(d.cl.device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof d.group_max, &d.group_max,
                      NULL));
  CLU(clGetDeviceInfo(d.cl.device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof d.items_max, d.items_max,
                      NULL));
  CLU(clGetKernelWorkGroupInfo(d.kernel, d.cl.device, CL_KERNEL_WORK_GROUP_SIZE,
                               sizeof d.kernel_max, &d.kernel_max, NULL));
}

struct shape {
  cl_uint dimensions;
  size_t global[3], local[3];
};

static void launch(const char *name, const struct shape *shape, const size_t *offset) {
  cl_int zero = 0, count = -1;
  const size_t *local = shape->local[0] || shape->local[1] || shape->local[2] ? shape->local : NULL;
  CLU(clEnqueueWriteBuffer(d.queue, d.counter, CL_TRUE, 0, sizeof zero, &zero, 0, NULL, NULL));
  cl_event event = NULL;
  cl_int code = clEnqueueNDRangeKernel(d.queue, d.kernel, shape->dimensions, offset, shape->global,
                                       local, 0, NULL, &event);
  cl_int ended = 1;
  if (event) {
    clWaitForEvents(1, &event);
    clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof ended, &ended, NULL);
    clReleaseEvent(event);
  }
  printf("%s: %zu %zu %zu by", name, shape->global[0], shape->global[1], shape->global[2]);
  printf(" %zu %zu %zu: %d %d", shape->local[0], shape->local[1], shape->local[2], code, ended);
  clFinish(d.queue);
  clEnqueueReadBuffer(d.queue, d.counter, CL_TRUE, 0, sizeof count, &count, 0, NULL, NULL);
  printf(" %d\n", count);
}

/* Work-groups larger than the limits of the kernel, the device, and an axis. */
static void large(const char *name, const void *kernel) {
  begin(kernel, "");
  const size_t sizes[] = {d.kernel_max, d.kernel_max + 1, d.group_max, 2 * d.group_max};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    launch(name, &(struct shape){1, {2 * sizes[i]}, {sizes[i]}}, NULL);
    launch(name, &(struct shape){2, {sizes[i], 2}, {sizes[i], 2}}, NULL);
  }
  for (cl_uint axis = 0; axis < 3; axis++) {
    if (d.items_max[axis] > 1 << 20) continue;
    for (size_t more = 0; more < 2; more++) {
      struct shape shape = {3, {1, 1, 1}, {1, 1, 1}};
      shape.global[axis] = shape.local[axis] = d.items_max[axis] + more;
      launch(name, &shape, NULL);
    }
  }
  /* Each axis is within its limit, but their product is not. */
  size_t side = 1;
  while (side * side * side <= d.group_max) side *= 2;
  launch(name, &(struct shape){3, {side, side, side}, {side, side, side}}, NULL);
}

/* Work-group sizes that do not divide the global size. */
static void uneven(const char *name, const void *options) {
  static const struct shape shapes[] = {
      {1, {100}, {3}},           {1, {7}, {8}},         {1, {1}, {64}},
      {2, {10, 10}, {4, 3}},     {2, {8, 9}, {8, 2}},   {3, {5, 6, 7}, {5, 4, 7}},
      {3, {4, 4, 3}, {2, 2, 2}}, {2, {16, 16}, {4, 4}},
  };
  begin("plain", options);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) launch(name, &shapes[i], NULL);
}

/* Kernels with a required work-group size, launched with and without one. */
static void demanded(const char *name, const void *kernel) {
  static const struct shape shapes[] = {
      {2, {16, 8}, {0, 0}},
      {2, {16, 8}, {8, 4}},
      {2, {16, 8}, {4, 8}},
      {2, {15, 8}, {0, 0}},
      {2, {12, 6}, {0, 0}},
      {1, {16}, {0}},
      {1, {16}, {8}},
      {1, {12}, {0}},
      {3, {16, 8, 2}, {0, 0, 0}},
      {3, {16, 8, 2}, {8, 4, 1}},
      {3, {16, 8, 2}, {8, 4, 2}},
      {1, {16}, {16}},
  };
  begin(kernel, "");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) launch(name, &shapes[i], NULL);
}

/* Empty launches and invalid launches. */
static void empty(const char *name, const void *kernel) {
  static const struct shape shapes[] = {
      {1, {0}, {0}},
      {1, {0}, {1}},
      {2, {8, 0}, {0, 0}},
      {2, {0, 8}, {1, 8}},
      {3, {4, 4, 0}, {0, 0, 0}},
      {1, {8}, {0}},
      {0, {8}, {0}},
      {4, {8, 1, 1}, {0, 0, 0}},
      {1, {8}, {8}},
  };
  begin(kernel, "");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) launch(name, &shapes[i], NULL);
}

static void offsets(const char *name, const void *kernel) {
  static const size_t some[3] = {5, 0, 1}, last[3] = {SIZE_MAX, 0, 0},
                      near[3] = {SIZE_MAX - 8, 0, 0};
  const struct shape shape = {1, {8}, {4}};
  begin(kernel, "");
  launch(name, &shape, some);
  launch(name, &shape, last);
  launch(name, &shape, near);
  launch(name, &(struct shape){3, {4, 4, 4}, {2, 2, 2}}, some);
}

int main(void) {
  part("large", large, "plain");
  part("large with local memory", large, "grouped");
  part("uneven", uneven, "");
  part("uneven in C 1.2", uneven, "-cl-std=CL1.2");
  part("uneven in C 2.0", uneven, "-cl-std=CL2.0");
  part("uneven in C 3.0", uneven, "-cl-std=CL3.0");
  part("demanded", demanded, "demanding");
  part("demanded flat", demanded, "flat");
  part("hinted", demanded, "hinted");
  part("empty", empty, "plain");
  part("empty demanded", empty, "flat");
  part("offsets", offsets, "plain");
  printf("done\n");
  return 0;
}
