/* Tests the board as an OpenCL device, and other devices for comparison.
 *
 *   device sobel source|image FILE WIDTH HEIGHT < gray > edges    a program of source, or of a region's image
 *   device facts IMAGE                                            properties of a board's device, and its refusals
 *   device endless                                                a kernel that does not end, and what follows it
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds)                                                        \
  do {                                                                      \
    if (!(holds)) {                                                         \
      fprintf(stderr, "device.c:%d: %s does not hold\n", __LINE__, #holds); \
      exit(1);                                                              \
    }                                                                       \
  } while (0)
#define OK(call)                                                              \
  do {                                                                        \
    cl_int code_ = (call);                                                    \
    if (code_ != CL_SUCCESS) {                                                \
      fprintf(stderr, "device.c:%d: %s returns %d\n", __LINE__, #call, code_);   \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

static unsigned char *file(const char *path, size_t *bytes) {
  FILE *f = fopen(path, "rb");
  CHECK(f);
  CHECK(fseek(f, 0, SEEK_END) == 0);
  *bytes = (size_t)ftell(f);
  rewind(f);
  unsigned char *all = malloc(*bytes + 1);
  CHECK(fread(all, 1, *bytes, f) == *bytes);
  all[*bytes] = 0;
  fclose(f);
  return all;
}

static cl_device_id device_of(cl_device_type type) {
  cl_platform_id platform;
  cl_device_id device;
  OK(clGetPlatformIDs(1, &platform, NULL));
  OK(clGetDeviceIDs(platform, type, 1, &device, NULL));
  return device;
}

/* Prints the log of a failed build. */
static void build(cl_program program, cl_device_id device) {
  cl_int code = clBuildProgram(program, 1, &device, "", NULL, NULL);
  char log[4096] = "";
  if (code != CL_SUCCESS &&
      clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL) == CL_SUCCESS)
    fprintf(stderr, "%s", log);
  OK(code);
}

static void sobel(int image, const char *path, size_t width, size_t height) {
  cl_int e;
  size_t bytes, count = width * height;
  unsigned char *text = file(path, &bytes), *in = malloc(count), *out = malloc(count);
  CHECK(fread(in, 1, count, stdin) == count);
  cl_device_id device = device_of(image ? CL_DEVICE_TYPE_ACCELERATOR : CL_DEVICE_TYPE_ALL);
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &e);
  OK(e);
  cl_command_queue queue = clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &e);
  OK(e);
  const unsigned char *binary = text;
  const char *source = (const char *)text;
  cl_program program = image ? clCreateProgramWithBinary(context, 1, &device, &bytes, &binary, NULL, &e)
                             : clCreateProgramWithSource(context, 1, &source, NULL, &e);
  OK(e);
  build(program, device);
  cl_kernel kernel = clCreateKernel(program, "sobel", &e);
  OK(e);
  cl_mem body = clCreateBuffer(context, CL_MEM_READ_ONLY, count, NULL, &e);
  OK(e);
  cl_mem answer = clCreateBuffer(context, CL_MEM_WRITE_ONLY, count, NULL, &e);
  OK(e);
  cl_uint w = (cl_uint)width, h = (cl_uint)height;
  OK(clSetKernelArg(kernel, 0, sizeof body, &body));
  OK(clSetKernelArg(kernel, 1, sizeof answer, &answer));
  OK(clSetKernelArg(kernel, 2, sizeof w, &w));
  if (!image) OK(clSetKernelArg(kernel, 3, sizeof h, &h));
  size_t global[2] = {width, height};
  for (int run = 0; run < 2; run++) {
    cl_event event;
    cl_ulong times[4];
    OK(clEnqueueWriteBuffer(queue, body, CL_FALSE, 0, count, in, 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, NULL, 0, NULL, &event));
    OK(clEnqueueReadBuffer(queue, answer, CL_TRUE, 0, count, out, 0, NULL, NULL));
    for (cl_uint i = 0; i < 4; i++) OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED + i, sizeof times[i], &times[i], NULL));
    fprintf(stderr, "%llu %llu\n", (unsigned long long)(times[2] - times[1]), (unsigned long long)(times[3] - times[2]));
    OK(clReleaseEvent(event));
  }
  CHECK(fwrite(out, 1, count, stdout) == count);
}

