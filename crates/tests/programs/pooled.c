/* A program written without regard to pools, with several queues on its one device.
 *
 *   pooled facts            prints the device's own values
 *   pooled queues N         N queues: objects of each kind go from queue to queue; prints "right N"
 *   pooled launches N       creates N queues and runs a kernel in each of them
 *   pooled lost FILE        as a device of the pool goes: see lost() */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clu.h"

enum { QUEUES_MAX = 16, WORDS = 1 << 16, SIDE = 64 };

static const char *source =
    "kernel void add(global uint *a, global const uint *b) { a[get_global_id(0)] += b[get_global_id(0)]; }\n"
    "kernel void scale(global uint *a, constant uint *by) { a[get_global_id(0)] *= by[0]; }\n"
    "kernel void brighter(read_only image2d_t from, write_only image2d_t to) {\n"
    "  int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
    "  write_imageui(to, at, read_imageui(from, at) + 1);\n"
    "}\n"
    "kernel void hello(int n) { printf(\"queue %d says hello\\n\", n); }\n";

static struct clu cl;
static cl_program program;
static cl_command_queue queue[QUEUES_MAX];
static int queues;
static unsigned right;

/* Ends the program unless what it names holds. */
static void check(bool holds, const char *what) {
  if (!holds) {
    printf("wrong: %s\n", what);
    exit(EXIT_WRONG);
  }
  right++;
}

static void open_queues(int count) {
  queues = count < QUEUES_MAX ? count : QUEUES_MAX;
  for (int i = 0; i < queues; i++) queue[i] = clu_queue(&cl, CL_QUEUE_PROFILING_ENABLE);
}

static cl_mem filled(cl_command_queue q, cl_uint value) {
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, WORDS * 4);
  CLU(clEnqueueFillBuffer(q, buffer, &value, 4, 0, WORDS * 4, 0, NULL, NULL));
  CLU(clFinish(q));
  return buffer;
}

static bool holds(cl_command_queue q, cl_mem buffer, size_t first, size_t count, cl_uint value) {
  cl_uint *words = clu_alloc(count * 4);
  CLU(clEnqueueReadBuffer(q, buffer, CL_TRUE, first * 4, count * 4, words, 0, NULL, NULL));
  size_t same = 0;
  while (same < count && words[same] == value) same++;
  free(words);
  return same == count;
}

static void run(cl_command_queue q, cl_kernel kernel, cl_mem a, cl_mem b, size_t words, const cl_event *after,
                cl_event *event) {
  clu_arg(kernel, 0, sizeof a, &a);
  clu_arg(kernel, 1, sizeof b, &b);
  CLU(clEnqueueNDRangeKernel(q, kernel, 1, NULL, &words, NULL, after ? 1 : 0, after, event));
  CLU(clFlush(q));
}

/* One buffer that each queue changes in turn, after the one before, behind the program's own event. */
static void chain(cl_kernel add, cl_mem ones) {
  cl_mem buffer = filled(queue[0], 5);
  cl_int code;
  cl_event last = clCreateUserEvent(cl.context, &code), gate = last;
  clu_must(code, "clCreateUserEvent");
  CLU(clRetainEvent(gate));
  for (int i = 0; i < 3 * queues; i++) {
    cl_event event;
    run(queue[i % queues], add, buffer, ones, WORDS, &last, &event);
    CLU(clReleaseEvent(last));
    last = event;
  }
  CLU(clSetUserEventStatus(gate, CL_COMPLETE));
  CLU(clWaitForEvents(1, &last));
  cl_ulong began, ended, host = 0;
  CLU(clGetEventProfilingInfo(last, CL_PROFILING_COMMAND_START, 8, &began, NULL));
  CLU(clGetEventProfilingInfo(last, CL_PROFILING_COMMAND_END, 8, &ended, NULL));
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  host = (cl_ulong)now.tv_sec * 1000000000u + (cl_ulong)now.tv_nsec;
  check(began <= ended && ended <= host && host - ended < 60000000000u, "the pool's clock is the host's");
  CLU(clReleaseEvent(last));
  CLU(clReleaseEvent(gate));
  for (int i = 0; i < queues; i++)
    check(holds(queue[i], buffer, 0, WORDS, 5 + 3 * (cl_uint)queues), "a buffer follows its kernels");
  clReleaseMemObject(buffer);
}

