/* Tiled matrix multiplication: writes two matrices, runs one kernel, reads the product. */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common/clu.h"
#include "matmul.cl.h"

enum { TILE = 16, CHECKED_ROWS_MAX = 64 };

struct options {
  long n, repeat, gap_ms;
  const char *device;
  bool check, json, profile;
};

static void usage(FILE *to) {
  fputs("usage: matmul [options]\n"
        "\n"
        "  --n N             rows and columns, any number (default 512)\n"
        "  --repeat N        measured runs (default 1)\n"
        "  --gap MS          pause between runs (default 0)\n"
        "  --check           compare with the product computed by the host (up to 64 rows); exit 1 if wrong\n"
        "  --profile         also time write, kernel and read on the device\n"
        "  --json            one JSON object on stdout instead of text\n"
        "  --device TEXT     the first device whose name or platform contains TEXT\n"
        "\n"
        "example: matmul --n 1000 --repeat 10 --check\n",
        to);
}

static struct options parse(int argc, char **argv) {
  struct options o = {.n = 512, .repeat = 1};
  static const struct option names[] = {
      {"n", required_argument, NULL, 'N'},   {"repeat", required_argument, NULL, 'n'},
      {"gap", required_argument, NULL, 'g'}, {"check", no_argument, NULL, 'c'},
      {"profile", no_argument, NULL, 'p'},   {"json", no_argument, NULL, 'j'},
      {"device", required_argument, NULL, 'd'}, {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  int c;
  while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
    switch (c) {
      case 'N': o.n = parse_long("--n", optarg, 1, 16384); break;
      case 'n': o.repeat = parse_long("--repeat", optarg, 1, 1000000); break;
      case 'g': o.gap_ms = parse_long("--gap", optarg, 0, 60000); break;
      case 'c': o.check = true; break;
      case 'p': o.profile = true; break;
      case 'j': o.json = true; break;
      case 'd': o.device = optarg; break;
      case 'h': usage(stdout); exit(0);
      default: usage(stderr); exit(EXIT_USAGE);
    }
  }
  if (optind < argc) {
    fprintf(stderr, "error: unexpected argument '%s'\n", argv[optind]);
    exit(EXIT_USAGE);
  }
  return o;
}

/* Values in -1..1, the same on every machine. */
static void fill(float *matrix, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    matrix[i] = (float)(int32_t)(seed >> 8 & 0xffff) / 32768.0f - 1.0f;
  }
}

/* The largest difference to products in double precision, over evenly chosen rows. */
static double worst_error(const float *a, const float *b, const float *c, size_t n) {
  double worst = 0;
  size_t step = n > CHECKED_ROWS_MAX ? n / CHECKED_ROWS_MAX : 1;
  double *row = clu_alloc(n * sizeof *row);
  for (size_t i = 0; i < n; i += step) {
    memset(row, 0, n * sizeof *row);
    for (size_t k = 0; k < n; k++)
      for (size_t j = 0; j < n; j++) row[j] += (double)a[i * n + k] * (double)b[k * n + j];
    for (size_t j = 0; j < n; j++) {
      double difference = fabs(row[j] - (double)c[i * n + j]);
      if (!(difference <= worst)) worst = difference; /* not a number counts as worst */
    }
  }
  free(row);
  return worst;
}