static void is_text(cl_device_id device, cl_device_info what, const char *text) {
  char result[256] = "";
  OK(clGetDeviceInfo(device, what, sizeof result, result, NULL));
  if (strncmp(result, text, strlen(text)) != 0) fprintf(stderr, "'%s' instead of '%s'\n", result, text);
  CHECK(strncmp(result, text, strlen(text)) == 0);
}

static cl_uint number(cl_device_id device, cl_device_info what) {
  cl_uint result = 77;
  OK(clGetDeviceInfo(device, what, sizeof result, &result, NULL));
  return result;
}

/* The status of a launch at its end. */
static cl_int status_of(cl_command_queue queue, cl_kernel kernel, const size_t *offset, const size_t *global, const size_t *local) {
  cl_event event;
  cl_int e = clEnqueueNDRangeKernel(queue, kernel, 1, offset, global, local, 0, NULL, &event);
  if (e != CL_SUCCESS) return e;
  clWaitForEvents(1, &event);
  OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof e, &e, NULL));
  OK(clReleaseEvent(event));
  return e;
}

static void facts(const char *path) {
  cl_int e, status;
  size_t bytes;
  unsigned char *image = file(path, &bytes);
  cl_device_id device = device_of(CL_DEVICE_TYPE_ACCELERATOR);
  is_text(device, CL_DEVICE_VENDOR, "Baltra");
  is_text(device, CL_DEVICE_NAME, "Baltra board, 4 regions");
  is_text(device, CL_DEVICE_PROFILE, "EMBEDDED_PROFILE");
  CHECK(number(device, CL_DEVICE_COMPILER_AVAILABLE) == CL_TRUE);
  CHECK(number(device, CL_DEVICE_IMAGE_SUPPORT) == CL_FALSE);
  CHECK(number(device, CL_DEVICE_MAX_COMPUTE_UNITS) == 4);
  CHECK(number(device, CL_DEVICE_MAX_CLOCK_FREQUENCY) == 156);

  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &e);
  OK(e);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &e);
  OK(e);
  cl_program program;
  cl_image_format format = {CL_R, CL_UNSIGNED_INT8};
  cl_image_desc shape = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
  CHECK(!clCreateImage(context, CL_MEM_READ_ONLY, &format, &shape, NULL, &e) && e == CL_INVALID_OPERATION);
  CHECK(!clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &e) && e == CL_INVALID_OPERATION);

  const unsigned char *binary = image;
  image[200] ^= 1;
  CHECK(!clCreateProgramWithBinary(context, 1, &device, &bytes, &binary, &status, &e) && e == CL_INVALID_BINARY && status == CL_INVALID_BINARY);
  image[200] ^= 1;
  size_t cut = bytes / 2;
  CHECK(!clCreateProgramWithBinary(context, 1, &device, &cut, &binary, &status, &e) && e == CL_INVALID_BINARY);
  program = clCreateProgramWithBinary(context, 1, &device, &bytes, &binary, &status, &e);
  OK(e);
  OK(status);
  CHECK(!clCreateKernel(program, "echo", &e) && e == CL_INVALID_PROGRAM_EXECUTABLE);
  build(program, device);
  CHECK(!clCreateKernel(program, "nothing", &e) && e == CL_INVALID_KERNEL_NAME);
  size_t size;
  OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
  CHECK(size == bytes);
  unsigned char *again = malloc(size);
  OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof again, &again, NULL));
  CHECK(memcmp(again, image, size) == 0);

  cl_kernel kernel = clCreateKernel(program, "echo", &e);
  OK(e);
  cl_uint args;
  OK(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof args, &args, NULL));
  CHECK(args == 2);
  char words[64], result[64] = "";
  memset(words, 'w', sizeof words);
  cl_mem body = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof words, words, &e);
  OK(e);
  cl_mem answer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof result, NULL, &e);
  OK(e);
  CHECK(clSetKernelArg(kernel, 2, 4, words) == CL_INVALID_ARG_INDEX);
  CHECK(clSetKernelArg(kernel, 0, 4, words) == CL_INVALID_ARG_SIZE);
  OK(clSetKernelArg(kernel, 0, sizeof body, &body));
  size_t global = 17;
  CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL) == CL_INVALID_KERNEL_ARGS);
  OK(clSetKernelArg(kernel, 1, sizeof answer, &answer));
  /* The call is for 17 bytes: later bytes are unchanged. */
  char dots = '.';
  OK(clEnqueueFillBuffer(queue, answer, &dots, 1, 0, sizeof result, 0, NULL, NULL));
  OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
  OK(clEnqueueReadBuffer(queue, answer, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL));
  for (size_t i = 0; i < sizeof result; i++) CHECK(result[i] == (i < 17 ? 'w' : '.'));
  /* A reply that does not fit fails only its own event. */
  cl_mem small = clCreateBuffer(context, CL_MEM_READ_WRITE, 8, NULL, &e);
  OK(e);
  OK(clSetKernelArg(kernel, 1, sizeof small, &small));
  cl_event event;
  OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, &event));
  clWaitForEvents(1, &event);
  OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof e, &e, NULL));
  CHECK(e == CL_OUT_OF_RESOURCES);
  /* Rectangles, parts and copies. */
  size_t origin[3] = {1, 2, 0}, zero[3] = {0, 0, 0}, part[3] = {4, 3, 1};
  char four[12];
  OK(clEnqueueReadBufferRect(queue, answer, CL_TRUE, origin, zero, part, 8, 0, 4, 0, four, 0, NULL, NULL));
  for (int i = 0; i < 12; i++) CHECK(four[i] == '.');
  OK(clEnqueueCopyBuffer(queue, body, answer, 0, 32, 32, 0, NULL, NULL));
  OK(clEnqueueReadBuffer(queue, answer, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL));
  CHECK(result[31] == '.' && result[32] == 'w');
  OK(clSetKernelArg(kernel, 1, sizeof answer, &answer));
  OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
  OK(clFinish(queue));
  /* A stream has no offset; a group has to divide its items. */
  size_t offset = 32, local = 8, groups = 64;
  CHECK(status_of(queue, kernel, &offset, &groups, NULL) == CL_INVALID_GLOBAL_OFFSET);
  CHECK(status_of(queue, kernel, NULL, &global, &local) == CL_INVALID_WORK_GROUP_SIZE);
  CHECK(status_of(queue, kernel, NULL, &groups, &local) == CL_COMPLETE);
}

