/* Kernels that exchange packets of pipes (OpenCL 2.0), built from source; prints what they return.
 * The first argument selects the device by its name. */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#undef CL_TARGET_OPENCL_VERSION

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clu.h"

enum { COUNT = 1000, PACKETS = 64 };

static const char *source =
    "typedef struct { int key; long square; } pair;\n"
    "kernel void producer(global const int *in, write_only pipe int p) {\n"
    "  int v = in[get_global_id(0)];\n"
    "  write_pipe(p, &v);\n"
    "}\n"
    "kernel void consumer(read_only pipe int p, global int *out) {\n"
    "  int v;\n"
    "  out[get_global_id(0)] = read_pipe(p, &v) == 0 ? v : -1;\n"
    "}\n"
    "kernel void stream(global const int *in, write_only pipe pair p, int n) {\n"
    "  for (int i = 0; i < n; i++) {\n"
    "    pair v = {in[i], (long)in[i] * in[i]};\n"
    "    while (write_pipe(p, &v) != 0);\n"
    "  }\n"
    "}\n"
    "kernel void drain(read_only pipe pair p, global long *out, int n) {\n"
    "  for (int i = 0; i < n; i++) {\n"
    "    pair v;\n"
    "    while (read_pipe(p, &v) != 0);\n"
    "    out[i] = v.key + v.square;\n"
    "  }\n"
    "}\n"
    "kernel void groups(global const int *in, write_only pipe int p) {\n"
    "  reserve_id_t id = work_group_reserve_write_pipe(p, get_local_size(0));\n"
    "  if (is_valid_reserve_id(id)) {\n"
    "    write_pipe(p, id, get_local_id(0), &in[get_global_id(0)]);\n"
    "    work_group_commit_write_pipe(p, id);\n"
    "  }\n"
    "}\n"
    "kernel void both(read_only pipe int a, write_only pipe int b) {\n"
    "  int v;\n"
    "  if (read_pipe(a, &v) == 0) write_pipe(b, &v);\n"
    "}\n";

static struct clu cl;
static cl_program program;
static cl_mem in, out;
static cl_int numbers[COUNT];

static cl_mem pipe_of(cl_uint bytes, cl_uint packets) {
  cl_int code;
  cl_mem pipe = clCreatePipe(cl.context, 0, bytes, packets, NULL, &code);
  clu_must(code, "clCreatePipe");
  return pipe;
}

static cl_event start(cl_command_queue queue, cl_kernel kernel, size_t items, size_t group) {
  cl_event event;
  CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, group ? &group : NULL, 0, NULL, &event));
  CLU(clFlush(queue));
  return event;
}

static cl_int end(const char *name, cl_event event) {
  cl_int status = 0;
  cl_ulong from = 0, to = 0;
  clWaitForEvents(1, &event);
  CLU(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
  if (status == CL_COMPLETE) {
    CLU(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof from, &from, NULL));
    CLU(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL));
    printf("%s took %llu ns\n", name, (unsigned long long)(to - from));
  }
  CLU(clReleaseEvent(event));
  return status;
}

static cl_uint device_number(cl_device_info param) {
  cl_uint number = 0;
  CLU(clGetDeviceInfo(cl.device, param, sizeof number, &number, NULL));
  return number;
}

static void describes(void) {
  printf("support %u args %u reservations %u bytes %u\n", device_number(CL_DEVICE_PIPE_SUPPORT),
         device_number(CL_DEVICE_MAX_PIPE_ARGS), device_number(CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS),
         device_number(CL_DEVICE_PIPE_MAX_PACKET_SIZE));
  cl_mem pipe = pipe_of(12, 34);
  cl_uint bytes = 0, packets = 0;
  cl_mem_object_type type = 0;
  cl_mem_flags flags = 0;
  size_t size = 0;
  CLU(clGetPipeInfo(pipe, CL_PIPE_PACKET_SIZE, sizeof bytes, &bytes, NULL));
  CLU(clGetPipeInfo(pipe, CL_PIPE_MAX_PACKETS, sizeof packets, &packets, NULL));
  CLU(clGetPipeInfo(pipe, CL_PIPE_PROPERTIES, 0, NULL, &size));
  CLU(clGetMemObjectInfo(pipe, CL_MEM_TYPE, sizeof type, &type, NULL));
  CLU(clGetMemObjectInfo(pipe, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
  printf("pipe %u %u %zu type %x flags %llx\n", bytes, packets, size, type, (unsigned long long)flags);
  CLU(clReleaseMemObject(pipe));
}

/* The error of clCreatePipe. */
static cl_int refused(cl_mem_flags flags, cl_uint bytes, cl_uint packets) {
  cl_int code;
  cl_mem pipe = clCreatePipe(cl.context, flags, bytes, packets, NULL, &code);
  return pipe ? 1 : code;
}

/* One kernel after the other; packets stay in the pipe between them. */
static void in_order(void) {
  cl_command_queue queue = clu_queue(&cl, CL_QUEUE_PROFILING_ENABLE);
  cl_kernel producer = clu_kernel(program, "producer"), consumer = clu_kernel(program, "consumer");
  cl_mem pipe = pipe_of(sizeof(cl_int), COUNT);
  clu_arg(producer, 0, sizeof in, &in);
  clu_arg(producer, 1, sizeof pipe, &pipe);
  clu_arg(consumer, 0, sizeof pipe, &pipe);
  clu_arg(consumer, 1, sizeof out, &out);
  cl_int found[COUNT], wrong = 0, status = 0;
  for (int round = 0; round < 3; round++) {
    status |= end("producer", start(queue, producer, COUNT, 0));
    status |= end("consumer", start(queue, consumer, COUNT, 0));
    CLU(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof found, found, 0, NULL, NULL));
    for (int i = 0; i < COUNT; i++) wrong += found[i] != numbers[i];
  }
  /* Only as many as the pipe holds. */
  cl_mem small = pipe_of(sizeof(cl_int), PACKETS);
  cl_kernel groups = clu_kernel(program, "groups");
  clu_arg(groups, 0, sizeof in, &in);
  clu_arg(groups, 1, sizeof small, &small);
  clu_arg(consumer, 0, sizeof small, &small);
  status |= end("groups", start(queue, groups, 80, 20));
  status |= end("consumer", start(queue, consumer, COUNT, 0));
  CLU(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof found, found, 0, NULL, NULL));
  for (int i = 0; i < COUNT; i++) wrong += found[i] != (i < 60 ? numbers[i] : -1);
  printf("in order wrong %d status %d\n", wrong, status);
}