/* Parts of one buffer that different queues change at the same time. */
static void parts(cl_kernel add, cl_mem ones) {
  cl_mem buffer = filled(queue[0], 7), part[QUEUES_MAX];
  size_t words = WORDS / QUEUES_MAX;
  for (int i = 0; i < queues; i++) {
    cl_buffer_region region = {(size_t)i * words * 4, words * 4};
    cl_int code;
    part[i] = clCreateSubBuffer(buffer, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    clu_must(code, "clCreateSubBuffer");
    run(queue[i], add, part[i], ones, words, NULL, NULL);
  }
  for (int i = 0; i < queues; i++) CLU(clFinish(queue[i]));
  for (int i = 0; i < queues; i++) {
    check(holds(queue[queues - 1 - i], part[i], 0, words, 8), "a part has what its queue has written");
    clReleaseMemObject(part[i]);
  }
  check(holds(queue[0], buffer, (size_t)queues * words, WORDS - (size_t)queues * words, 7), "the rest is as it was");
  clReleaseMemObject(buffer);
}

/* Mapped and changed by the program between kernels of different queues. */
static void mapped(cl_kernel add, cl_mem ones) {
  cl_mem buffer = filled(queue[0], 1);
  for (int i = 0; i < queues; i++) {
    run(queue[i], add, buffer, ones, WORDS, NULL, NULL);
    CLU(clFinish(queue[i]));
    cl_command_queue next = queue[(i + 1) % queues];
    cl_int code;
    cl_uint *words = clEnqueueMapBuffer(next, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, WORDS * 4, 0, NULL, NULL,
                                        &code);
    clu_must(code, "clEnqueueMapBuffer");
    check(words[WORDS - 1] == 2 + 3 * (cl_uint)i, "a mapping has the newest contents");
    for (size_t at = 0; at < WORDS; at++) words[at] += 2;
    CLU(clEnqueueUnmapMemObject(next, buffer, words, 0, NULL, NULL));
    CLU(clFinish(next));
  }
  check(holds(queue[queues - 1], buffer, 0, WORDS, 1 + 3 * (cl_uint)queues), "what was mapped is written back");
  clReleaseMemObject(buffer);
}

static void images(void) {
  cl_bool able;
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_IMAGE_SUPPORT, sizeof able, &able, NULL));
  if (!able) return;
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE};
  cl_int code;
  cl_mem image[2];
  for (int i = 0; i < 2; i++) {
    image[i] = clCreateImage(cl.context, CL_MEM_READ_WRITE, &format, &desc, NULL, &code);
    clu_must(code, "clCreateImage");
  }
  unsigned char pixels[SIDE * SIDE * 4];
  memset(pixels, 3, sizeof pixels);
  size_t origin[3] = {0}, region[3] = {SIDE, SIDE, 1};
  CLU(clEnqueueWriteImage(queue[0], image[0], CL_TRUE, origin, region, 0, 0, pixels, 0, NULL, NULL));
  cl_kernel kernel = clu_kernel(program, "brighter");
  for (int i = 0; i < queues; i++) {
    clu_arg(kernel, 0, sizeof image[i % 2], &image[i % 2]);
    clu_arg(kernel, 1, sizeof image[0], &image[(i + 1) % 2]);
    CLU(clEnqueueNDRangeKernel(queue[i], kernel, 2, NULL, region, NULL, 0, NULL, NULL));
    CLU(clFinish(queue[i]));
  }
  CLU(clEnqueueReadImage(queue[0], image[queues % 2], CL_TRUE, origin, region, 0, 0, pixels, 0, NULL, NULL));
  check(pixels[0] == 3 + queues && pixels[sizeof pixels - 1] == 3 + queues, "images follow their kernels");
  clReleaseMemObject(image[0]);
  clReleaseMemObject(image[1]);
  clReleaseKernel(kernel);
}