static const char *const kernels =
    "kernel void place(global uint *x) {\n"
    "  x[get_global_id(0)] += get_global_id(0) * 10000 + get_group_id(0) * 100 + get_local_id(0);\n"
    "}\n"
    "kernel void put(global uint *x, int at, uint value) { x[at] = value; }\n";

/* Kernels of OpenCL C, on any device; on a board with an image, its kernel has the same buffers. */
static void compiled(const char *path) {
  cl_int e;
  cl_device_id device = device_of(path ? CL_DEVICE_TYPE_ACCELERATOR : CL_DEVICE_TYPE_ALL);
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &e);
  OK(e);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &e);
  OK(e);
  const char *source = kernels;
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &e);
  OK(e);
  build(program, device);
  cl_kernel place = clCreateKernel(program, "place", &e);
  OK(e);
  cl_kernel put = clCreateKernel(program, "put", &e);
  OK(e);
  enum { COUNT = 256 };
  cl_uint values[COUNT], result[COUNT];
  for (cl_uint i = 0; i < COUNT; i++) values[i] = i;
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof values, values, &e);
  OK(e);
  OK(clSetKernelArg(place, 0, sizeof buffer, &buffer));
  size_t offset = 32, global = 64, local = 16;
  CHECK(status_of(queue, place, &offset, &global, &local) == CL_COMPLETE);
  for (cl_uint i = 32; i < 96; i++) values[i] += i * 10000 + (i - 32) / 16 * 100 + i % 16;
  OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL));
  CHECK(memcmp(values, result, sizeof values) == 0);
  /* The host writes a part, a kernel another one of a part of the buffer. */
  cl_buffer_region region = {512, 256};
  cl_mem part = clCreateSubBuffer(buffer, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &e);
  OK(e);
  cl_int at = 5;
  cl_uint value = 4711;
  OK(clSetKernelArg(put, 0, sizeof part, &part));
  OK(clSetKernelArg(put, 1, sizeof at, &at));
  OK(clSetKernelArg(put, 2, sizeof value, &value));
  size_t one = 1;
  OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 4, sizeof value, &value, 0, NULL, NULL));
  CHECK(status_of(queue, put, NULL, &one, NULL) == CL_COMPLETE);
  OK(clEnqueueCopyBuffer(queue, buffer, buffer, 532, 800, 4, 0, NULL, NULL));
  values[1] = values[128 + 5] = values[200] = value;
  OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL));
  CHECK(memcmp(values, result, sizeof values) == 0);
  if (!path) return;

  /* A store outside of the part fails alone. */
  for (at = 64; at > -2; at -= 65) {
    OK(clSetKernelArg(put, 1, sizeof at, &at));
    CHECK(status_of(queue, put, NULL, &one, NULL) == CL_OUT_OF_RESOURCES);
  }
  size_t bytes;
  const unsigned char *image = file(path, &bytes);
  cl_program echo = clCreateProgramWithBinary(context, 1, &device, &bytes, &image, NULL, &e);
  OK(e);
  build(echo, device);
  cl_kernel kernel = clCreateKernel(echo, "echo", &e);
  OK(e);
  cl_mem answer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof result, NULL, &e);
  OK(e);
  OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
  OK(clSetKernelArg(kernel, 1, sizeof answer, &answer));
  size_t whole = sizeof values;
  CHECK(status_of(queue, place, &offset, &global, &local) == CL_COMPLETE);
  for (cl_uint i = 32; i < 96; i++) values[i] += i * 10000 + (i - 32) / 16 * 100 + i % 16;
  CHECK(status_of(queue, kernel, NULL, &whole, NULL) == CL_COMPLETE);
  OK(clEnqueueReadBuffer(queue, answer, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL));
  CHECK(memcmp(values, result, sizeof values) == 0);
  /* The compiled program as a binary; another one is refused. */
  size_t length;
  OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof length, &length, NULL));
  unsigned char *binary = malloc(length);
  OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
  const unsigned char *again = binary;
  cl_program second = clCreateProgramWithBinary(context, 1, &device, &length, &again, NULL, &e);
  OK(e);
  build(second, device);
  binary[length - 1] ^= 1;
  CHECK(!clCreateProgramWithBinary(context, 1, &device, &length, &again, NULL, &e) && e == CL_INVALID_BINARY);
}

