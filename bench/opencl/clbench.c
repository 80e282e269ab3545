/* Small OpenCL operations, timed one by one; README.md defines each number. Prints JSON. */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../apps/common/clu.h"

enum { TASK_FLOATS = 1024, LAUNCHES = 1000, TILE = 16 };

static const char source[] =
    "kernel void empty(void) {}\n"
    "kernel void task(global const float *in, global float *out) {\n"
    "  size_t i = get_global_id(0);\n"
    "  out[i] = in[i] * 2.0f + 1.0f;\n"
    "}\n"
    "kernel __attribute__((reqd_work_group_size(16, 16, 1)))\n"
    "void matmul(global const float *a, global const float *b, global float *c, int n) {\n"
    "  local float ta[16][16], tb[16][16];\n"
    "  int x = get_local_id(0), y = get_local_id(1), column = get_global_id(0), row = get_global_id(1);\n"
    "  float sum = 0.0f;\n"
    "  for (int k = 0; k < n; k += 16) {\n"
    "    ta[y][x] = a[row * n + k + x];\n"
    "    tb[y][x] = b[(k + y) * n + column];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    for (int i = 0; i < 16; i++) sum += ta[y][i] * tb[i][x];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  }\n"
    "  c[row * n + column] = sum;\n"
    "}\n";

struct options {
  const char *mode, *work, *device;
  long iterations, seconds, n;
  long long start_at_ms;
};

struct bench {
  struct clu cl;
  cl_command_queue queue;
  cl_program program;
};

static void usage(FILE *to) {
  fputs("usage: clbench micro|connect|loop [options]\n"
        "\n"
        "  micro     4-byte write, reads of 4 bytes, 64 KiB and 1 MiB, empty kernel, the 4 KB task, 1,000 launches\n"
        "  connect   one start of OpenCL up to the first finished command\n"
        "  loop      one kind of work over and over for a time\n"
        "\n"
        "  --iterations N    of each operation in micro (default 1000)\n"
        "  --work KIND       in loop: task or matmul (default task)\n"
        "  --n N             size of loop's matmul, a multiple of 16 (default 1024)\n"
        "  --seconds S       length of loop (default 10)\n"
        "  --start-at MS     loop begins at this time since 1970, so that several begin together\n"
        "  --device TEXT     the first device whose name or platform contains TEXT\n"
        "\n"
        "example: clbench loop --work task --seconds 5\n",
        to);
}

static struct options parse(int argc, char **argv) {
  struct options o = {.work = "task", .iterations = 1000, .seconds = 10, .n = 1024};
  static const struct option names[] = {
      {"iterations", required_argument, NULL, 'n'}, {"work", required_argument, NULL, 'w'},
      {"n", required_argument, NULL, 'N'},          {"seconds", required_argument, NULL, 's'},
      {"start-at", required_argument, NULL, 'a'},   {"device", required_argument, NULL, 'd'},
      {"help", no_argument, NULL, 'h'},             {NULL, 0, NULL, 0},
  };
  int c;
  while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
    switch (c) {
      case 'n': o.iterations = parse_long("--iterations", optarg, 1, 10000000); break;
      case 'w': o.work = optarg; break;
      case 'N': o.n = parse_long("--n", optarg, TILE, 16384) / TILE * TILE; break;
      case 's': o.seconds = parse_long("--seconds", optarg, 1, 3600); break;
      case 'a': o.start_at_ms = atoll(optarg); break;
      case 'd': o.device = optarg; break;
      case 'h': usage(stdout); exit(0);
      default: usage(stderr); exit(EXIT_USAGE);
    }
  }
  if (optind + 1 != argc || (strcmp(o.work, "task") && strcmp(o.work, "matmul"))) {
    usage(stderr);
    exit(EXIT_USAGE);
  }
  o.mode = argv[optind];
  return o;
}

static void open_bench(struct bench *b, const char *device) {
  clu_open(&b->cl, device);
  b->queue = clu_queue(&b->cl, 0);
  b->program = clu_program(&b->cl, source, "");
}

static void close_bench(struct bench *b) {
  CLU(clReleaseProgram(b->program));
  CLU(clReleaseCommandQueue(b->queue));
  clu_close(&b->cl);
}

static void print_samples(const char *name, struct samples *s) {
  printf(",\"%s\":", name);
  samples_json(stdout, s);
  samples_free(s);
}

/* The 4 KB task: write, kernel, read on one in-order queue. */
struct task {
  cl_kernel kernel;
  cl_mem in, out;
  float host_in[TASK_FLOATS], host_out[TASK_FLOATS];
  unsigned count;
};

static void open_task(struct task *t, struct bench *b) {
  t->kernel = clu_kernel(b->program, "task");
  t->in = clu_buffer(&b->cl, CL_MEM_READ_ONLY, sizeof t->host_in);
  t->out = clu_buffer(&b->cl, CL_MEM_WRITE_ONLY, sizeof t->host_out);
  clu_arg(t->kernel, 0, sizeof t->in, &t->in);
  clu_arg(t->kernel, 1, sizeof t->out, &t->out);
  for (int i = 0; i < TASK_FLOATS; i++) t->host_in[i] = (float)i;
}