/* The program's binary, built again and run in each queue. */
static void binaries(cl_mem ones) {
  size_t size = 0;
  CLU(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
  check(size > 0, "there is a binary");
  unsigned char *binary = clu_alloc(size);
  CLU(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
  cl_int code, status = -1;
  const unsigned char *given = binary;
  cl_program again = clCreateProgramWithBinary(cl.context, 1, &cl.device, &size, &given, &status, &code);
  clu_must(code, "clCreateProgramWithBinary");
  check(status == CL_SUCCESS, "each device takes the binary");
  CLU(clBuildProgram(again, 1, &cl.device, "", NULL, NULL));
  cl_kernel add = clu_kernel(again, "add");
  cl_mem buffer = filled(queue[0], 2);
  for (int i = 0; i < queues; i++) {
    run(queue[i], add, buffer, ones, WORDS, NULL, NULL);
    CLU(clFinish(queue[i]));
  }
  check(holds(queue[0], buffer, 0, WORDS, 2 + (cl_uint)queues), "a binary runs in each queue");
  clReleaseMemObject(buffer);
  clReleaseKernel(add);
  clReleaseProgram(again);
  free(binary);
}

static void all_kinds(int count) {
  open_queues(count);
  cl_kernel add = clu_kernel(program, "add"), scale = clu_kernel(program, "scale"), hello = clu_kernel(program, "hello");
  cl_mem ones = filled(queue[0], 1), three = filled(queue[0], 3);
  chain(add, ones);
  parts(add, ones);
  mapped(add, ones);
  images();
  binaries(ones);
  /* Objects that kernels only read are in several places at once; a change reaches them all. */
  for (cl_uint round = 0; round < 3; round++) {
    cl_mem own[QUEUES_MAX];
    for (int i = 0; i < queues; i++) {
      own[i] = filled(queue[i], 4);
      run(queue[i], scale, own[i], three, WORDS, NULL, NULL);
    }
    for (int i = 0; i < queues; i++) {
      check(holds(queue[i], own[i], 0, WORDS, 4 * (3 + round)), "constants are everywhere");
      clReleaseMemObject(own[i]);
    }
    run(queue[(int)round % queues], add, three, ones, WORDS, NULL, NULL);
    CLU(clFinish(queue[(int)round % queues]));
  }
  for (cl_int i = 0; i < queues; i++) {
    size_t one = 1;
    clu_arg(hello, 0, sizeof i, &i);
    CLU(clEnqueueNDRangeKernel(queue[i], hello, 1, NULL, &one, NULL, 0, NULL, NULL));
    CLU(clFinish(queue[i]));
  }
  size_t group = 0;
  CLU(clGetKernelWorkGroupInfo(add, NULL, CL_KERNEL_WORK_GROUP_SIZE, sizeof group, &group, NULL));
  check(group > 0, "kernels have facts without a device");
  printf("right %u\n", right);
  clReleaseMemObject(ones);
  clReleaseMemObject(three);
  clReleaseKernel(add);
  clReleaseKernel(scale);
  clReleaseKernel(hello);
}

static void print_text(const char *name, cl_device_info param) {
  char text[8192] = "";
  cl_int code = clGetDeviceInfo(cl.device, param, sizeof text - 1, text, NULL);
  printf("%s %s\n", name, code ? "none" : text);
}

static void print_number(const char *name, cl_device_info param) {
  cl_ulong number = 0;
  cl_int code = clGetDeviceInfo(cl.device, param, sizeof number, &number, NULL);
  if (code)
    printf("%s none\n", name);
  else
    printf("%s %llu\n", name, (unsigned long long)number);
}

static void facts(void) {
  cl_uint devices;
  CLU(clGetDeviceIDs(cl.platform, CL_DEVICE_TYPE_ALL, 0, NULL, &devices));
  printf("devices %u\n", devices);
  print_text("name", CL_DEVICE_NAME);
  print_text("extensions", CL_DEVICE_EXTENSIONS);
  print_number("units", CL_DEVICE_MAX_COMPUTE_UNITS);
  print_number("memory", CL_DEVICE_GLOBAL_MEM_SIZE);
  print_number("svm", 0x1053); /* CL_DEVICE_SVM_CAPABILITIES */
  print_number("parts", CL_DEVICE_PARTITION_MAX_SUB_DEVICES);
  print_number("uuid", 0x106A); /* CL_DEVICE_UUID_KHR */
  cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
  printf("divide %d\n", clCreateSubDevices(cl.device, equally, 0, NULL, &devices));
}

static void launches(int count) {
  open_queues(count);
  cl_kernel add = clu_kernel(program, "add");
  for (int i = 0; i < queues; i++) {
    /* A queue's own buffers stay where the queue is. */
    cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, WORDS * 4);
    for (int n = 0; n < 20; n++) {
      run(queue[i], add, buffer, buffer, WORDS, NULL, NULL);
      CLU(clFinish(queue[i]));
    }
    clReleaseMemObject(buffer);
  }
  clReleaseKernel(add);
}

/* The first word of a buffer after a kernel that adds one, or the first error, in a new queue. */
static cl_int work(cl_program with, cl_mem ones) {
  cl_int code;
  cl_command_queue own = clCreateCommandQueue(cl.context, cl.device, 0, &code);
  if (code) return code;
  cl_kernel add = clCreateKernel(with, "add", &code);
  if (code) return code;
  cl_uint value = 1, back = 0;
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, WORDS * 4);
  size_t words = WORDS;
  code = clEnqueueFillBuffer(own, buffer, &value, 4, 0, WORDS * 4, 0, NULL, NULL);
  clu_arg(add, 0, sizeof buffer, &buffer);
  clu_arg(add, 1, sizeof ones, &ones);
  if (!code) code = clEnqueueNDRangeKernel(own, add, 1, NULL, &words, NULL, 0, NULL, NULL);
  if (!code) code = clEnqueueReadBuffer(own, buffer, CL_TRUE, 0, 4, &back, 0, NULL, NULL);
  clReleaseMemObject(buffer);
  clReleaseKernel(add);
  clReleaseCommandQueue(own);
  return code ? code : (cl_int)back;
}