/* Both at the same time, the consumer first. */
static void together(cl_command_queue_properties properties) {
  cl_command_queue first = clu_queue(&cl, properties | CL_QUEUE_PROFILING_ENABLE), second = first;
  if (!properties) second = clu_queue(&cl, CL_QUEUE_PROFILING_ENABLE);
  cl_kernel stream = clu_kernel(program, "stream"), drain = clu_kernel(program, "drain");
  cl_mem pipe = pipe_of(16, PACKETS);
  cl_int count = COUNT;
  clu_arg(stream, 0, sizeof in, &in);
  clu_arg(stream, 1, sizeof pipe, &pipe);
  clu_arg(stream, 2, sizeof count, &count);
  clu_arg(drain, 0, sizeof pipe, &pipe);
  clu_arg(drain, 1, sizeof out, &out);
  clu_arg(drain, 2, sizeof count, &count);
  cl_event drained = start(second, drain, 1, 1), streamed = start(first, stream, 1, 1);
  cl_int status = end("stream", streamed) | end("drain", drained);
  cl_long found[COUNT];
  CLU(clEnqueueReadBuffer(second, out, CL_TRUE, 0, sizeof found, found, 0, NULL, NULL));
  int wrong = 0;
  for (int i = 0; i < COUNT; i++) wrong += found[i] != numbers[i] + (cl_long)numbers[i] * numbers[i];
  printf("together wrong %d status %d\n", wrong, status);
}

/* Calls that OpenCL refuses. */
static void errors(void) {
  printf("create %d %d %d %d\n", refused(CL_MEM_READ_ONLY, 4, 4), refused(0, 0, 4), refused(0, 4, 0),
         refused(0, 1 << 20, 4));
  printf("too large %d\n", refused(0, 1024, ~0u));
  cl_kernel producer = clu_kernel(program, "producer"), both = clu_kernel(program, "both");
  cl_mem wide = pipe_of(8, 4), pipe = pipe_of(4, 4), none = NULL;
  printf("argument %d %d %d %d\n", clSetKernelArg(producer, 1, sizeof in, &in),
         clSetKernelArg(producer, 0, sizeof pipe, &pipe), clSetKernelArg(producer, 1, sizeof wide, &wide),
         clSetKernelArg(producer, 1, sizeof none, &none));
  cl_command_queue queue = clu_queue(&cl, CL_QUEUE_PROFILING_ENABLE);
  cl_int bytes = 0, code;
  cl_buffer_region region = {0, 4};
  clCreateSubBuffer(pipe, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  printf("object %d %d %d\n", code, clEnqueueReadBuffer(queue, pipe, CL_TRUE, 0, 4, &bytes, 0, NULL, NULL),
         clGetPipeInfo(in, CL_PIPE_PACKET_SIZE, 4, &bytes, NULL));
  clu_arg(both, 0, sizeof pipe, &pipe);
  clu_arg(both, 1, sizeof pipe, &pipe);
  printf("both %d\n", end("both", start(queue, both, 1, 1)));
}

/* Holds a pipe until it is killed. */
static void keeps(void) {
  pipe_of(4, 4);
  printf("has a pipe\n");
  fflush(stdout);
  for (;;) pause();
}

int main(int argc, char **argv) {
  if (argc < 3) return EXIT_USAGE;
  clu_open(&cl, argv[1]);
  program = clu_program(&cl, source, "-cl-std=CL2.0");
  for (int i = 0; i < COUNT; i++) numbers[i] = 7919 * i % 10007;
  in = clu_buffer(&cl, CL_MEM_READ_WRITE, sizeof numbers);
  out = clu_buffer(&cl, CL_MEM_READ_WRITE, 8 * COUNT);
  cl_command_queue queue = clu_queue(&cl, 0);
  CLU(clEnqueueWriteBuffer(queue, in, CL_TRUE, 0, sizeof numbers, numbers, 0, NULL, NULL));
  CLU(clFinish(queue));
  for (int i = 2; i < argc; i++) {
    if (!strcmp(argv[i], "describes")) describes();
    if (!strcmp(argv[i], "in_order")) in_order();
    if (!strcmp(argv[i], "queues")) together(0);
    if (!strcmp(argv[i], "out_of_order")) together(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    if (!strcmp(argv[i], "errors")) errors();
    if (!strcmp(argv[i], "keeps")) keeps();
  }
  return 0;
}