int main(int argc, char **argv) {
  struct options o = parse(argc, argv);
  size_t n = (size_t)o.n, bytes = n * n * sizeof(float);
  float *a = clu_alloc(bytes), *b = clu_alloc(bytes), *c = clu_alloc(bytes);
  fill(a, n * n, 1);
  fill(b, n * n, 2);
  memset(c, 0, bytes);

  double started = clu_now_ms();
  struct clu cl;
  clu_open(&cl, o.device);
  cl_command_queue queue = clu_queue(&cl, o.profile ? CL_QUEUE_PROFILING_ENABLE : 0);
  char build_options[32];
  snprintf(build_options, sizeof build_options, "-DTILE=%d", TILE);
  cl_program program = clu_program(&cl, matmul_cl, build_options);
  cl_kernel kernel = clu_kernel(program, "matmul");
  cl_mem buffers[3] = {clu_buffer(&cl, CL_MEM_READ_ONLY, bytes), clu_buffer(&cl, CL_MEM_READ_ONLY, bytes),
                       clu_buffer(&cl, CL_MEM_WRITE_ONLY, bytes)};
  for (cl_uint i = 0; i < 3; i++) clu_arg(kernel, i, sizeof buffers[i], &buffers[i]);
  cl_int size = (cl_int)n;
  clu_arg(kernel, 3, sizeof size, &size);
  size_t local[2] = {TILE, TILE}, global[2] = {(n + TILE - 1) / TILE * TILE, (n + TILE - 1) / TILE * TILE};

  struct samples total = {0}, parts[3] = {{0}, {0}, {0}};
  double init_ms = 0;
  /* Run -1 is a warm-up: drivers may compile late. */
  for (long run = -1; run < o.repeat; run++) {
    cl_event event[4];
    if (run >= 0) clu_sleep_ms((double)o.gap_ms);
    double from = clu_now_ms();
    CLU(clEnqueueWriteBuffer(queue, buffers[0], CL_FALSE, 0, bytes, a, 0, NULL, o.profile ? &event[0] : NULL));
    CLU(clEnqueueWriteBuffer(queue, buffers[1], CL_FALSE, 0, bytes, b, 0, NULL, o.profile ? &event[3] : NULL));
    CLU(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, local, 0, NULL, o.profile ? &event[1] : NULL));
    CLU(clEnqueueReadBuffer(queue, buffers[2], CL_TRUE, 0, bytes, c, 0, NULL, o.profile ? &event[2] : NULL));
    double to = clu_now_ms();
    if (run < 0)
      init_ms = to - started;
    else
      samples_add(&total, to - from);
    for (int i = 0; o.profile && run >= 0 && i < 3; i++)
      samples_add(&parts[i], clu_event_ms(event[i]) + (i == 0 ? clu_event_ms(event[3]) : 0));
    for (int i = 0; o.profile && i < 4; i++) CLU(clReleaseEvent(event[i]));
  }

  double gflops = 2.0 * (double)n * (double)n * (double)n / samples_percentile(&total, 50) / 1e6;
  uint64_t checksum = clu_checksum(c, bytes);
  double error = o.check ? worst_error(a, b, c, n) : 0;
  bool wrong = !(error <= 1e-5 * (double)n);
  static const char *const part_names[3] = {"write", "kernel", "read"};
  if (o.json) {
    printf("{\"app\":\"matmul\",\"device\":");
    json_string(stdout, cl.device_name);
    printf(",\"n\":%zu,\"checksum\":\"%016llx\",\"gflops\":%.4g,\"init_ms\":%.6g", n, (unsigned long long)checksum, gflops, init_ms);
    if (o.check) printf(",\"worst_error\":%.3g,\"correct\":%s", error, wrong ? "false" : "true");
    printf(",\"total_ms\":");
    samples_json(stdout, &total);
    for (int i = 0; o.profile && i < 3; i++) {
      printf(",\"%s_ms\":", part_names[i]);
      samples_json(stdout, &parts[i]);
    }
    printf("}\n");
  } else {
    printf("device    %s\nmatrices  %zux%zu, checksum of the product %016llx\ninit      %.1f ms\n", cl.device_name, n, n,
           (unsigned long long)checksum, init_ms);
    samples_print(stdout, "write+kernel+read", &total, "ms");
    for (int i = 0; o.profile && i < 3; i++) samples_print(stdout, part_names[i], &parts[i], "ms");
    printf("rate      %.2f GFLOP/s\n", gflops);
    if (o.check) printf("check     largest difference %.2g: %s\n", error, wrong ? "WRONG" : "correct");
  }
  if (wrong) fprintf(stderr, "error: the product is wrong: largest difference %.3g\n", error);

  samples_free(&total);
  for (int i = 0; i < 3; i++) {
    samples_free(&parts[i]);
    CLU(clReleaseMemObject(buffers[i]));
  }
  CLU(clReleaseKernel(kernel));
  CLU(clReleaseProgram(program));
  CLU(clReleaseCommandQueue(queue));
  clu_close(&cl);
  free(a);
  free(b);
  free(c);
  return wrong ? EXIT_WRONG : 0;
}