/* Says "ready", waits until the file is there (a device of the pool is gone), and prints what still works: old
 * queues one by one, new ones, a program that is built anew, and a new context. */
static void lost(const char *file) {
  open_queues(2);
  cl_kernel add = clu_kernel(program, "add");
  cl_mem ones = filled(queue[0], 1), own[2];
  for (int i = 0; i < 2; i++) {
    own[i] = filled(queue[i], 1);
    run(queue[i], add, own[i], ones, WORDS, NULL, NULL);
    CLU(clFinish(queue[i]));
  }
  printf("ready\n");
  fflush(stdout);
  while (access(file, F_OK)) clu_sleep_ms(5);
  size_t words = WORDS;
  for (int i = 0; i < 2; i++) {
    clu_arg(add, 0, sizeof own[i], &own[i]);
    clu_arg(add, 1, sizeof ones, &ones);
    cl_int code = clEnqueueNDRangeKernel(queue[i], add, 1, NULL, &words, NULL, 0, NULL, NULL);
    if (!code) code = clFinish(queue[i]);
    printf("old %d\n", code);
  }
  for (int i = 0; i < 3; i++) printf("new %d\n", work(program, ones));
  cl_program again = clu_program(&cl, source, "");
  printf("rebuilt %d\n", work(again, ones));
  cl_bool available = CL_FALSE;
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_AVAILABLE, sizeof available, &available, NULL));
  printf("available %u\n", available);
  /* A new context has all devices again: the lost session is replaced. */
  clReleaseProgram(program);
  clReleaseContext(cl.context);
  clu_open(&cl, NULL);
  program = clu_program(&cl, source, "");
  open_queues(2);
  ones = filled(queue[1], 1);
  for (int i = 0; i < 2; i++) printf("context %d\n", work(program, ones));
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  int count = argc > 2 ? atoi(argv[2]) : 4;
  clu_open(&cl, NULL);
  if (!strcmp(what, "facts")) {
    facts();
    return 0;
  }
  program = clu_program(&cl, source, "");
  if (!strcmp(what, "queues")) {
    all_kinds(count);
  } else if (!strcmp(what, "launches")) {
    launches(count);
  } else if (!strcmp(what, "lost") && argc > 2) {
    lost(argv[2]);
  } else {
    return EXIT_USAGE;
  }
  return 0;
}