/* Prints the codes of the calls after the launch. */
static void endless(void) {
  cl_int e;
  cl_device_id device = device_of(CL_DEVICE_TYPE_ACCELERATOR);
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &e);
  OK(e);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &e);
  OK(e);
  const char *source = "kernel void endless(global volatile uint *x) { while (x[0] == 0) x[1]++; }";
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &e);
  OK(e);
  build(program, device);
  cl_kernel kernel = clCreateKernel(program, "endless", &e);
  OK(e);
  cl_uint zeros[2] = {0, 0};
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros, &e);
  OK(e);
  OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
  size_t one = 1;
  OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
  OK(clFlush(queue));
  printf("ready\n");
  fflush(stdout);
  printf("finish %d\n", clFinish(queue));
}

int main(int argc, char **argv) {
  if (argc == 6 && strcmp(argv[1], "sobel") == 0) {
    sobel(strcmp(argv[2], "image") == 0, argv[3], (size_t)atol(argv[4]), (size_t)atol(argv[5]));
  } else if (argc == 3 && strcmp(argv[1], "facts") == 0) {
    facts(argv[2]);
  } else if (argc <= 3 && argc > 1 && strcmp(argv[1], "compiled") == 0) {
    compiled(argv[2]);
  } else if (argc == 2 && strcmp(argv[1], "endless") == 0) {
    endless();
  } else {
    fprintf(stderr, "usage: device sobel source|image FILE WIDTH HEIGHT, device facts IMAGE, device compiled [IMAGE], or device endless\n");
    return 2;
  }
  return 0;
}