/* Returns the microseconds; every task has another number, so that a stale result is detected. */
static double run_task(struct task *t, struct bench *b, unsigned long *wrong) {
  size_t global = TASK_FLOATS;
  float first = (float)(++t->count & 0xffff), last = first + 0.5f;
  t->host_in[0] = first;
  t->host_in[TASK_FLOATS - 1] = last;
  double from = clu_now_ms();
  CLU(clEnqueueWriteBuffer(b->queue, t->in, CL_FALSE, 0, sizeof t->host_in, t->host_in, 0, NULL, NULL));
  CLU(clEnqueueNDRangeKernel(b->queue, t->kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
  CLU(clEnqueueReadBuffer(b->queue, t->out, CL_TRUE, 0, sizeof t->host_out, t->host_out, 0, NULL, NULL));
  double to = clu_now_ms();
  *wrong += t->host_out[0] != first * 2 + 1 || t->host_out[TASK_FLOATS - 1] != last * 2 + 1 || t->host_out[500] != 1001.0f;
  return (to - from) * 1e3;
}

static void close_task(struct task *t) {
  CLU(clReleaseMemObject(t->in));
  CLU(clReleaseMemObject(t->out));
  CLU(clReleaseKernel(t->kernel));
}

/* Blocking reads of a buffer into ordinary memory; the last byte differs each time. */
static void reads(const char *name, struct bench *b, size_t bytes, long iterations, unsigned long *wrong) {
  cl_mem buffer = clu_buffer(&b->cl, CL_MEM_READ_WRITE, bytes);
  unsigned char *host = malloc(bytes);
  if (!host) {
    fprintf(stderr, "error: no memory for %zu bytes\n", bytes);
    exit(EXIT_FAILURE);
  }
  struct samples s = {0};
  for (long i = -iterations / 10 - 10; i < iterations; i++) {
    unsigned char last = (unsigned char)i;
    CLU(clEnqueueWriteBuffer(b->queue, buffer, CL_TRUE, bytes - 1, 1, &last, 0, NULL, NULL));
    double from = clu_now_ms();
    CLU(clEnqueueReadBuffer(b->queue, buffer, CL_TRUE, 0, bytes, host, 0, NULL, NULL));
    if (i >= 0) samples_add(&s, (clu_now_ms() - from) * 1e3);
    *wrong += host[bytes - 1] != last;
  }
  print_samples(name, &s);
  free(host);
  CLU(clReleaseMemObject(buffer));
}

static int micro(const struct options *o) {
  struct bench b;
  open_bench(&b, o->device);
  cl_mem word = clu_buffer(&b.cl, CL_MEM_READ_WRITE, 4);
  cl_kernel empty = clu_kernel(b.program, "empty");
  size_t one = 1;
  long warm = o->iterations / 10 + 10;
  uint32_t value = 0, back = 0;
  unsigned long wrong = 0;

  printf("{\"bench\":\"micro\",\"device\":");
  json_string(stdout, b.cl.device_name);

  struct samples s = {0};
  for (long i = -warm; i < o->iterations; i++) {
    value++;
    double from = clu_now_ms();
    CLU(clEnqueueWriteBuffer(b.queue, word, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    if (i >= 0) samples_add(&s, (clu_now_ms() - from) * 1e3);
  }
  print_samples("write_4b_us", &s);

  for (long i = -warm; i < o->iterations; i++) {
    double from = clu_now_ms();
    CLU(clEnqueueReadBuffer(b.queue, word, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    if (i >= 0) samples_add(&s, (clu_now_ms() - from) * 1e3);
    wrong += back != value;
    back = 0;
  }
  print_samples("read_4b_us", &s);
  reads("read_64k_us", &b, 64 << 10, o->iterations, &wrong);
  reads("read_1m_us", &b, 1 << 20, o->iterations, &wrong);

  for (long i = -warm; i < o->iterations; i++) {
    double from = clu_now_ms();
    CLU(clEnqueueNDRangeKernel(b.queue, empty, 1, NULL, &one, &one, 0, NULL, NULL));
    CLU(clFinish(b.queue));
    if (i >= 0) samples_add(&s, (clu_now_ms() - from) * 1e3);
  }
  print_samples("empty_kernel_us", &s);

  static struct task task;
  open_task(&task, &b);
  for (long i = -warm; i < o->iterations; i++) {
    double us = run_task(&task, &b, &wrong);
    if (i >= 0) samples_add(&s, us);
  }
  print_samples("task_4k_us", &s);
  close_task(&task);

  long batches = o->iterations / 50 + 2;
  for (long i = -1; i < batches; i++) {
    double from = clu_now_ms();
    for (int k = 0; k < LAUNCHES; k++) CLU(clEnqueueNDRangeKernel(b.queue, empty, 1, NULL, &one, &one, 0, NULL, NULL));
    CLU(clFinish(b.queue));
    if (i >= 0) samples_add(&s, LAUNCHES / (clu_now_ms() - from) * 1e3);
  }
  print_samples("launches_per_s", &s);
  printf(",\"wrong\":%lu}\n", wrong);

  CLU(clReleaseKernel(empty));
  CLU(clReleaseMemObject(word));
  close_bench(&b);
  return wrong ? EXIT_WRONG : 0;
}

static int connect(const struct options *o) {
  double from = clu_now_ms();
  cl_uint count = 0;
  CLU(clGetPlatformIDs(0, NULL, &count));
  double platforms = clu_now_ms();
  struct clu cl;
  clu_open(&cl, o->device);
  double context = clu_now_ms();
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_mem word = clu_buffer(&cl, CL_MEM_READ_WRITE, 4);
  uint32_t value = 1;
  CLU(clEnqueueWriteBuffer(queue, word, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
  double first = clu_now_ms();
  printf("{\"bench\":\"connect\",\"platforms_ms\":%.6g,\"context_ms\":%.6g,\"first_command_ms\":%.6g,\"total_ms\":%.6g}\n",
         platforms - from, context - platforms, first - context, first - from);
  CLU(clReleaseMemObject(word));
  CLU(clReleaseCommandQueue(queue));
  clu_close(&cl);
  return 0;
}

static double epoch_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int loop(const struct options *o) {
  struct bench b;
  open_bench(&b, o->device);
  bool heavy = !strcmp(o->work, "matmul");
  unsigned long wrong = 0;
  static struct task task;
  cl_kernel kernel = NULL;
  cl_mem matrix[3] = {NULL};
  size_t bytes = (size_t)o->n * (size_t)o->n * sizeof(float);
  size_t global[2] = {(size_t)o->n, (size_t)o->n}, local[2] = {TILE, TILE};
  if (heavy) {
    cl_int n = (cl_int)o->n;
    float one = 1;
    kernel = clu_kernel(b.program, "matmul");
    for (cl_uint i = 0; i < 3; i++) {
      matrix[i] = clu_buffer(&b.cl, CL_MEM_READ_WRITE, bytes);
      CLU(clEnqueueFillBuffer(b.queue, matrix[i], &one, sizeof one, 0, bytes, 0, NULL, NULL));
      clu_arg(kernel, i, sizeof matrix[i], &matrix[i]);
    }
    clu_arg(kernel, 3, sizeof n, &n);
    CLU(clEnqueueNDRangeKernel(b.queue, kernel, 2, NULL, global, local, 0, NULL, NULL));
    CLU(clFinish(b.queue));
  } else {
    open_task(&task, &b);
    for (int i = 0; i < 100; i++) run_task(&task, &b, &wrong);
  }

  double late_ms = 0;
  if (o->start_at_ms) {
    double wait = (double)o->start_at_ms - epoch_ms();
    if (wait < 0) late_ms = -wait;
    clu_sleep_ms(wait);
  }
  struct samples s = {0};
  double from = clu_now_ms(), until = from + (double)o->seconds * 1e3 - late_ms, now = from;
  while (now < until) {
    if (heavy) {
      double begun = now;
      CLU(clEnqueueNDRangeKernel(b.queue, kernel, 2, NULL, global, local, 0, NULL, NULL));
      CLU(clFinish(b.queue));
      samples_add(&s, (clu_now_ms() - begun) * 1e3);
    } else {
      samples_add(&s, run_task(&task, &b, &wrong));
    }
    now = clu_now_ms();
  }
  double seconds = (now - from) / 1e3;
  size_t count = s.count;
  if (heavy) { /* the product of two matrices of ones is a matrix of n */
    float corner = 0;
    CLU(clEnqueueReadBuffer(b.queue, matrix[2], CL_TRUE, bytes - sizeof corner, sizeof corner, &corner, 0, NULL, NULL));
    wrong += corner != (float)o->n;
  }
  printf("{\"bench\":\"loop\",\"work\":\"%s\",\"seconds\":%.4f,\"late_ms\":%.1f,\"count\":%zu,\"per_s\":%.6g,\"wrong\":%lu", o->work,
         seconds, late_ms, count, (double)count / seconds, wrong);
  print_samples("latency_us", &s);
  printf("}\n");

  if (heavy) {
    for (int i = 0; i < 3; i++) CLU(clReleaseMemObject(matrix[i]));
    CLU(clReleaseKernel(kernel));
  } else {
    close_task(&task);
  }
  close_bench(&b);
  return wrong ? EXIT_WRONG : 0;
}

int main(int argc, char **argv) {
  struct options o = parse(argc, argv);
  if (!strcmp(o.mode, "micro")) return micro(&o);
  if (!strcmp(o.mode, "connect")) return connect(&o);
  if (!strcmp(o.mode, "loop")) return loop(&o);
  fprintf(stderr, "error: unknown mode '%s': expected micro, connect or loop\n", o.mode);
  return EXIT_USAGE;
}
